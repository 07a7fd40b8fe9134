#include "kernels/det_gemm/gpu_judge.h"

#include <algorithm>
#include <chrono>

#include "core/base/random.h"
#include "kernels/evaluator/nvml_monitor.h"
#include "kernels/timed_verdict.h"

namespace amk::det_gemm {
namespace {

constexpr int kOracleBlocks = 4;

std::string what_differs(const Compared& c) {
  std::string text;
  if (c.different > 0) text += std::to_string(c.different) + " output words differ from the plain kernel, the first at " + std::to_string(c.first);
  if (c.guard_bytes > 0) text += (text.empty() ? "" : "; ") + std::to_string(c.guard_bytes) + " bytes outside the output were written";
  if (c.inputs_changed > 0) text += (text.empty() ? "" : "; ") + std::to_string(c.inputs_changed) + " input words were changed";
  return text;
}

}  // namespace

Result<GpuJudge> GpuJudge::create(Runner& runner, std::shared_ptr<const GemmWorkload> workload, std::uint64_t seed, const GpuJudgeOptions& options) {
  AMK_TRY(bed, Bed::make(runner, workload->problem(), seed, static_cast<std::int64_t>(options.rotate_mb * 1e6)));
  std::int64_t checked = 0;
  AMK_TRY(wrong, bed.oracle_mismatches(kOracleBlocks, seed, checked));
  if (wrong > 0) {
    return fail(ErrorKind::Internal,
                "the plain kernel differs from the CPU oracle in " + std::to_string(wrong) + " of " + std::to_string(checked) +
                    " sampled outputs on this device: nothing can be judged",
                {{"different", wrong}, {"checked", checked}});
  }
  return GpuJudge(runner, std::move(workload), seed, options, std::move(bed));
}

Result<const CompiledGemm*> GpuJudge::build(const Plan& plan, Verdict& verdict) {
  const auto start = std::chrono::steady_clock::now();
  auto gemm = runner_->compile(plan);
  verdict.build_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (gemm) {
    verdict.registers = (*gemm)->registers();
    return *gemm;
  }
  return tl::unexpected<Error>(std::move(gemm).error());
}

Status GpuJudge::gate(const CompiledGemm& gemm, Verdict& verdict) {
  const auto launch = [&](const Buffers& b) { return gemm.launch(b, runner_->stream().handle()); };
  Correctness correctness;
  correctness.top1_agreement = 1;
  correctness.bitwise_repeatable = true;
  for (const Draw draw : {Draw::Normal, Draw::Wide}) {
    AMK_CHECK(bed_.redraw(mix64(seed_ + ++draws_), draw));
    for (int repeat = 0; repeat < 2; ++repeat) {
      AMK_TRY(compared, bed_.check(launch));
      correctness.positions_checked += bed_.shape().m * bed_.shape().n;
      if (compared.clean()) continue;
      correctness.bitwise_repeatable = false;
      append_note(verdict, "Failed: " + what_differs(compared) + ".");
      verdict.correctness = correctness;
      return {};
    }
  }
  verdict.correctness = correctness;
  verdict.correct = true;
  return {};
}

Status GpuJudge::time(const CompiledGemm& gemm, const std::optional<Json>& incumbent, Verdict& verdict) {
  const cuda::abi::Stream stream = runner_->stream().handle();
  NvmlMonitor monitor(runner_->uuid());
  timed_.other_processes = monitor.other_processes();
  TimingOptions options;
  options.fewest_rounds = options_.fewest_rounds;
  options.most_time = options_.most_time;
  options.unfair = kThrottleUnfair & ~static_cast<std::uint64_t>(kThrottleSoftwarePower);
  AMK_TRY(candidate,
          bed_.contestant({verdict.schedule_id, [&gemm, stream](const Buffers& b) { return gemm.launch(b, stream); }}, options_.sample_us));
  const std::string other_id = incumbent ? workload_->schedule_id(*incumbent) : std::string();
  Result<amk::Timing> timing = fail(ErrorKind::Internal, "not timed");
  if (incumbent) {
    AMK_TRY(plan, workload_->plan(*incumbent));
    AMK_TRY(other, runner_->compile(plan));
    AMK_TRY(against, bed_.contestant({other_id, [other, stream](const Buffers& b) { return other->launch(b, stream); }}, options_.sample_us));
    timing = time_in_turn(candidate, &against, monitor, options);
  } else {
    timing = time_in_turn(candidate, nullptr, monitor, options);
  }
  timed_.other_processes = std::max(timed_.other_processes, monitor.other_processes());
  if (!timing && timing.error().data.contains("withheld")) {
    withhold(verdict, timing.error().data.value("withheld", ""), timing.error().message + ".");
  } else if (!timing) {
    return tl::unexpected<Error>(std::move(timing).error());
  } else {
    timed_.timing = std::move(*timing);
  }

  // Once more, last and into poisoned outputs: what is compared is a timed chain's, right from the first launch to the last.
  AMK_CHECK(bed_.poison_outputs());
  AMK_TRY(last, candidate.sample_us());
  (void)last;
  timed_.wall_ratio = candidate.wall_ratio();
  AMK_TRY(after, bed_.check_outputs(2));
  if (!after.clean()) {
    verdict.correct = false;
    append_note(verdict, "Failed after timing: " + what_differs(after) + ".");
    return {};
  }
  if (verdict.withheld.empty()) fill_timed(verdict, *timed_.timing, timed_floor(*workload_), other_id);
  return {};
}

Result<Verdict> GpuJudge::judge(const Json& config, const std::optional<Json>& incumbent) {
  AMK_TRY(canonical, workload_->canonical(config));
  timed_ = {};
  Verdict verdict = verdict_of(*workload_, canonical);
  const auto rejected = [&](const Error& error) {
    reject(verdict, error, "build");
    return verdict;
  };
  auto plan = workload_->plan(canonical);
  if (!plan && plan.error().kind == ErrorKind::Rejected) return rejected(plan.error());
  if (!plan) return tl::unexpected<Error>(std::move(plan).error());
  verdict.tasks = plan->tiles_m * plan->tiles_n * plan->cluster;
  verdict.weight_bytes = 2 * workload_->problem().N * workload_->problem().K;
  verdict.smem_bytes = plan->smem_bytes;
  auto gemm = build(*plan, verdict);
  if (!gemm && gemm.error().kind == ErrorKind::Rejected) return rejected(gemm.error());
  if (!gemm) return tl::unexpected<Error>(std::move(gemm).error());
  verdict.valid = true;
  verdict.notes = "Bits compared with the plain kernel over the whole output, itself compared with the CPU oracle of class " + plan->numeric.id + ".";
  AMK_CHECK(gate(**gemm, verdict));
  if (verdict.correct) AMK_CHECK(time(**gemm, incumbent, verdict));
  verdict.status = verdict.correct ? VerdictStatus::Ok : VerdictStatus::Incorrect;
  return verdict;
}

}  // namespace amk::det_gemm
