// Wrong kernels, each the right one with a line of its source changed. Every one must be noticed. That the lines are there is tested without a GPU
// (tests/unit/megakernel_device/changed_lines_test.cpp).
#pragma once

#include <span>

#include "kernels/evaluator/nvrtc.h"

namespace amk::gpu_test {

struct ChangedLine {
  const char *name, *file, *from, *to;
  bool of_flagged = false;  // changed_steps(): of the kernel that publishes flagged
  bool nothing() const { return from[0] == '\0'; }
};

std::span<const ChangedLine> changed_int8();
std::span<const ChangedLine> changed_slices();
std::span<const ChangedLine> changed_attention_o();
std::span<const ChangedLine> changed_steps();
std::span<const ChangedLine> changed_ring_rows();

// False: the source has no such line, and is as it was.
bool change(CompileRequest& request, const ChangedLine& line);

}  // namespace amk::gpu_test
