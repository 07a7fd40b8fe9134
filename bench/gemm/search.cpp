#include "bench/gemm/search.h"

#include <algorithm>

#include "kernels/det_gemm/cost_model.h"
#include "kernels/det_gemm/gpu_judge.h"
#include "kernels/det_gemm/workload_id.h"
#include "orchestrator/strategy/strategy.h"

namespace amk::det_gemm {
namespace {

constexpr std::size_t kBatch = 6;  // asked at once, compiled in parallel

class AnalyticPrior final : public Prior {
 public:
  explicit AnalyticPrior(std::shared_ptr<const GemmWorkload> workload) : workload_(std::move(workload)) {}
  double score(const Point& point) const override { return workload_->predict_us(workload_->config_at(point)).value_or(1e12); }

 private:
  std::shared_ptr<const GemmWorkload> workload_;
};

}  // namespace

Result<SearchResult> run_search(Runner& runner, const SearchRun& run, const Resources& resources, const std::filesystem::path& cache) {
  AMK_TRY(problem, parse_workload(run.workload, {}));
  AMK_TRY(workload, GemmWorkload::create(problem, runner.target()));
  GpuJudgeOptions judge_options;
  judge_options.fewest_rounds = 4;
  AMK_TRY(judge, GpuJudge::create(runner, workload, run.seed * 7919, judge_options));
  StrategyOptions options;
  options.seed = run.seed;
  options.prior = std::make_shared<AnalyticPrior>(workload);
  options.prior_is_model = true;
  options.expected_evaluations = static_cast<std::size_t>(run.evaluations);
  AMK_TRY(start, workload->point_of(workload->default_config()));
  options.start = {start};
  AMK_TRY(strategy, make_strategy(run.strategy, workload->space(), options));

  SearchResult result;
  double best = 0;
  while (static_cast<int>(result.best_us.size()) < run.evaluations) {
    const std::vector<Point> points = strategy->ask(std::min<std::size_t>(kBatch, static_cast<std::size_t>(run.evaluations) - result.best_us.size()));
    if (points.empty()) break;
    std::vector<Plan> plans;
    for (const Point& point : points)
      if (auto plan = workload->plan(workload->config_at(point))) plans.push_back(std::move(*plan));
    (void)Runner::prebuild(plans, resources, cache, 0);
    for (const Point& point : points) {
      AMK_TRY(verdict, judge.judge(workload->config_at(point)));
      std::optional<double> cost;
      if (verdict.correct) cost = verdict.latency_us;
      result.rejected += verdict.status == VerdictStatus::Rejected;
      result.incorrect += verdict.status == VerdictStatus::Incorrect;
      if (cost && (best == 0 || *cost < best)) {
        best = *cost;
        result.best_config = verdict.config;
      }
      result.best_us.push_back(best);
      strategy->tell({point, cost});
    }
  }

  // What was found against what is known, in turn.
  std::vector<Contender> contenders;
  std::vector<Config> configs = run.known;
  AMK_TRY(found, parse_config(result.best_config));
  configs.push_back(found);
  for (const Config& config : configs) {
    AMK_TRY(plan, make_plan(workload->shape(), dense_storage(workload->shape()), config, runner.target()));
    AMK_TRY(gemm, runner.compile(plan));
    contenders.push_back({"", [gemm, &runner](const Buffers& b) { return gemm->launch(b, runner.stream().handle()); }});
  }
  AMK_TRY(timings, judge.bed().race(contenders, 15, 2500));
  result.found_us = timings.back().median_us;
  result.best_known_us = result.found_us;
  for (const Raced& t : timings) result.best_known_us = std::min(result.best_known_us, t.median_us);
  // Measured in another minute than the candidates were: scaled by what the best found took then and takes now.
  const double goal = result.best_known_us / 0.97 * (best / result.found_us);
  for (std::size_t i = 0; i < result.best_us.size() && result.to_97_percent < 0; ++i)
    if (result.best_us[i] > 0 && result.best_us[i] <= goal) result.to_97_percent = static_cast<int>(i) + 1;
  return result;
}

}  // namespace amk::det_gemm
