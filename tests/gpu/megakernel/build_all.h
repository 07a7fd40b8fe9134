// Kernels built before they are needed, on all cores: most of a suite's time is the compiler's.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/megakernel/gpu_model.h"
#include "tests/gpu/megakernel/changed_lines.h"
#include "tests/gpu/megakernel/checks.h"

namespace amk::gpu_test {

struct Build {
  ScheduleConfig config;
  PlanOptions options;
};

// Into the build cache. What is wrong with a build is said where it is used. Returns when all are done.
void build_all(const GpuModel& model, const std::vector<Build>& builds);

// Of each line the candidate with the kernel that it makes of `base(line)`; none, a failed check, where the source has no such line or does not
// compile.
std::vector<std::optional<BuiltCandidate>> build_changed(const Bench& bench, std::span<const ChangedLine> lines,
                                                         const std::function<const BuiltCandidate&(const ChangedLine&)>& base, Checks& checks);

}  // namespace amk::gpu_test
