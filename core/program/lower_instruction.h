// One instruction kind of a decode step alone: the same tasks, weights and vectors in every layer, without what lies between. What the rest of the
// step would have computed (residual, q, act, … and for attention the KV cache) is Space::Input: the caller fills it, the program only reads it.
// Layers are chained by a counter, so that weights are streamed cold in the order of a real step. Deterministic, pure, thread-safe.
// docs/tune-instruction.md.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/program/lower.h"
#include "core/program/lower_plan.h"

namespace amk {

// qkv (norm, projection, RoPE, KV append), attention (tiles and their merge), o_proj and down (projection, residual add), gate_up (norm, projection,
// SiLU·mul), lm_head (norm, projection, partial argmax): fused or not as fusion_grouping says.
std::span<const std::string_view> instruction_ops();
bool is_instruction_op(std::string_view op);
std::string accepted_instruction_ops();  // "qkv, attention, …", for messages

// As lower(), for one kind; pages are never shared (page_allocation is not read). InvalidArgument for another op, naming the accepted ones; Rejected
// also when combine+o joins attention with o_proj, and for publish = flagged, which wants tags that only a producer writes.
Result<Program> lower_instruction(const ModelSpec& spec, std::string_view op, const ScheduleConfig& config, const LoweringTarget& target,
                                  const NumericFormat& format);

namespace lowering {

// The instructions of `op` out of a whole plan.
Plan isolate(Plan whole, std::string_view op);
// lower(), of the whole step (op empty) or of one kind.
Result<Program> lower_part(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const NumericFormat& format,
                           std::string_view op);

}  // namespace lowering
}  // namespace amk
