// ScheduleConfig: the eight knobs (and kernel_knobs) that an agent may edit for the megakernel. Text form is JSON; see
// docs/schedule.md. Parsing rejects unknown keys, wrong types and values outside the choices, by name. Value types.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/schedule/space.h"

namespace amk {

struct ModelSpec;
struct GpuTarget;

// Which neighbouring operators become one instruction. Canonical: each enabled atom once.
struct Fusion {
  bool norm_qkv = true;         // RMSNorm before QKV inside the GEMV
  bool qkv_rope_append = true;  // (qk-norm,) RoPE and KV append after QKV
  bool combine_o = false;       // split-KV combine inside the O projection's prologue
  bool o_add = true;            // residual add after O
  bool norm_gate_up = true;
  bool gate_up_silu = true;  // SiLU·mul after gate/up
  bool down_add = true;
  bool norm_lm_head = true;
  bool lm_head_argmax = true;  // per-tile argmax inside the LM head
  // A task takes all KV blocks of its head: nothing is split, nothing merged. With combine_o also its part of the O projection.
  bool attention_combine = false;
  bool operator==(const Fusion&) const = default;
};

enum class SmAssignment { RoundRobin, LoadBalance, Measured, Explicit };
enum class PageAllocation { GraphColor, Linear, None };
enum class GemvPath { Mma, Fma, Slices };
enum class WeightLayout { Row, Packed };
enum class Publish { Release, Confirmed, Flagged };
enum class CounterGranularity { Vector, KvHead };
enum class KvPath { Direct, Ring };

struct KernelKnobs {
  int chunk_bytes = 16384;  // one weight copy
  int inflight_chunks = 2;  // copies in flight per SM (the window)
  GemvPath gemv_path = GemvPath::Mma;
  WeightLayout weight_layout = WeightLayout::Packed;
  Publish publish = Publish::Release;
  CounterGranularity counters = CounterGranularity::Vector;
  KvPath kv_path = KvPath::Direct;
  int cols_per_warp = 256;  // columns of a chunk that one warp takes (fma path)
  bool cpasync = false;     // cp.async instead of bulk copies (forced below sm_90)
  int cpa_stages = 3;
  int cpa_cols = 512;
  int tokens_per_launch = 1;  // most decode steps of one launch, the argmax fed back on the device; 1: one launch a step
  bool operator==(const KernelKnobs&) const = default;
};

struct ScheduleConfig {
  int gemv_n_tile = 16;          // tiling.gemv.N_tile: rows per tile, multiple of 8, 8…512
  int attention_kv_block = 64;   // tiling.attention.kv_block: 64, 128, 256, 512
  int attention_max_splits = 0;  // tiling.attention.max_splits: 2, 4, 8; 0: as many as one sequence has SMs for
  Fusion fusion;                 // fusion_grouping
  SmAssignment sm_assignment = SmAssignment::LoadBalance;
  std::map<std::string, int> explicit_sm;  // sm_assignment as an object: tile name ("L0.qkv.3") -> SM; unnamed tiles go round robin
  int pipelining_depth = 4;                // 0…8 task boundaries the weight stream may run ahead across
  PageAllocation page_allocation = PageAllocation::GraphColor;
  int threads_per_block = 288;        // 128…1024, multiple of 32: consumer warps + one producer warp
  int smem_bytes_per_block = 196608;  // 0…opt-in cap of the device; 0 = no ring, direct loads
  KernelKnobs kernel;
  bool operator==(const ScheduleConfig&) const = default;
};

// Missing keys take their defaults; anything else unexpected is an InvalidArgument naming key, value and what is accepted.
Result<ScheduleConfig> parse_schedule_config(const Json& json);
// The same with other defaults for missing keys, e.g. those of a GPU with less shared memory (config_at(space, space.default_point())).
Result<ScheduleConfig> parse_schedule_config(const Json& json, const ScheduleConfig& defaults);
Json to_json(const ScheduleConfig& config);             // canonical: every key present but those of Field::silent_default
std::string schedule_id(const ScheduleConfig& config);  // "s" + 32 hex digits of the canonical text's hash

// Attention and the O projection are one instruction: a task computes the attention of one KV head and multiplies it by rows of that head's columns
// of O, whose sums over the heads their readers make.
inline bool attention_in_o(const Fusion& fusion) { return fusion.attention_combine && fusion.combine_o; }

// The space of the knobs above that make sense for this model on this GPU, and translation both ways.
// A config with an explicit map or a value outside the listed choices has no Point: from_config says which knob.
// `batch`: sequences of a decode step; some combinations are then refused.
// A search is offered what was ever seen to matter; an ablation moves everything.
enum class Choices { Searched, All };
SearchSpace megakernel_space(const ModelSpec& spec, const GpuTarget& target, int batch = 1, Choices of = Choices::Searched);
ScheduleConfig config_at(const SearchSpace& space, const Point& point);
// Values that make no difference (Field::searched; cp.async's, where there is none) have the point of what is searched in their place.
Result<Point> point_of(const SearchSpace& space, const ScheduleConfig& config);

}  // namespace amk
