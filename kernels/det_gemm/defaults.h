// Configs to start from when nothing is tuned. Pure, thread-safe.
#pragma once

#include <vector>

#include "core/base/error.h"
#include "core/target/gpu_target.h"
#include "kernels/det_gemm/config.h"
#include "kernels/det_gemm/plan.h"

namespace amk::det_gemm {

// The plain start of a search: a middling tile of the fastest path that serves this shape, no clusters, no hints. Always runs.
Config default_config(const Canonical& shape, const Storage& storage, const GpuTarget& target);

// A bounded list of good guesses for the shape, best estimate first: what autotuning on a miss tries. All of them run.
std::vector<Config> candidate_configs(const Canonical& shape, const Storage& storage, const GpuTarget& target, std::size_t limit);

Config plain_kernel_config();

}  // namespace amk::det_gemm
