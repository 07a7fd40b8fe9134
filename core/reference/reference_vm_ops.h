// What each opcode computes: fp32 arithmetic, operands and results in their buffers' dtypes. Internal to reference_vm*.cpp.
#pragma once

#include <vector>

#include "core/base/error.h"
#include "core/reference/reference_vm_bind.h"

namespace amk::vm {

// Reused between tasks so that a step allocates nothing. One per VM.
struct Scratch {
  std::vector<float> a, b, c, input, row, outputs;
};

struct StepContext {
  const Program& program;
  const WeightBuffers& weights;
  int position = 0;  // of the task's sequence
  Scratch& scratch;
};

// Runs one task whose waits hold. Fails only on a token outside the vocabulary (an Embed that reads garbage).
Status execute(const StepContext& context, const BoundTask& task);

}  // namespace amk::vm
