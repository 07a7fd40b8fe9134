#include "orchestrator/strategy/archive.h"

#include <algorithm>

namespace amk {

std::size_t PointHash::operator()(const Point& point) const {
  std::uint64_t h = 0x51ED270B35AE2C5Aull;
  for (std::uint16_t v : point) h = mix64(h ^ v);
  return static_cast<std::size_t>(h);
}

void Archive::mark_asked(const Point& point) {
  if (entries_.try_emplace(point, -1).second) ++pending_;
}

void Archive::record(const Observation& observation) {
  auto [it, inserted] = entries_.try_emplace(observation.point, -1);
  const auto before = [this](std::uint32_t a, std::uint32_t b) {
    const double x = *observations_[a].cost, y = *observations_[b].cost;
    return x != y ? x < y : a < b;
  };
  if (it->second < 0) {
    if (!inserted) --pending_;
    it->second = static_cast<std::int64_t>(observations_.size());
    observations_.push_back(observation);
  } else {
    Observation& known = observations_[static_cast<std::size_t>(it->second)];
    if (known.cost) ranked_.erase(std::lower_bound(ranked_.begin(), ranked_.end(), static_cast<std::uint32_t>(it->second), before));
    known = observation;
  }
  const auto at = static_cast<std::uint32_t>(it->second);
  if (observation.cost) ranked_.insert(std::lower_bound(ranked_.begin(), ranked_.end(), at, before), at);
}

std::optional<double> Archive::cost(const Point& point) const {
  const auto it = entries_.find(point);
  if (it == entries_.end() || it->second < 0) return std::nullopt;
  return observations_[static_cast<std::size_t>(it->second)].cost;
}

bool Archive::told(const Point& point) const {
  const auto it = entries_.find(point);
  return it != entries_.end() && it->second >= 0;
}

std::vector<const Point*> Archive::pending() const {
  std::vector<const Point*> out;
  if (pending_ == 0) return out;
  for (const auto& [point, at] : entries_)
    if (at < 0) out.push_back(&point);
  std::sort(out.begin(), out.end(), [](const Point* a, const Point* b) { return *a < *b; });  // the map's order is the library's
  return out;
}

std::optional<Point> Archive::random_valid(Rng& rng, int tries) const {
  if (space_.listed) return space_.listed->empty() ? std::nullopt : std::optional((*space_.listed)[rng.below(space_.listed->size())]);
  Point point(space_.knobs.size());
  for (int t = 0; t < tries; ++t) {
    for (std::size_t k = 0; k < point.size(); ++k) point[k] = static_cast<std::uint16_t>(rng.below(space_.knobs[k].choices.size()));
    if (space_.violated(point) == nullptr) return point;
  }
  return std::nullopt;
}

std::optional<Point> Archive::random_fresh(Rng& rng, int tries) const {
  for (int t = 0; t < tries; ++t) {
    auto point = random_valid(rng, tries);
    if (!point) return std::nullopt;
    if (!known(*point)) return point;
  }
  return std::nullopt;
}

std::optional<Point> Archive::first_fresh() const {
  if (space_.listed) {
    const auto fresh = std::find_if(space_.listed->begin(), space_.listed->end(), [this](const Point& p) { return !known(p); });
    return fresh == space_.listed->end() ? std::nullopt : std::optional(*fresh);
  }
  constexpr std::int64_t kWalkLimit = 4'000'000;
  Point point(space_.knobs.size(), 0);
  for (std::int64_t step = 0; step < kWalkLimit; ++step) {
    if (space_.violated(point) == nullptr && !known(point)) return point;
    std::size_t k = 0;
    while (k < point.size() && ++point[k] == space_.knobs[k].choices.size()) point[k++] = 0;
    if (k == point.size()) return std::nullopt;  // wrapped: every point was seen
  }
  return std::nullopt;
}

std::vector<Point> Archive::neighbours(const Point& point, bool wide) const {
  std::vector<Point> out;
  for (std::size_t k = 0; k < point.size(); ++k) {
    const Knob& knob = space_.knobs[k];
    for (std::size_t c = 0; c < knob.choices.size(); ++c) {
      const std::size_t at = point[k];
      if (c == at) continue;
      const bool adjacent = c + 1 == at || at + 1 == c;
      if (knob.kind == KnobKind::Ordinal && !wide && !adjacent) continue;
      Point q = point;
      q[k] = static_cast<std::uint16_t>(c);
      if (space_.violated(q) == nullptr) out.push_back(std::move(q));
    }
  }
  return out;
}

}  // namespace amk
