// Program IR: a decode step as static per-SM task queues over byte regions, synchronised by monotone counters.
// Lowering makes it (lower.h), the validator proves it (validator.h), the ReferenceVM and the GPU VM execute it.
// Value types; a const Program may be shared between threads. JSON form: program_json.h, schemas/program.schema.json.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_variant.h"
#include "core/model/weights.h"

namespace amk {

constexpr int kProgramVersion = 2;
constexpr int kMaxBatch = static_cast<int>(kMostBatch);  // sequences decoded by one launch
constexpr int kAllPositions = std::numeric_limits<std::int32_t>::max();

// Attention partials, of a sequence: fp32 [splits, kv_heads, gqa, head_dim + kPartialTail]. Per query head sum(exp(score - maximum) * value) over the
// split's keys, then the maximum of its scaled scores, the sum of exp(score - maximum), and zeros up to a multiple of 16 bytes. A split that is
// active but whose keys all lie outside the sliding window writes maximum = -infinity and zeros: it weighs nothing.
constexpr int kPartialTail = 4;
// Argmax partials, of a sequence: int32 [partials, 2]: the bits of the fp32 maximum, and its index (the lowest among equals).
constexpr int kArgmaxWords = 2;

enum class Opcode : std::uint8_t {
  Embed,             // residual = embedding[token]
  RmsNorm,           // whole vector, or (rows) a slice with the sum over the whole
  Gemv,              // packed rows [row_begin, row_end) of `matrix`; see FusedFlag
  Rope,              // (qk-norm and) rotation of q and k heads [row_begin, row_end) counted q heads first, then k heads
  KvAppend,          // K and V of kv heads [row_begin, row_end) into the cache at the launch position
  AttentionTile,     // all query heads of kv head `head` of sequence `seq`, in splits split, split + split_step, …: KV blocks s, s + splits, … of
                     // each; writes a partial a split (or the output when splits == 1)
  AttentionCombine,  // partials of kv heads [row_begin, row_end) merged in split order
  SiluMul,           // act[row_begin, row_end) = silu(gate) * up
  Add,               // residual' [row_begin, row_end) = residual + delta
  ArgmaxPartial,     // over logits [row_begin, row_end)
  Argmax,            // over all partials of sequence `seq`: its next token
  AttentionO,        // attention of kv head `head` over all positions, times its columns of O: rows [row_begin, row_end) of a sum a head, which
                     // readers add up, head 0 first; head 0's has bias and residual
};

enum class Matrix : std::uint8_t { None, Qkv, O, GateUp, Down, LmHead };

// What a Gemv does besides rows · vector. Bias is not a flag: it is read when the buffer exists.
enum FusedFlag : std::uint32_t {
  kFusedNorm = 1u << 0,         // input is the residual; RMSNorm with the norm weight region first
  kFusedRopeAppend = 1u << 1,   // Qkv: rotate, write q, append K and V
  kFusedSiluMul = 1u << 2,      // GateUp: write act
  kFusedResidualAdd = 1u << 3,  // O, Down: add the old residual rows, write the new
  kFusedArgmax = 1u << 4,       // LmHead: also write this task's (max, index) partial
  kFusedCombine = 1u << 5,      // O: input is the attention partials, merged in split order first
};

enum class Space : std::uint8_t { Weight, Activation, Kv, Input, Output, Const };

using BufferId = std::int32_t;
using StorageId = std::int32_t;
using CounterId = std::int32_t;
using TaskId = std::int32_t;
using InstructionId = std::int32_t;
constexpr std::int32_t kNone = -1;

// Memory that buffers live in. Activation buffers share pages (storages) when page_allocation lets them; every other buffer has its own.
struct Storage {
  std::string name;
  Space space = Space::Activation;
  std::int64_t bytes = 0;
  bool operator==(const Storage&) const = default;
};

// How a Weight buffer is filled: a packed matrix (rows in packed order, see packing.h), or one vector / table of the model.
struct WeightBinding {
  Matrix matrix = Matrix::None;
  WeightKind kind = WeightKind::Embedding;  // when matrix == None
  int layer = 0;
  bool bias = false;   // the bias vector of `matrix` instead, in the same packed row order
  bool scale = false;  // the scales of an int8 `matrix` instead, fp32, in the same packed row order
  // The matrix' own elements: what a task streams.
  bool rows_of_matrix() const { return matrix != Matrix::None && !bias && !scale; }
  bool operator==(const WeightBinding&) const = default;
};

struct Buffer {
  std::string name;  // "L3.act", "L3.qkv.w", "x2.0", "kv.k.3", "token", "logits" …: unique
  Space space = Space::Activation;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  StorageId storage = kNone;
  std::int64_t offset = 0;  // within the storage
  std::int64_t bytes = 0;   // product(shape) * dtype_bytes, unpadded
  WeightBinding binding;    // Space::Weight only
  bool operator==(const Buffer&) const = default;
};

// A byte interval of a buffer, at launch position p: [begin + p·pos_stride, end + p·pos_stride), touched only when pos_lo <= p < pos_hi. In a batch p
// is the position of the sequence whose slice of the buffer the interval lies in.
// pos_stride is 0 except for the KV rows that a step appends.
struct Region {
  BufferId buffer = kNone;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t pos_stride = 0;
  std::int32_t pos_lo = 0;
  std::int32_t pos_hi = kAllPositions;
  bool operator==(const Region&) const = default;
};

// Monotone, never reset: after e whole steps its value is e · fan_in. 32 bits: fan_in · (max_steps + 1) must fit (Program::max_steps).
struct Counter {
  std::string name;
  std::int32_t fan_in = 0;  // signals per step
  bool operator==(const Counter&) const = default;
};

// In step e (from 0) the task may start once the counter's value >= e · fan_in + target.
struct Wait {
  CounterId counter = kNone;
  std::int32_t target = 0;
  bool operator==(const Wait&) const = default;
};

struct Task {
  Opcode op = Opcode::Embed;
  std::int16_t layer = -1;  // -1 outside the layers
  InstructionId instruction = kNone;
  Matrix matrix = Matrix::None;
  std::uint32_t fused = 0;     // FusedFlag
  std::int32_t row_begin = 0;  // meaning: see Opcode
  std::int32_t row_end = 0;
  std::int32_t seq = 0;   // AttentionTile, Argmax: the one sequence of the batch that it touches; 0 for all others, which touch every sequence
  std::int32_t head = 0;  // AttentionTile, AttentionO: kv head
  std::int32_t split = 0;
  std::int32_t splits = 1;
  std::int32_t partial = 0;  // ArgmaxPartial and kFusedArgmax: index of the partial it writes
  // Outside [pos_lo, pos_hi) (of its sequence's position) the task touches nothing, but still waits and signals.
  std::int32_t pos_lo = 0;
  std::int32_t pos_hi = kAllPositions;
  std::vector<Region> reads;  // order fixed per opcode: see lower.h
  std::vector<Region> writes;
  std::vector<Wait> waits;   // all must hold
  CounterId signal = kNone;  // incremented by one when every write is visible to the device; kNone: signals nobody
  std::int32_t sm = 0;
  std::int32_t queue_pos = 0;  // queues[sm][queue_pos] is this task
  // What comes through the shared-memory ring; 0 = direct loads. A Gemv's weights; of an AttentionTile the cache rows that are older than the launch,
  // at most those of its splits (cache_bytes): how many there are depends on the position.
  std::int64_t ring_bytes = 0;
  bool operator==(const Task&) const = default;
};

// One instruction = one operator group of one layer, split into tasks.
struct Instruction {
  std::string name;  // "L3.qkv": tile names are "<instruction>.<tile>"
  Opcode op = Opcode::Embed;
  std::int16_t layer = -1;
  Matrix matrix = Matrix::None;
  std::uint32_t fused = 0;
  std::int32_t tiles = 0;  // before coalescing
  bool operator==(const Instruction&) const = default;
};

// The stream of one SM's producer, weights and cache rows: tasks in load order, each cut into ceil(ring_bytes / chunk_bytes) chunks (the last may be
// short). Slots are freed in consumption order. Lowering makes it the queue's order; anything else is for the validator to refuse.
struct Ring {
  std::int64_t ring_bytes = 0;  // capacity per SM; 0 = no ring
  std::int64_t chunk_bytes = 0;
  std::int32_t inflight_chunks = 0;
  std::int32_t depth = 0;  // pipelining_depth: a task's loads may start once at most `depth` earlier ring tasks are unfinished
  bool operator==(const Ring&) const = default;
};

struct AttentionShape {
  std::int32_t kv_block = 64;  // positions per block; split s takes blocks s, s + splits, …
  std::int32_t splits = 1;
  std::int32_t split_step = 1;  // tasks of one kv head of one sequence: each takes every split_step-th split. == splits: one split a task
  bool operator==(const AttentionShape&) const = default;
};

enum class StepSync : std::uint8_t {
  Launch,      // one launch a step: the kernel boundary orders everything before against everything after
  Persistent,  // several steps in one launch: only counters order them
};

struct Program {
  std::int32_t version = kProgramVersion;
  ModelSpec model;
  std::string schedule_id;
  std::int32_t sm_count = 0;
  std::int32_t threads_per_block = 0;
  std::int32_t batch = 1;      // sequences, each with its own position and cache: their slices are the first dimension of every buffer that has one
  std::int32_t max_seq = 0;    // valid for every launch position in [0, max_seq), of each sequence on its own
  std::int64_t max_steps = 0;  // counters do not overflow within this many steps
  StepSync step_sync = StepSync::Launch;
  Ring ring;
  AttentionShape attention;
  std::vector<Storage> storages;
  std::vector<Buffer> buffers;
  std::vector<Counter> counters;
  std::vector<Instruction> instructions;
  std::vector<Task> tasks;
  std::vector<std::vector<TaskId>> queues;   // [sm_count]: execution order
  std::vector<std::vector<TaskId>> streams;  // [sm_count]: load order of tasks with ring_bytes > 0

  BufferId find_buffer(std::string_view name) const;  // kNone when absent; linear
};

std::string_view to_string(Opcode op);
std::string_view to_string(Matrix matrix);
std::string_view to_string(Space space);
// Bytes of K and V of all positions that an AttentionTile's splits cover.
std::int64_t cache_bytes(const Program& program, const Task& task);
std::string task_name(const Program& program, TaskId id);  // "L3.qkv[rows 16,48)@sm5": for witnesses

}  // namespace amk
