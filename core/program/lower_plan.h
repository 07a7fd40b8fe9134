// First part of lowering: which instructions a step has, over which buffers, and what waits for what. Internal to core/program.
#pragma once

#include <vector>

#include "core/program/lower.h"
#include "core/program/lower_order.h"

namespace amk::lowering {

// What is balanced over SMs separately, so that one kind of work does not disturb the balance of another.
enum class Ledger { Weights, Attention, Elementwise };
constexpr std::size_t kLedgers = 3;

// Rows [begin, end) cut into tiles of `tile_rows` (the last may be shorter).
struct Segment {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t tile_rows = 1;
  std::int32_t tiles() const { return (end - begin + tile_rows - 1) / tile_rows; }
};

struct PlannedInstruction {
  Instruction info;
  Ledger ledger = Ledger::Elementwise;
  std::vector<Segment> segments;  // rows as Task::row_begin counts them; AttentionTile: (split * batch + seq) * kv_heads + head; AttentionO: head *
                                  // hidden + row; Argmax: seq
  std::int64_t row_bytes = 0;     // what one row costs its SM, for the ledger
  bool grouped = false;           // one counter per kv head instead of one for all
  bool signals = false;           // somebody waits for it
  std::vector<Dependency> waits;  // reduced: without what another wait implies
  // Operands; kNone where the form has none. `input` is the vector (or the partials) that the instruction transforms.
  BufferId input = kNone, second_input = kNone, norm_weight = kNone, weight = kNone, scale = kNone, bias = kNone, q_norm = kNone, k_norm = kNone,
           rope = kNone, residual = kNone;
  BufferId output = kNone, k_output = kNone, k_cache = kNone, v_cache = kNone, partial = kNone;
};

struct Plan {
  AttentionShape attention;
  bool cache_in_ring = false;                         // kv_path ring
  std::vector<Buffer> buffers;                        // storage and offset still open; argmax partials still without a size
  std::vector<InstructionId> producer;                // [buffer]: the one instruction that writes it; kNone for weights, constants, inputs
  std::vector<std::vector<InstructionId>> consumers;  // [buffer]: the instructions that read it, ascending
  std::vector<PlannedInstruction> instructions;       // in queue order, which is a topological order
  InstructionOrder order;
};

Plan make_plan(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const NumericFormat& format);

// kv head that a row of a grouped instruction belongs to, and the end of the rows from `row` on that belong to it as well.
std::int32_t head_of_row(const ModelSpec& spec, const Instruction& instruction, std::int32_t row);
std::int32_t head_rows_end(const ModelSpec& spec, const Instruction& instruction, std::int32_t row);

// Bytes of one split's partial of one kv head.
inline std::int64_t partial_bytes(const ModelSpec& spec) {
  return std::int64_t{spec.gqa()} * (spec.head_dim + kPartialTail) * dtype_bytes(DType::F32);
}

}  // namespace amk::lowering
