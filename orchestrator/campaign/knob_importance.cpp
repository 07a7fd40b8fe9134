#include "orchestrator/campaign/knob_importance.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/json.h"

namespace amk {
namespace {

constexpr std::size_t kFewest = 6;

void collect(const std::string& path, const Json& json, std::vector<std::pair<std::string, std::string>>& out) {
  if (!json.is_object()) {
    out.emplace_back(path, json.dump());
    return;
  }
  for (const auto& [key, value] : json.items()) collect(path.empty() ? key : path + "." + key, value, out);
}

}  // namespace

double explained_share(double between, double total, double n, double g) {
  constexpr double kNothing = 0.005;
  if (g < 2 || n - g < 1 || !(total > 0)) return 0;
  const double share = (between - (g - 1) * (total - between) / (n - g)) / total;
  return share > kNothing ? std::min(1.0, share) : 0;
}

const char* share_confidence(std::size_t observations, std::size_t choices) {
  if (observations < 15 || observations < 4 * choices) return "low";
  return observations >= 60 && observations >= 10 * choices ? "high" : "medium";
}

void KnobImportance::add(const std::vector<std::pair<std::string, std::string>>& choices, double latency_us) {
  if (latency_us > 0 && std::isfinite(latency_us)) rows_.emplace_back(choices, std::log(latency_us));
}

std::vector<KnobShare> KnobImportance::ranked(std::size_t most) const {
  std::vector<KnobShare> out;
  if (rows_.size() < kFewest) return out;
  struct Group {
    double sum = 0, count = 0;
  };
  std::map<std::string, std::map<std::string, Group>> knobs;
  double sum = 0, squares = 0;
  for (const auto& [choices, y] : rows_) {
    sum += y;
    squares += y * y;
    for (const auto& [knob, choice] : choices) {
      Group& g = knobs[knob][choice];
      g.sum += y;
      g.count += 1;
    }
  }
  const auto n = static_cast<double>(rows_.size());
  const double mean = sum / n, total = squares - sum * mean;
  if (!(total > 1e-12 * std::max(1.0, squares))) return out;
  for (const auto& [knob, groups] : knobs) {
    const auto g = static_cast<double>(groups.size());
    if (g < 2 || n - g < 1) continue;
    double between = 0, covered = 0;
    for (const auto& [choice, group] : groups) between += group.sum * group.sum / group.count, covered += group.count;
    if (covered < n) continue;  // a knob that some configs lack cannot be compared
    between -= n * mean * mean;
    const double explains = explained_share(between, total, n, g);
    if (explains > 0) out.push_back({knob, explains, rows_.size(), groups.size(), share_confidence(rows_.size(), groups.size())});
  }
  std::stable_sort(out.begin(), out.end(), [](const KnobShare& a, const KnobShare& b) { return a.explains > b.explains; });
  if (out.size() > most) out.resize(most);
  return out;
}

std::vector<std::pair<std::string, std::string>> config_leaves(const Json& config) {
  std::vector<std::pair<std::string, std::string>> out;
  collect("", config, out);
  return out;
}

Json to_json(const KnobShare& s) {
  return {{"knob", s.knob}, {"explains", std::round(s.explains * 100) / 100}, {"observations", s.observations}, {"confidence", s.confidence}};
}

}  // namespace amk
