// bench/run replay --spaces DIR|FILE … (options.cpp): for every space and strategy one JSON line a metric; evaluations that a repeat did not reach
// within the limit count as above it.
// bench/run replay --spaces DIR --siblings DRAWS …: every space with every other of the same knobs as its prior, against none (sibling_table.h).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "bench/replay/options.h"
#include "bench/replay/runs/medians.h"
#include "bench/replay/runs/siblings.h"
#include "bench/replay/sibling_table.h"
#include "core/base/json.h"
#include "core/base/stats.h"
#include "orchestrator/plots/charts.h"

using namespace amk;

namespace {

constexpr std::size_t kCheckpoints[] = {25, 50, 100, 200};

void line(const std::string& metric, double value, const std::string& unit) {
  Json out = {{"bench", "replay"}, {"metric", metric}, {"unit", unit}};
  out["value"] = std::isfinite(value) ? Json(value) : Json(nullptr);                            // null: not reached within the limit
  std::cout << out.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;  // a file's name may be any bytes
}

// The 95% interval of a median from order statistics (Conover 1999): ranks n/2 ± 0.98·sqrt(n).
std::pair<double, double> median_interval(const std::vector<double>& v) {
  const auto n = static_cast<double>(v.size());
  const double half = 0.98 * std::sqrt(n) / n;
  return {ordered(v, std::max(0.0, 0.5 - half)), ordered(v, std::min(1.0, 0.5 + half))};
}

void report(const std::string& prefix, const std::vector<ReplayRun>& runs) {
  std::vector<double> to95, to99, ms;
  for (const ReplayRun& run : runs) to95.push_back(run.to95), to99.push_back(run.to99), ms.push_back(run.ms_per_evaluation);
  for (const auto& [name, values] : {std::pair{"95", &to95}, std::pair{"99", &to99}}) {
    const std::string metric = prefix + "evaluations_to_" + name;
    line(metric + "_median", ordered(*values, 0.5), "evaluations");
    line(metric + "_q25", ordered(*values, 0.25), "evaluations");
    line(metric + "_q75", ordered(*values, 0.75), "evaluations");
    const auto [low, high] = median_interval(*values);
    line(metric + "_median_ci95_low", low, "evaluations");
    line(metric + "_median_ci95_high", high, "evaluations");
  }
  for (const std::size_t c : kCheckpoints) {
    std::vector<double> at;
    for (const ReplayRun& run : runs)
      if (!run.fraction.empty()) at.push_back(run.fraction[std::min(c, run.fraction.size()) - 1]);
    line(prefix + "fraction_of_optimum_at_" + std::to_string(c), median(at), "ratio");
  }
  line(prefix + "overhead_per_evaluation", median(ms), "ms");
}

plots::Series curve(const std::string& name, const std::vector<ReplayRun>& runs) {
  plots::Series s;
  s.name = name;
  s.steps = true;
  std::size_t longest = 0;
  for (const ReplayRun& run : runs) longest = std::max(longest, std::min<std::size_t>(run.fraction.size(), kCheckpoints[3]));
  for (std::size_t i = 0; i < longest; ++i) {
    std::vector<double> at;
    for (const ReplayRun& run : runs)
      if (!run.fraction.empty()) at.push_back(run.fraction[std::min(i, run.fraction.size() - 1)]);
    s.x.push_back(static_cast<double>(i + 1));
    s.y.push_back(quantile(at, 0.5));
    s.low.push_back(quantile(at, 0.25));
    s.high.push_back(quantile(at, 0.75));
  }
  return s;
}

int problem(const std::string& said) {
  std::cerr << "replay: " << said << "\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = replay_command(argc, argv);
  if (!parsed) return problem(parsed.error().message);
  const ReplayCommand& options = *parsed;
  std::vector<std::filesystem::path> files;
  std::error_code code;
  if (std::filesystem::is_directory(options.spaces, code)) {
    for (const auto& entry : std::filesystem::directory_iterator(options.spaces, code))
      if (entry.path().extension() == ".tsv") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(options.spaces);
  }
  if (files.empty()) return problem(options.spaces.string() + " holds no .tsv file");
  std::vector<RecordedSpace> spaces;  // all before any is replayed, which takes minutes
  for (const auto& file : files) {
    auto recorded = RecordedSpace::load(file);
    if (!recorded) return problem(recorded.error().message);
    spaces.push_back(std::move(*recorded));
  }
  if (options.sibling_draws > 0) return sibling_table(spaces, options, line) ? 0 : problem("no two of the spaces have the same knobs");
  std::optional<RecordedSpace> sibling;
  if (!options.prior.empty()) {
    auto loaded = RecordedSpace::load(options.prior);
    if (!loaded) return problem(loaded.error().message);
    sibling = std::move(*loaded);
  }
  const std::vector<std::string> strategies = options.replay.strategy == "all" ? strategy_names() : std::vector<std::string>{options.replay.strategy};
  for (const RecordedSpace& recorded : spaces) {
    plots::LineChart chart;
    chart.title = recorded.name() + (sibling ? " with a prior from " + sibling->name() : "") + ": best so far, median and quartiles of " +
                  std::to_string(options.replay.repeats) + " repeats";
    chart.x_label = "evaluations";
    chart.y_label = "fraction of the optimum";
    chart.levels.push_back({"95% of the optimum", 0.95});
    for (const std::string& strategy : strategies) {
      ReplayOptions replay_options = options.replay;
      replay_options.strategy = strategy;
      if (sibling) {
        const std::uint64_t draw = options.prior_draw > 0 ? options.prior_draw : options.replay.seed;
        std::vector<Observation> rows = recorded_rows(*sibling);
        if (options.kind == PriorKind::Lot) rows = rows_by_lot(std::move(rows), options.prior_rows, draw);
        replay_options.prior = prior_from(recorded, *sibling, rows, draw);
        if (!replay_options.prior) std::cerr << "replay: " << sibling->name() << " teaches nothing about " << recorded.name() << "\n";
      }
      const auto runs = replay(recorded, replay_options);
      if (!runs) return problem(runs.error().message);
      report(recorded.name() + "/" + strategy + (sibling ? "+" + sibling->name() : "") + "/", *runs);
      chart.series.push_back(curve(strategy, *runs));
    }
    line(recorded.name() + "/false_keep_rate", false_keep_rate(recorded), "ratio");
    if (!options.plot.empty()) {
      // Several spaces, several files: the space's name goes before the extension.
      std::filesystem::path path = options.plot;
      if (files.size() > 1) path.replace_filename(path.stem().string() + "-" + recorded.name() + path.extension().string());
      std::ofstream out(path, std::ios::binary | std::ios::trunc);
      out << plots::line_chart(chart);
      if (!out.flush()) return problem("cannot write " + path.string());
    }
  }
  return 0;
}
