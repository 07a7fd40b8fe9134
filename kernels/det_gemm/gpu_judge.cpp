#include "kernels/det_gemm/gpu_judge.h"

#include <chrono>

#include "core/base/random.h"
#include "core/base/stats.h"
#include "kernels/det_gemm/timed_verdict.h"

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
      verdict.notes += " Failed: " + what_differs(compared) + ".";
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
  std::vector<Contender> contenders;
  if (incumbent) {
    AMK_TRY(plan, workload_->plan(*incumbent));
    AMK_TRY(other, runner_->compile(plan));
    contenders.push_back({workload_->schedule_id(*incumbent), [other, stream](const Buffers& b) { return other->launch(b, stream); }});
  }
  contenders.push_back({verdict.schedule_id, [&gemm, stream](const Buffers& b) { return gemm.launch(b, stream); }});
  AMK_TRY(timings, bed_.race(contenders, options_.rounds, options_.sample_us));
  timing_ = amk::Timing{};
  timing_.candidate_us = timings.back().samples_us;
  timing_.rounds = static_cast<int>(timing_.candidate_us.size());
  timing_.latency_us = median(timing_.candidate_us);
  timing_.mad_us = median_absolute_deviation(timing_.candidate_us);
  if (incumbent) {
    timing_.incumbent_us = timings.front().samples_us;
    timing_.incumbent_latency_us = median(timing_.incumbent_us);
    timing_.versus = paired_ratio(timing_.incumbent_us, timing_.candidate_us);
    timing_.decision = decide(*timing_.versus);
  }

  // The outputs of the last timed launches must be right too: a kernel may be right at first and wrong later.
  AMK_TRY(after, bed_.check_outputs(2));
  if (!after.clean()) {
    verdict.correct = false;
    verdict.notes += " Failed after timing: " + what_differs(after) + ".";
    return {};
  }
  fill_timing(verdict, *workload_, timing_, incumbent ? timings.front().name : std::string());
  return {};
}

Result<Verdict> GpuJudge::judge(const Json& config, const std::optional<Json>& incumbent) {
  AMK_TRY(canonical, workload_->canonical(config));
  timing_ = amk::Timing{};
  Verdict verdict;
  verdict.workload = workload_->id();
  verdict.gpu = workload_->target().name;
  verdict.regime = workload_->regime();
  verdict.config = canonical;
  verdict.schedule_id = workload_->schedule_id(canonical);
  const auto reject = [&](const Error& error) {
    verdict.status = VerdictStatus::Rejected;
    verdict.rejected = RejectedBy{error.data.value("rule", "build"), error.message, error.data};
    return verdict;
  };
  auto plan = workload_->plan(canonical);
  if (!plan && plan.error().kind == ErrorKind::Rejected) return reject(plan.error());
  if (!plan) return tl::unexpected<Error>(std::move(plan).error());
  verdict.tasks = plan->tiles_m * plan->tiles_n * plan->cluster;
  verdict.weight_bytes = 2 * workload_->problem().N * workload_->problem().K;
  verdict.smem_bytes = plan->smem_bytes;
  auto gemm = build(*plan, verdict);
  if (!gemm && gemm.error().kind == ErrorKind::Rejected) return reject(gemm.error());
  if (!gemm) return tl::unexpected<Error>(std::move(gemm).error());
  verdict.valid = true;
  verdict.notes = "Bits compared with the plain kernel over the whole output, itself compared with the CPU oracle of class " + plan->numeric.id + ".";
  AMK_CHECK(gate(**gemm, verdict));
  if (verdict.correct) AMK_CHECK(time(**gemm, incumbent, verdict));
  verdict.status = verdict.correct ? VerdictStatus::Ok : VerdictStatus::Incorrect;
  return verdict;
}

}  // namespace amk::det_gemm
