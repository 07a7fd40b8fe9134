#include "bench/replay/replay.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/json.h"
#include "core/base/parallel.h"
#include "core/base/stats.h"
#include "orchestrator/prior/corpus_prior.h"

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
    const auto seen = recorded.noisy_cost(points[0], options.samples, noise);
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

std::shared_ptr<const Prior> sibling_prior(const RecordedSpace& target, const RecordedSpace& sibling, std::size_t rows, std::uint64_t seed) {
  // Knobs by name, choices by value; a row with a value that the target lacks has no point there.
  const SearchSpace &to = target.space(), &from = sibling.space();
  std::vector<std::vector<int>> choice(to.knobs.size());
  std::vector<std::size_t> at(to.knobs.size());
  for (std::size_t k = 0; k < to.knobs.size(); ++k) {
    at[k] = from.index_of(to.knobs[k].name);
    if (at[k] == from.knobs.size()) continue;  // a knob that the sibling lacks stands at its first choice
    for (const Json& value : from.knobs[at[k]].choices) {
      const auto found = std::find(to.knobs[k].choices.begin(), to.knobs[k].choices.end(), value);
      choice[k].push_back(found == to.knobs[k].choices.end() ? -1 : static_cast<int>(found - to.knobs[k].choices.begin()));
    }
  }
  PriorSource source;
  source.name = sibling.name();
  std::vector<Point> points = sibling.points();
  Rng rng(seed);
  if (rows > 0 && rows < points.size()) {
    for (std::size_t i = 0; i < rows; ++i) std::swap(points[i], points[i + rng.below(points.size() - i)]);
    points.resize(rows);
  }
  for (const Point& p : points) {
    Point q(to.knobs.size(), 0);
    bool told = true;
    for (std::size_t k = 0; k < q.size(); ++k) {
      if (at[k] == from.knobs.size()) continue;
      const int c = choice[k][p[at[k]]];
      told = told && c >= 0;
      q[k] = static_cast<std::uint16_t>(std::max(c, 0));
    }
    if (told && to.violated(q) == nullptr)
      source.rows.push_back({q, sibling.true_cost(p)});
    else
      ++source.untold;
  }
  return learn_prior(to, {}, {std::move(source)}, {}, seed).prior;
}

bool siblings(const RecordedSpace& a, const RecordedSpace& b) {
  const auto names = [](const RecordedSpace& s) {
    std::vector<std::string> out;
    for (const Knob& knob : s.space().knobs) out.push_back(knob.name);
    std::sort(out.begin(), out.end());
    return out;
  };
  return names(a) == names(b);
}

}  // namespace amk
