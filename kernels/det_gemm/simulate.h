// A plan executed on the CPU, on samples: its walk over the tiles, each output computed in the kernel's roles and k blocks, compared
// with the oracle bit for bit. What it can find: tiles that miss or overlap, wrong edges, a k loop whose padding or chunking is not the
// class's. What it cannot: faults of the device code itself, which the GPU gate is for. Thread-safe.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "core/base/error.h"
#include "kernels/det_gemm/plan.h"

namespace amk::det_gemm {

struct Simulated {
  std::int64_t checked = 0;                             // outputs compared
  std::int64_t different = 0;                           // of these, bits that are not the oracle's
  double max_abs_err = 0, mean_abs_err = 0, bound = 0;  // against fp64, over the checked outputs
  std::string failure;                                  // empty when all is well
};

// `seed` should be fresh. Cancelled when `stop` is requested.
Result<Simulated> simulate(const Plan& plan, std::uint64_t seed, const std::stop_token& stop);

// Empty when every output lies in exactly one tile of the walk, else what is wrong. Looks at each tile once.
std::string coverage_fault(const Plan& plan);

}  // namespace amk::det_gemm
