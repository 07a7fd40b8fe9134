#include "orchestrator/strategy/trend.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace amk {
namespace {

constexpr std::size_t kFavourites = 200;
constexpr int kClimbs = 8;  // hill climbs on the prior's own score, from the best of the sample

}  // namespace

std::shared_ptr<const Trend> Trend::create(std::shared_ptr<const Prior> prior, const Archive& archive, Rng& rng, std::size_t sample) {
  std::map<Point, double> scores;  // ordered: the same on every machine
  const auto add = [&](const Point& point) {
    const auto [it, fresh] = scores.try_emplace(point, 0.0);
    if (fresh) it->second = prior->score(point);
    return it->second;
  };
  for (std::size_t i = 0; i < sample; ++i)
    if (const auto point = archive.random_valid(rng, 200)) add(*point);
  std::vector<double> values;
  for (const auto& [point, score] : scores)
    if (std::isfinite(score)) values.push_back(score);
  if (values.size() < 2) return nullptr;
  auto out = std::make_shared<Trend>();
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  out->bend_ = values[values.size() / 2];
  for (double& v : values) v = bent(v, out->bend_), out->mean_ += v / static_cast<double>(values.size());
  double variance = 0;
  for (const double v : values) variance += (v - out->mean_) * (v - out->mean_) / static_cast<double>(values.size());
  if (!(variance > 1e-18)) return nullptr;
  out->scale_ = std::sqrt(variance);
  out->prior_ = std::move(prior);
  prior = out->prior_;

  for (const Point& point : prior->known_best(kFavourites))
    if (archive.valid(point)) add(point);
  const auto ranked = [&scores] {
    std::vector<std::pair<double, Point>> all;
    for (const auto& [point, score] : scores)
      if (std::isfinite(score)) all.emplace_back(score, point);
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto starts = ranked();
  for (std::size_t i = 0; i < std::min<std::size_t>(kClimbs, starts.size()); ++i) {
    auto [score, at] = starts[i];
    for (bool moved = true; moved;) {
      moved = false;
      for (const Point& next : archive.neighbours(at, true))
        if (const double s = add(next); s < score) score = s, at = next, moved = true;
    }
  }
  for (auto& [score, point] : ranked()) {
    out->favourites_.push_back(std::move(point));
    if (out->favourites_.size() == kFavourites) break;
  }
  return out;
}

double Trend::at(const Point& point) const {
  const double score = prior_->score(point);
  return ((std::isfinite(score) ? bent(score, bend_) : bend_) - mean_) / scale_;
}

}  // namespace amk
