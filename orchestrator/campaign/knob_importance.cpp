#include "orchestrator/campaign/knob_importance.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "orchestrator/campaign/config_leaves.h"

namespace amk {
namespace {

constexpr std::int64_t kFewest = 6;

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

std::optional<double> KnobImportance::open_row(double latency_us) {
  if (!(latency_us > 0) || !std::isfinite(latency_us)) return std::nullopt;
  if (rows_ == 0) shift_ = std::log(latency_us);
  const double y = std::log(latency_us) - shift_;
  sum_ += y;
  squares_ += y * y;
  ++rows_;
  return y;
}

void KnobImportance::count(std::size_t hint, std::string_view name, std::string_view choice, double y) {
  std::size_t k = hint;
  if (k >= knobs_.size() || knobs_[k].name != name) {
    if (const auto known = index_.find(name); known != index_.end()) {
      k = known->second;
    } else {
      if (rows_ > 1 || knobs_.size() >= kMostKnobs) return;  // some experiment lacks it, or nobody will read that far
      k = knobs_.size();
      index_.emplace(name, k);
      knobs_.push_back({std::string(name), 0, {}});
    }
  }
  Knob& knob = knobs_[k];
  if (knob.covered != rows_ - 1) {  // an earlier experiment lacked it
    knob.choices.clear();
    return;
  }
  auto group = knob.choices.find(choice);
  if (group == knob.choices.end()) {
    if (knob.choices.size() >= kMostChoices) return;
    group = knob.choices.emplace(choice, Group{}).first;
  }
  group->second.sum += y;
  ++group->second.count;
  ++knob.covered;
}

void KnobImportance::add(const std::vector<std::pair<std::string, std::string>>& choices, double latency_us) {
  const auto y = open_row(latency_us);
  if (!y) return;
  for (std::size_t i = 0; i < choices.size(); ++i) count(i, choices[i].first, choices[i].second, *y);
}

Status KnobImportance::add_config(std::string_view canonical, double latency_us) {
  // Scanned to the end before anything is counted.
  std::string paths;
  std::vector<std::pair<std::size_t, std::string_view>> leaves;  // where the path ends in `paths`, the choice
  const bool scanned = scan_leaves(canonical, [&](std::string_view path, std::string_view text) {
    paths += path;
    leaves.emplace_back(paths.size(), text);
  });
  if (!scanned) {
    AMK_TRY(config, parse_json(canonical, "stored config"));
    add(config_leaves(config), latency_us);
    return {};
  }
  const auto y = open_row(latency_us);
  std::size_t begin = 0;
  for (std::size_t i = 0; y && i < leaves.size(); ++i) {
    count(i, std::string_view(paths).substr(begin, leaves[i].first - begin), leaves[i].second, *y);
    begin = leaves[i].first;
  }
  return {};
}

std::vector<KnobShare> KnobImportance::ranked(std::size_t most) const {
  std::vector<KnobShare> out;
  if (rows_ < kFewest) return out;
  const auto n = static_cast<double>(rows_);
  const double total = squares_ - sum_ * sum_ / n;
  if (!(total > 1e-12 * std::max(1.0, squares_))) return out;
  for (const Knob& knob : knobs_) {
    const auto g = static_cast<double>(knob.choices.size());
    if (knob.covered < rows_ || g < 2 || n - g < 1) continue;
    double between = -sum_ * sum_ / n;
    for (const auto& [choice, group] : knob.choices) between += group.sum * group.sum / static_cast<double>(group.count);
    const double explains = explained_share(between, total, n, g);
    const auto rows = static_cast<std::size_t>(rows_);
    if (explains > 0) out.push_back({knob.name, explains, rows, knob.choices.size(), share_confidence(rows, knob.choices.size())});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const KnobShare& a, const KnobShare& b) { return a.explains != b.explains ? a.explains > b.explains : a.knob < b.knob; });
  if (out.size() > most) out.resize(most);
  return out;
}

Json to_json(const KnobShare& s) {
  return {{"knob", s.knob}, {"explains", std::round(s.explains * 100) / 100}, {"observations", s.observations}, {"confidence", s.confidence}};
}

}  // namespace amk
