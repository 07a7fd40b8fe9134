#include "bench/replay/sibling_table.h"

#include <algorithm>
#include <cmath>

#include "bench/replay/runs/medians.h"
#include "bench/replay/runs/siblings.h"

namespace amk {
namespace {

// A lesson that a sibling teaches.
struct Lesson {
  std::string name;  // empty: all that was recorded
  std::vector<Observation> rows;
  std::uint64_t draw = 1;
};

std::vector<Lesson> lessons(const RecordedSpace& sibling, const ReplayCommand& command) {
  std::vector<Lesson> out;
  const std::vector<Observation> rows = recorded_rows(sibling);
  if (command.kind == PriorKind::Whole) return {{"", rows, 1}};
  for (std::uint64_t draw = 1; draw <= command.sibling_draws; ++draw) {
    const std::string name = "draw" + std::to_string(draw);
    if (command.kind == PriorKind::Lot) out.push_back({name, rows_by_lot(rows, command.prior_rows, draw), draw});
    if (command.kind == PriorKind::Search) out.push_back({name, searched_rows(sibling, command.prior_rows, draw), draw});
    if (command.kind != PriorKind::False) continue;
    for (const Lie lie : kLies) {
      const bool by_lot = lie == Lie::Shuffled || lie == Lie::Permuted;
      if (by_lot || draw == 1)
        out.push_back({std::string(to_string(lie)) + (by_lot ? std::to_string(draw) : ""), told_falsely(sibling, rows, lie, draw), draw});
    }
  }
  return out;
}

}  // namespace

bool sibling_table(const std::vector<RecordedSpace>& spaces, const ReplayCommand& command,
                   const std::function<void(const std::string& metric, double value, const std::string& unit)>& line) {
  constexpr double kBound = 1.2;  // that a bad prior may cost
  ReplayOptions options = command.replay;
  options.paired = true;
  options.at_least = 1;
  options.goal = 0.95;
  const auto limit = static_cast<double>(options.limit);
  const auto evaluations = [&](const RecordedSpace& target) {
    std::vector<double> to95;
    const auto runs = replay(target, options);  // of the portfolio, which exists
    for (const ReplayRun& run : *runs) to95.push_back(run.to95);
    return to95;
  };
  double worst = 0, logs = 0;
  std::size_t count = 0, above = 0, surely = 0;
  for (const RecordedSpace& target : spaces) {
    std::vector<double> cold;
    for (const RecordedSpace& sibling : spaces) {
      if (&sibling == &target || !siblings(target, sibling)) continue;
      if (cold.empty()) {
        options.prior = nullptr;
        cold = evaluations(target);
        line(target.name() + "/cold/evaluations_to_95_median", ordered(cold, 0.5), "evaluations");
      }
      for (const Lesson& lesson : lessons(sibling, command)) {
        options.prior = prior_from(target, sibling, lesson.rows, lesson.draw);
        const std::vector<double> with = evaluations(target);
        const MedianRatio r = median_ratio(with, cold, limit);
        const std::string name = target.name() + "+" + sibling.name() + (lesson.name.empty() ? "" : "/" + lesson.name) + "/";
        line(name + "evaluations_to_95_median", ordered(with, 0.5), "evaluations");
        line(name + "ratio_to_cold", r.ratio, "ratio");
        line(name + "ratio_to_cold_ci95_low", r.low, "ratio");
        line(name + "ratio_to_cold_ci95_high", r.high, "ratio");
        worst = std::max(worst, r.ratio);
        above += r.ratio > kBound;
        surely += r.low > kBound;
        logs += std::log(r.ratio);
        ++count;
      }
    }
  }
  if (count == 0) return false;
  const std::string of = "of " + std::to_string(count);
  line("siblings/worst_ratio_to_cold", worst, "ratio");
  line("siblings/mean_ratio_to_cold", std::exp(logs / static_cast<double>(count)), "ratio");  // geometric
  line("siblings/above_1.2", static_cast<double>(above), of);
  line("siblings/surely_above_1.2", static_cast<double>(surely), of);  // the whole interval is
  return true;
}

}  // namespace amk
