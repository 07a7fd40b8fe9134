// Launches of one implementation over rotating sets of operands, recorded once as a graph, for the evaluator's clock. Belongs to the thread of its
// stream; the sets outlive it.
#pragma once

#include <functional>
#include <span>

#include "kernels/det_gemm/driver_extras.h"
#include "kernels/det_gemm/launcher.h"
#include "kernels/evaluator/clock.h"

namespace amk::det_gemm {

class GraphContestant final : public Contestant {
 public:
  // Runs over all sets twice to see how long a launch takes, then records about `sample_us` microseconds of launches: at least one a set.
  static Result<GraphContestant> record(const cuda::Stream& stream, std::span<const Buffers> sets,
                                        const std::function<Status(const Buffers&)>& launch, double sample_us);

  Result<double> sample_us() override;  // of one launch

  int launches() const { return launches_; }         // of one sample
  double wall_ratio() const { return wall_ratio_; }  // wall clock over device events of the last sample

 private:
  GraphContestant() = default;
  const cuda::Stream* stream_ = nullptr;
  Graph graph_;
  cuda::Event start_, stop_;
  int launches_ = 0;
  double wall_ratio_ = 0;
};

}  // namespace amk::det_gemm
