// One candidate judged on the local GPU: plan, build, gate by equality of bits, timing against the incumbent in turn by the evaluator's clock, gate
// again, floor. Belongs to the thread of its Runner. The order and what ends it: docs/det-gemm.md.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "kernels/det_gemm/bed.h"
#include "kernels/det_gemm/workload.h"
#include "kernels/evaluator/clock.h"

namespace amk::det_gemm {

struct GpuJudgeOptions {
  int fewest_rounds = 8;  // of the evaluator's clock
  std::chrono::milliseconds most_time{2000};
  double sample_us = 2500;
  double rotate_mb = 256;  // total of the rotating sets: several times L2
};

class GpuJudge {
 public:
  // Draws fresh operands. The plain kernel is held against the CPU oracle here, on samples with all corners; where it differs nothing
  // can be judged: Internal. On a class that is not verified, against the error bound instead.
  static Result<GpuJudge> create(Runner& runner, std::shared_ptr<const GemmWorkload> workload, std::uint64_t seed,
                                 const GpuJudgeOptions& options = {});

  // An Error means that the machinery failed, and that the context may be unusable; never that the candidate is bad.
  Result<Verdict> judge(const Json& config, const std::optional<Json>& incumbent = std::nullopt);

  // What the clock saw during the last judgement; no timing when it ended before any.
  struct Timed {
    std::optional<amk::Timing> timing;
    double wall_ratio = 0;
    int other_processes = -1;
  };
  const Timed& timed() const { return timed_; }

  Bed& bed() { return bed_; }

 private:
  GpuJudge(Runner& runner, std::shared_ptr<const GemmWorkload> workload, std::uint64_t seed, const GpuJudgeOptions& options, Bed bed)
      : runner_(&runner), workload_(std::move(workload)), seed_(seed), options_(options), bed_(std::move(bed)) {}
  Result<const CompiledGemm*> build(const Plan& plan, Verdict& verdict);
  Status gate(const CompiledGemm& gemm, Verdict& verdict);
  Status time(const CompiledGemm& gemm, const std::optional<Json>& incumbent, Verdict& verdict);

  Runner* runner_;
  std::shared_ptr<const GemmWorkload> workload_;
  std::uint64_t seed_;
  GpuJudgeOptions options_;
  Bed bed_;
  Timed timed_;
  std::uint64_t draws_ = 0;
};

}  // namespace amk::det_gemm
