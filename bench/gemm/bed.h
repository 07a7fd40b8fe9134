// A test bed for one problem on one GPU: rotating sets of random operands whose total exceeds L2, the in-class plain result to compare
// with, and timing of several contenders in turn. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/det_gemm/driver_extras.h"
#include "kernels/det_gemm/oracle.h"
#include "kernels/det_gemm/runner.h"

namespace amk::det_gemm {

struct Contender {
  std::string name;
  std::function<Status(const Buffers&)> launch;
};

struct Timing {
  std::string name;
  double median_us = 0;
  double ratio = 0;  // first contender's time / this one's, paired by round
  double ci_low = 0, ci_high = 0;
};

class Bed {
 public:
  static Result<Bed> make(Runner& runner, const Problem& problem, std::uint64_t seed, std::int64_t rotate_bytes);

  // Runs `launch` on set 0 with poisoned output and counts the 16-bit words that differ from the plain kernel's result.
  Result<std::uint64_t> mismatches(const std::function<Status(const Buffers&)>& launch);

  // Compares sampled blocks of the plain kernel's result with the CPU oracle; the number of elements that differ.
  Result<std::int64_t> oracle_mismatches(int blocks, std::uint64_t seed, std::int64_t& checked);

  // Every contender in turn, `rounds` rounds after a warm-up, forward and backward alternately; each sample is a graph of about
  // `sample_us` microseconds over all sets.
  Result<std::vector<Timing>> race(const std::vector<Contender>& contenders, int rounds, double sample_us);

  const Canonical& shape() const { return shape_; }
  int sets() const { return static_cast<int>(sets_.size()); }

 private:
  explicit Bed(Runner& runner) : runner_(&runner) {}
  Status poison(const Buffers& buffers);
  Runner* runner_;
  Problem problem_;
  Canonical shape_;
  std::vector<cuda::Memory> memory_;
  std::vector<Buffers> sets_;
  cuda::Memory reference_;
  std::int64_t out_bytes_ = 0;
  const NumericClass* numeric_ = nullptr;
};

}  // namespace amk::det_gemm
