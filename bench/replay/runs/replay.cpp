#include "bench/replay/runs/replay.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/parallel.h"
#include "core/base/stats.h"
#include "orchestrator/strategy/archive.h"

namespace amk {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

ReplayRun run_once(const RecordedSpace& recorded, Strategy& strategy, std::uint64_t seed, const ReplayOptions& options) {
  Rng noise(mix64(seed ^ 0xA5A5));
  ReplayRun run;
  double incumbent = std::numeric_limits<double>::infinity(), incumbent_true = incumbent, busy_ms = 0;
  std::size_t evaluations = 0;
  bool reached = false;
  while (evaluations < options.limit && (evaluations < options.at_least || !reached)) {
    const auto t0 = Clock::now();
    const std::vector<Point> points = strategy.ask(1);
    busy_ms += ms_since(t0);
    if (points.empty()) break;
    const auto seen = options.paired ? seen_cost(recorded, points[0], options.samples, seed) : recorded.noisy_cost(points[0], options.samples, noise);
    ++evaluations;
    if (seen && *seen < incumbent) {
      incumbent = *seen;
      incumbent_true = *recorded.true_cost(points[0]);
    }
    const double fraction = std::isinf(incumbent_true) ? 0 : recorded.optimum() / incumbent_true;
    run.fraction.push_back(fraction);
    reached = reached || fraction >= options.goal;
    if (fraction >= 0.95 && std::isinf(run.to95)) run.to95 = static_cast<double>(evaluations);
    if (fraction >= 0.99 && std::isinf(run.to99)) run.to99 = static_cast<double>(evaluations);
    const auto t1 = Clock::now();
    strategy.tell({points[0], seen});
    busy_ms += ms_since(t1);
  }
  run.ms_per_evaluation = busy_ms / static_cast<double>(std::max<std::size_t>(evaluations, 1));
  return run;
}

}  // namespace

std::optional<double> seen_cost(const RecordedSpace& recorded, const Point& point, int samples, std::uint64_t seed) {
  Rng noise(mix64(seed ^ 0xA5A5) ^ PointHash()(point));
  return recorded.noisy_cost(point, samples, noise);
}

Result<std::vector<ReplayRun>> replay(const RecordedSpace& recorded, const ReplayOptions& options) {
  std::vector<std::unique_ptr<Strategy>> strategies;
  std::vector<std::uint64_t> seeds;
  for (int r = 0; r < options.repeats; ++r) {
    StrategyOptions s;
    s.seed = mix64(options.seed * 1'000'003 + static_cast<std::uint64_t>(r));
    s.prior = options.prior;
    AMK_TRY(strategy, make_strategy(options.strategy, recorded.space(), s));
    strategies.push_back(std::move(strategy));
    seeds.push_back(s.seed);
  }
  std::vector<ReplayRun> runs(strategies.size());
  ThreadPool pool(options.threads);
  pool.for_ranges(static_cast<std::int64_t>(runs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto r = static_cast<std::size_t>(begin); r < static_cast<std::size_t>(end); ++r) {
      runs[r] = run_once(recorded, *strategies[r], seeds[r], options);
      strategies[r].reset();
    }
  });
  return runs;
}

double false_keep_rate(const RecordedSpace& recorded) {
  std::size_t judged = 0, kept = 0;
  for (const auto& samples : recorded.samples()) {
    if (samples.size() < 10) continue;
    std::vector<double> a, b;
    for (std::size_t i = 0; i < samples.size(); ++i) (i % 2 ? b : a).push_back(samples[i]);
    ++judged;
    if (decide(paired_ratio(a, b, judged)) == Comparison::Faster) ++kept;
  }
  return judged == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(kept) / static_cast<double>(judged);
}

}  // namespace amk
