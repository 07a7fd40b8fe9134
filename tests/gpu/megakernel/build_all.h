// Kernels into the build cache before they are needed, on all cores: most of a suite's time is the compiler's.
#pragma once

#include <vector>

#include "kernels/megakernel/gpu_model.h"

namespace amk::gpu_test {

struct Build {
  ScheduleConfig config;
  PlanOptions options;
};

// What is wrong with a build is said where it is used. Returns when all are done.
void build_all(const GpuModel& model, const std::vector<Build>& builds);

}  // namespace amk::gpu_test
