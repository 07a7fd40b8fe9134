#include "orchestrator/prior/source_model.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "core/base/stats.h"
#include "orchestrator/strategy/archive.h"
#include "orchestrator/strategy/trend.h"

namespace amk {
namespace {

constexpr std::size_t kForestRows = 4000;  // the forest sees the best half of so many and an even sample of the rest
constexpr int kTrees = 40;
constexpr std::size_t kFewestCorrect = 4;  // of a source that teaches anything
// Of the single moves from a source's best row so many must be among its rows for that to be an optimum, not the best that somebody met. Searches of
// 60 evaluations have tried 15 to 70% of them, searches of 200 half to 80%, and what such end at has misled for a hundred evaluations.
constexpr double kExplored = 0.9;

bool single_moves_known(const SearchSpace& space, const std::vector<Observation>& rows) {
  const Observation* best = nullptr;
  std::unordered_set<Point, PointHash> known;
  for (const Observation& o : rows) {
    known.insert(o.point);
    if (o.cost && *o.cost > 0 && (best == nullptr || *o.cost < *best->cost)) best = &o;
  }
  const std::vector<Point> moves = Archive(space).neighbours(best->point, true);
  const auto tried = std::count_if(moves.begin(), moves.end(), [&](const Point& p) { return known.count(p) != 0; });
  return static_cast<double>(tried) >= kExplored * static_cast<double>(moves.size());
}

}  // namespace

std::optional<SourceModel> SourceModel::learn(const SearchSpace& space, const std::vector<Observation>& rows, Rng& rng) {
  std::vector<double> logs;
  for (const Observation& o : rows)
    if (o.cost && *o.cost > 0) logs.push_back(std::log(*o.cost));
  if (logs.size() < kFewestCorrect) return std::nullopt;
  SourceModel out;
  const double bend = median(logs);
  double mean = 0, variance = 0;
  for (double& v : logs) v = bent(v, bend), mean += v / static_cast<double>(logs.size());
  for (const double v : logs) variance += (v - mean) * (v - mean) / static_cast<double>(logs.size());
  if (!(variance > 1e-16)) return std::nullopt;
  out.bend_ = bend;
  out.mean_ = mean;
  out.deviation_ = std::sqrt(variance);
  const auto value = [&](const Observation& o) { return ((o.cost && *o.cost > 0 ? bent(std::log(*o.cost), bend) : bend) - mean) / out.deviation_; };
  std::vector<std::pair<double, const Point*>> all;
  for (const Observation& o : rows) {
    const double y = value(o);
    all.emplace_back(y, &o.point);
    out.exact_.insert_or_assign(o.point, static_cast<float>(y));
  }
  if (all.size() > kForestRows) {
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    constexpr std::size_t kHalf = kForestRows / 2;
    const double stride = static_cast<double>(all.size() - kHalf) / static_cast<double>(kHalf);
    for (std::size_t i = 0; i < kHalf; ++i) all[kHalf + i] = all[kHalf + static_cast<std::size_t>(stride * static_cast<double>(i))];
    all.resize(kForestRows);
  }
  std::vector<const Point*> points;
  std::vector<double> y;
  for (const auto& [v, point] : all) points.push_back(point), y.push_back(v);
  out.forest_.emplace(space, kTrees);
  out.forest_->fit(points, y, rng);
  out.explored_ = single_moves_known(space, rows);
  return out;
}

double SourceModel::score(const Point& point) const {
  const auto at = exact_.find(point);
  return at != exact_.end() ? static_cast<double>(at->second) : forest_->predict(point).mean;
}

double SourceModel::log_cost(const Point& point) const { return unbent(score(point) * deviation_ + mean_, bend_) - bend_; }

std::vector<Point> SourceModel::best(std::size_t n) const {
  std::vector<std::pair<float, const Point*>> all;
  for (const auto& [point, y] : exact_) all.emplace_back(y, &point);
  const auto better = [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : *a.second < *b.second; };
  n = std::min(n, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n), all.end(), better);
  std::vector<Point> out;
  for (std::size_t i = 0; i < n; ++i) out.push_back(*all[i].second);
  return out;
}

}  // namespace amk
