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

// What a program did: right or not, and what to say of it.
struct Seen {
  bool right = false;
  std::string what;
};

// Of each line the kernel that it makes of `base(line)`, built, loaded and tried. The line that changes nothing must leave it right, and no other
// may. A failed check, too, where the source has no such line, or it does not compile or load, or `tried` returns nothing (and has said why).
void try_changed(const Bench& bench, GpuModel& model, std::span<const ChangedLine> lines,
                 const std::function<const BuiltCandidate&(const ChangedLine&)>& base,
                 const std::function<std::optional<Seen>(const ChangedLine&, DeviceProgram&)>& tried, Checks& checks);

}  // namespace amk::gpu_test
