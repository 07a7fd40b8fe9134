// ScheduleConfig -> Program. Deterministic: equal inputs, equal programs, byte for byte. Thread-safe (pure).
//
// Regions, in this order (a task lists only those that its form has):
//   Embed            reads token, embedding table (whole);                     writes residual slice
//   RmsNorm          reads residual (whole), norm weight slice;                writes normed slice
//   Gemv             reads input (residual if kFusedNorm, else normed / attn / act; partials if kFusedCombine; whole vector),
//                          norm weight (kFusedNorm), weight rows, bias, q/k norm weights + rope table (kFusedRopeAppend), residual slice
//                          (kFusedResidualAdd);
//                    writes output slices (qkv | q slices, then K rows, then V rows | gate_up | act | delta | residual' | logits), argmax partial
//   Rope             reads qkv slices, q/k norm weights, rope table;           writes q, k slices
//   KvAppend         reads k slices, v slices;                                 writes K rows, V rows (pos_stride)
//   AttentionTile    reads q of the group, K head, V head (whole head: every position may be read); writes its partial, or attn slice when splits ==
//   1 AttentionCombine reads partials (each guarded by the positions at which its split is active);   writes attn slice SiluMul          reads
//   gate_up slices;  Add reads residual slice, delta slice;  ArgmaxPartial reads logits slice;  Argmax reads partials
#pragma once

#include "core/base/error.h"
#include "core/program/program.h"
#include "core/schedule/config.h"

namespace amk {

// What lowering must know of the device. `sm_weight` (empty = all equal) are relative bandwidths for sm_assignment = measured.
struct LoweringTarget {
  int sm_count = 0;
  std::int64_t smem_optin_bytes = 0;
  int max_seq = 0;  // positions the program must be valid for; at most spec.max_position
  std::vector<double> sm_weight;
};

// Storage formats of what is not the residual (always fp32). All fp32 for the CPU check; bf16 KV and activations on a GPU.
struct NumericFormat {
  DType weights = DType::BF16;     // as packed: bf16 (fp32 for fp32 checkpoints, fp16 for fp16)
  DType activations = DType::F32;  // normed, q, attn, act
  DType kv = DType::F32;
};

// Rejected: does not fit the target (ring larger than shared memory, explicit map names an unknown tile or an SM out of range, …) with
// {"rule", "message", "witness"} in data. Unsupported: the model cannot be packed. Never returns a program the validator would refuse.
Result<Program> lower(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const NumericFormat& format);

}  // namespace amk
