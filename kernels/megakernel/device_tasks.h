// One task of the IR as the descriptor that the device reads. Internal to kernels/megakernel.
#pragma once

#include <functional>

#include "core/program/program.h"
#include "kernels/megakernel/device/layout.cuh"
#include "kernels/megakernel/gpu_layout.h"

namespace amk {

// `offset_of`: byte offset of an activation buffer in the arena; `producers`: which instruction writes a buffer; `word_bytes`: of one activation word
// (8 with its tag). Rejected when an offset does not fit the descriptor. Waits are the caller's to fill.
Result<amk_vm::TaskDesc> device_task(const Program& program, const Task& task, const GpuLayout& layout,
                                     const std::function<std::int64_t(BufferId)>& offset_of, const std::vector<InstructionId>& producers,
                                     std::int64_t word_bytes);

}  // namespace amk
