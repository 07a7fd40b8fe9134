
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "orchestrator/campaign/history.h"
#include "orchestrator/plots/charts.h"

namespace amk {
namespace {

std::string microseconds(double us) { return with_digits(us, 4) + " µs"; }

}  // namespace

std::vector<std::pair<std::string, std::string>> report_plots(const Json& r) {
  std::vector<std::pair<std::string, std::string>> out;
  const Json& h = r["history"];
  const std::string what = r["workload"].get<std::string>() + " on " + r["gpu"].get<std::string>();
  const bool predicted = r["best"].is_object() && r["best"].value("latency_kind", Json(nullptr)) == "predicted";

  plots::LineChart chart;
  chart.title = what + ": best so far";
  chart.x_label = "experiments ended";
  chart.y_label = predicted ? "predicted latency, µs" : "latency, µs";
  plots::Series best;
  best.steps = true;
  for (const Json& step : h["course"]) {
    best.x.push_back(step["n"].get<double>());
    best.y.push_back(step["latency_us"].get<double>());
  }
  best.marked = best.x.size();
  best.name = "best of what was kept";
  if (!best.y.empty()) {
    best.name += best.y.size() > 1 ? ": " + microseconds(best.y.front()) + " to " + microseconds(best.y.back()) : ": " + microseconds(best.y.back());
    // The last best holds until now.
    best.x.push_back(h["experiments_read"].get<double>());
    best.y.push_back(best.y.back());
  }
  chart.series.push_back(std::move(best));
  if (h["floor_us"].is_number())
    chart.levels.push_back({"physical floor: " + microseconds(h["floor_us"].get<double>()), h["floor_us"].get<double>()});
  out.emplace_back("best-so-far", plots::line_chart(chart));

  std::vector<plots::Bar> knobs, outcomes, phases;
  for (const Json& k : h["knob_importance"]) {
    const double share = k["explains"].get<double>();
    knobs.push_back({k["knob"].get<std::string>(), share, with_decimals(share * 100, 0) + "%, " + k["confidence"].get<std::string>()});
  }
  for (const auto& [outcome, n] : r["counts"].items())
    if (n.is_number()) outcomes.push_back({outcome, n.get<double>(), ""});
  double all_s = 0;
  for (const auto& [phase, s] : h["time_by_phase_s"].items()) all_s += s.get<double>();
  for (const auto& [phase, s] : h["time_by_phase_s"].items()) {
    phases.push_back({phase, s.get<double>(), with_decimals(s.get<double>(), 1) + " s, " + with_decimals(100 * s.get<double>() / all_s, 0) + "%"});
  }
  out.emplace_back("knobs", plots::bar_chart("Which knobs explain the latency", "share of variance, confidence", knobs));
  out.emplace_back("outcomes", plots::bar_chart("Outcomes", "experiments", outcomes));
  out.emplace_back("phases", plots::bar_chart("Where the time went", "seconds", phases));
  return out;
}

}  // namespace amk
