#include "kernels/det_gemm/gpu_tuner.h"

#include <random>

#include "kernels/evaluator/judged_timing.h"
#include "kernels/evaluator/nvml_monitor.h"

namespace amk::det_gemm {

Status GpuTuner::open(const Problem& problem, std::span<const Plan> plans) {
  (void)Runner::prebuild(plans, resources_, cache_, 0);  // a plan that does not build says so in its own turn
  constexpr std::int64_t kRotateBytes = 256'000'000;     // several times L2: candidates are timed cold
  std::random_device device;
  AMK_TRY(bed, Bed::make(*runner_, problem, std::uint64_t{device()} << 32 | device(), kRotateBytes));
  bed_ = std::move(bed);
  return {};
}

Result<Trial> GpuTuner::run(const Plan& plan, const Plan* best) {
  if (best != nullptr && newest_ && newest_->config == best->config) best_ = std::move(newest_);
  newest_.reset();
  AMK_TRY(gemm, runner_->compile(plan));
  const auto launch = [gemm, this](const Buffers& b) { return gemm->launch(b, runner_->stream().handle()); };
  AMK_TRY(compared, bed_->check(launch));
  if (!compared.clean()) return Trial{false, 0, std::to_string(compared.different) + " output words differ from the plain kernel"};
  AMK_TRY(contestant, bed_->contestant({"", launch}, 1000));
  newest_.emplace(Recorded{plan.config, std::move(contestant)});
  GraphContestant* against = best != nullptr && best_ ? &best_->launches : nullptr;
  NvmlMonitor monitor(runner_->uuid());
  TimingOptions options;
  options.fewest_rounds = kFewestValidRounds;
  options.most_warmup_windows = 3;
  options.most_time = std::chrono::milliseconds(200);
  options.unfair = kThrottleUnfair & ~static_cast<std::uint64_t>(kThrottleSoftwarePower);
  AMK_TRY(timing, time_in_turn(newest_->launches, against, monitor, options));
  // Once more, last: what is compared is this candidate's.
  AMK_CHECK(bed_->poison_outputs());
  AMK_TRY(last, newest_->launches.sample_us());
  (void)last;
  AMK_TRY(after, bed_->check_outputs(1));
  if (!after.clean()) return Trial{false, 0, std::to_string(after.different) + " output words differ after timing"};
  return Trial{true, timing.latency_us, {}, timing.versus ? timing.versus->ratio : 0};
}

}  // namespace amk::det_gemm
