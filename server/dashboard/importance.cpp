#include "server/dashboard/importance.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/parse_json.h"
#include "orchestrator/campaign/knob_importance.h"

namespace amk::dashboard {
namespace {

constexpr std::int64_t kFewest = 6;
constexpr std::size_t kMostKnobs = 128, kMostChoices = 256;
constexpr std::size_t kLargestGroup = 32;  // members of an object whose members are knobs; a larger one (pinned tiles) is one choice

double rounded(double v) { return std::round(v * 100) / 100; }

}  // namespace

void Importance::add(const Json& config, double latency_us) {
  if (!(latency_us > 0) || !std::isfinite(latency_us)) return;
  if (count_ == 0) shift_ = std::log(latency_us);
  const double y = std::log(latency_us) - shift_;
  ++count_;
  sum_ += y;
  squares_ += y * y;
  add_leaves("", config, y);
}

void Importance::add_leaves(const std::string& path, const Json& value, double y) {
  const bool group = value.is_object() && !value.empty() && (path.empty() || value.size() <= kLargestGroup);
  if (!group) return add_leaf(path, canonical_dump(value), y);
  for (const auto& [key, member] : value.items()) add_leaves(path.empty() ? key : path + "." + key, member, y);
}

void Importance::add_leaf(const std::string& path, std::string value, double y) {
  auto knob = knobs_.find(path);
  if (knob == knobs_.end()) {
    if (knobs_.size() >= kMostKnobs) return;
    knob = knobs_.try_emplace(path).first;
  }
  if (knob->second.size() >= kMostChoices && !knob->second.contains(value)) return;  // then they count with those that lack the knob
  Group& group = knob->second[std::move(value)];
  group.sum += y;
  ++group.count;
}

Json Importance::ranked(std::size_t knobs, std::size_t choices) const {
  Json out = Json::array();
  if (count_ < kFewest) return out;
  const auto n = static_cast<double>(count_);
  const double total = squares_ - sum_ * sum_ / n;
  if (!(total > 1e-12)) return out;
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [name, groups] : knobs_) {
    double between = -sum_ * sum_ / n;
    Group absent{sum_, count_};
    for (const auto& [value, group] : groups) {
      between += group.sum * group.sum / static_cast<double>(group.count);
      absent.sum -= group.sum;
      absent.count -= group.count;
    }
    if (absent.count > 0) between += absent.sum * absent.sum / static_cast<double>(absent.count);
    const double share = explained_share(between, total, n, static_cast<double>(groups.size() + (absent.count > 0 ? 1 : 0)));
    if (share > 0) order.emplace_back(share, &name);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; i < std::min(order.size(), knobs); ++i) {
    std::vector<std::pair<double, const std::pair<const std::string, Group>*>> means;
    for (const auto& entry : knobs_.at(*order[i].second)) means.emplace_back(entry.second.sum / static_cast<double>(entry.second.count), &entry);
    std::sort(means.begin(), means.end());
    Json list = Json::array();
    for (std::size_t k = 0; k < std::min(means.size(), choices); ++k)
      list.push_back(
          {{"value", means[k].second->first}, {"latency_us", std::exp(means[k].first + shift_)}, {"observations", means[k].second->second.count}});
    out.push_back({{"knob", *order[i].second},
                   {"explains", rounded(order[i].first)},
                   {"observations", count_},
                   {"confidence", share_confidence(static_cast<std::size_t>(count_), knobs_.at(*order[i].second).size())},
                   {"choices", std::move(list)}});
  }
  return out;
}

}  // namespace amk::dashboard
