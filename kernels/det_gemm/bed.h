// A test bed for one problem on one GPU: rotating sets of random operands whose total exceeds L2, guarded outputs, the in-class plain
// result to compare with, and timing of several contenders in turn. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/det_gemm/graph_contestant.h"
#include "kernels/det_gemm/oracle.h"
#include "kernels/det_gemm/runner.h"

namespace amk::det_gemm {

struct Contender {
  std::string name;
  std::function<Status(const Buffers&)> launch;
};

struct Raced {
  std::string name;
  std::vector<double> samples_us;  // one a round, mean over the launches of one graph
  double median_us = 0;
  double ratio = 0;  // first contender's time / this one's, paired by round
  double ci_low = 0, ci_high = 0;
};

// What a comparison with the plain kernel found.
struct Compared {
  std::uint64_t different = 0;    // 16-bit words of the output
  std::uint64_t first = 0;        // index of the first of them, when any
  std::uint64_t guard_bytes = 0;  // bytes around the output that were written
  std::uint64_t inputs_changed = 0;
  bool clean() const { return different == 0 && guard_bytes == 0 && inputs_changed == 0; }
};

enum class Draw { Normal, Wide };  // N(0,1); the same times 2^e, e uniform in ±10

class Bed {
 public:
  // Two to 32 sets of operands and outputs, at least `rotate_bytes` in total.
  static Result<Bed> make(Runner& runner, const Problem& problem, std::uint64_t seed, std::int64_t rotate_bytes);

  // Redraws set 0's operands and recomputes its reference.
  Status redraw(std::uint64_t seed, Draw draw);

  // Runs `launch` on set 0 with the output and its guards poisoned, and compares with the plain kernel's result, which lay on the host
  // meanwhile.
  Result<Compared> check(const std::function<Status(const Buffers&)>& launch);

  Status poison_outputs();  // of every set

  // One launch on every set, the outputs poisoned before; nothing waits in between.
  Status launch_all(const Contender& contender);

  // Compares what lies in the outputs now (of the last race) with the plain kernel, for `count` sets.
  Result<Compared> check_outputs(int count);

  // Compares sampled blocks of the plain kernel's result with the CPU oracle, or with the error bound where the device's class is not
  // verified; the number of elements that are wrong. `checked` counts up.
  Result<std::int64_t> oracle_mismatches(int blocks, std::uint64_t seed, std::int64_t& checked);

  // One contender for the evaluator's clock: a sample is a graph of about `sample_us` microseconds over all sets (cold: their total exceeds L2).
  Result<GraphContestant> contestant(const Contender& contender, double sample_us);

  // Every contender in turn, `rounds` rounds after a warm-up, forward and backward alternately: many schedules and a peer
  // library side by side. Judging uses the evaluator's clock instead.
  Result<std::vector<Raced>> race(const std::vector<Contender>& contenders, int rounds, double sample_us);

  const Canonical& shape() const { return shape_; }
  int sets() const { return static_cast<int>(sets_.size()); }

 private:
  explicit Bed(Runner& runner) : runner_(&runner) {}
  Status draw_operands(const Buffers& buffers, std::uint64_t seed, Draw draw) const;
  Status plain_result(const Buffers& buffers, std::vector<std::uint16_t>& out);
  Result<Compared> compare(const Buffers& buffers, const std::vector<std::uint16_t>& want) const;
  Runner* runner_;
  Problem problem_;
  Canonical shape_;
  std::vector<cuda::Memory> memory_;
  std::vector<Buffers> sets_;
  std::vector<std::uint64_t> seeds_;
  std::vector<Draw> draws_;
  cuda::Memory scratch_;  // the plain kernel's output; poisoned while a candidate runs
  std::vector<std::uint16_t> reference_;
  std::int64_t out_bytes_ = 0;
};

}  // namespace amk::det_gemm
