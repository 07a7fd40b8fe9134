// The worker's side of one isolated instruction kind: inputs up, one launch, outputs down. Expected values never come here. One thread.
#pragma once

#include <vector>

#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/instruction_data.h"

namespace amk {

// Poisons activations, outputs and cache, then fills the draw's inputs: vectors of `program`, and for attention the sequence's cache.
Status give_inputs(GpuModel& model, DeviceProgram& program, const InstructionDraw& draw);

struct InstructionRun {
  std::vector<float> outputs;  // slice after slice (output_slices)
  std::uint64_t hash = 0;      // of the outputs' bits
  std::int64_t unwritten = 0, not_finite = 0;
  bool inputs_unchanged = true;
  bool partials_agree = true;  // lm_head: the argmax partials and the logits say the same
};
// What the last launch of `program` with this draw left.
Result<InstructionRun> read_outputs(GpuModel& model, DeviceProgram& program, const InstructionDraw& draw);
// give_inputs, one launch, read_outputs.
Result<InstructionRun> run_instruction(GpuModel& model, DeviceProgram& program, const InstructionDraw& draw);

}  // namespace amk
