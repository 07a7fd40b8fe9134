// A task bound to memory: every region checked against what its opcode reads and writes (lower.h), so that executing it can touch nothing
// else. Internal to reference_vm*.cpp.
#pragma once

#include <vector>

#include "core/base/error.h"
#include "core/program/program.h"
#include "core/reference/reference_vm_memory.h"
#include "core/reference/reference_vm_weights.h"

namespace amk::vm {

// Where one output row of a Gemv goes.
struct RowTarget {
  std::byte* data = nullptr;  // at position 0
  std::int32_t stride_bytes = 0;
  DType dtype = DType::F32;
  std::byte* at(int position) const { return data + std::int64_t{position} * stride_bytes; }
};

// What a task does for one sequence.
struct BoundTask {
  const Task* task = nullptr;
  int seq = 0;
  std::vector<BoundRegion> inputs;  // what the opcode transforms: vectors, partials (one a split), K and V
  BoundRegion norm, weight, scale, bias, q_norm, k_norm, rope;
  std::vector<BoundRegion> residuals;  // the residual is their sum: one, or one a kv head
  bool has_bias = false;
  bool has_scale = false;  // int8 weights
  bool has_head_norm = false;
  std::vector<BoundRegion> outputs;  // AttentionTile: one a split, in ascending order
  std::vector<RowTarget> rows;       // Gemv: one a packed row; one a pair when SiLU·mul is fused
  BoundRegion argmax;                // Gemv with kFusedArgmax
};

// InvalidArgument names the task and the region that is not what the opcode needs.
// One for each sequence that the task touches.
Result<std::vector<BoundTask>> bind_task(const Program& program, TaskId id, Memory& memory, const WeightBuffers& weights);

}  // namespace amk::vm
