// clang-format off
// ScheduleConfig -> Program. Deterministic: equal inputs, equal programs, byte for byte. Thread-safe (pure). The whole story: docs/program.md.
//
// Regions, in this order (a task lists only those that its form has; one form, one list, whatever rows the task covers):
// A batch of B sequences: the list of the first sequence as follows, then for each further one the same list without what all share (weights, biases,
// norm weights, rope table). AttentionTile and Argmax touch one sequence and have one list.
//   Embed            reads token, embedding table (whole);                     writes residual slice
//   RmsNorm          reads residual (whole), norm weight slice;                writes normed slice
//   Gemv             reads input (residual if kFusedNorm, else normed / attn / act: whole vector; if kFusedCombine one region of partials per
//                          split instead, all heads, guarded by the positions at which that split is active),
//                          norm weight (kFusedNorm, whole), weight rows, scale rows (int8), bias rows (packed order), q and k norm weights
//                          (qk_norm models) and rope table (kFusedRopeAppend), residual slice (kFusedResidualAdd);
//                    writes output slices (qkv | q slices, then K rows, then V rows | gate, up slices | act | delta | residual' | logits),
//                          argmax partial (kFusedArgmax)
//   Rope             reads q and k slices of qkv, q and k norm weights (qk_norm), rope table;  writes q slice, then k slice
//   KvAppend         reads k slice, v slice of qkv;                            writes K rows, then V rows (pos_stride), one region a head
//   AttentionTile    reads q of the group, K head, V head (whole head: every position may be read); writes its partials, one region a split, or attn slice when splits == 1
//   AttentionO       reads q of the group, K head, V head, the head's columns of its weight rows (a region a row), and for head 0 bias rows and residual
//                          slice;                                              writes its slice of the head's sum: [kv heads, hidden] fp32. Its readers
//                          (GateUp with kFusedNorm, the residual of Down) read all heads' sums: whole, or one slice a head
//   AttentionCombine reads partials, one region per split, guarded by the positions at which it is active;  writes attn slice
//   SiluMul          reads gate slice, up slice;  writes act slice.    Add reads residual slice, delta slice;  writes residual' slice
//   ArgmaxPartial    reads logits slice;  writes its partial.          Argmax reads all partials;  writes next_token (steps of one launch: token)
//
// Vectors are in the model's natural row order: qkv = q heads, k heads, v heads; gate_up = gate rows, then up rows. A Gemv task covers packed rows
// (packing.h), so a partly covered head is two slices (first halves, second halves). The rope table is fp32 [max_seq, 2, head_dim / 2]: cosines, then
// sines. The KV cache is [kv_heads, max_seq, head_dim] a layer. In a batch every buffer but weights and tables has the sequences as its first dimension.
// clang-format on
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
  int batch = 1;  // sequences of one launch, 1 to kMaxBatch
};

// Storage formats of what is not the residual (always fp32). All fp32 for the CPU check; bf16 KV and activations on a GPU.
struct NumericFormat {
  DType weights = DType::BF16;     // as packed: bf16 (fp32 for fp32 checkpoints, fp16 for fp16); of an int8 model all but the matrices
  DType activations = DType::F32;  // normed, q, attn, act
  DType kv = DType::F32;
};

// Rejected: does not fit the target (ring larger than shared memory, explicit map names an unknown tile or an SM out of range, …) with
// {"rule", "message", "witness"} in data. Unsupported: the model cannot be packed. Never returns a program the validator would refuse.
Result<Program> lower(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const NumericFormat& format);

}  // namespace amk
