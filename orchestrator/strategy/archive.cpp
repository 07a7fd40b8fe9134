#include "orchestrator/strategy/archive.h"

#include <algorithm>

#include "core/schedule/valid_points.h"

namespace amk {

std::size_t PointHash::operator()(const Point& point) const {
  std::uint64_t h = 0x51ED270B35AE2C5Aull;
  for (std::uint16_t v : point) h = mix64(h ^ v);
  return static_cast<std::size_t>(h);
}

Archive::Archive(const SearchSpace& space) : space_(space), rules_of_(space.knobs.size()), walk_(space.knobs.size(), 0) {
  for (const Constraint& rule : space.constraints) {
    for (std::size_t k = 0; k < rules_of_.size(); ++k)
      if (!rule.reads || std::find(rule.reads->begin(), rule.reads->end(), k) != rule.reads->end()) rules_of_[k].push_back(&rule);
  }
  for (std::size_t k = 0; k < space.knobs.size(); ++k)
    if (space.knobs[k].choices.size() > 1) movable_.push_back(k);
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
  if (space_.valid) return space_.valid->draw(rng, tries);
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
  constexpr std::int64_t kWalkLimit = 4'000'000;
  if (space_.valid) {
    const std::uint64_t places = space_.valid->places();
    for (std::int64_t step = 0; walked_ < places && step < kWalkLimit; ++step, ++walked_)
      if (auto point = space_.valid->at(walked_); point && !known(*point)) return point;
    return std::nullopt;
  }
  for (std::int64_t step = 0; !walked_all_ && step < kWalkLimit; ++step) {
    if (space_.violated(walk_) == nullptr && !known(walk_)) return walk_;
    std::size_t k = 0;
    while (k < walk_.size() && ++walk_[k] == space_.knobs[k].choices.size()) walk_[k++] = 0;
    walked_all_ = k == walk_.size();  // wrapped
  }
  return std::nullopt;
}

std::vector<Point> Archive::neighbours(const Point& point, bool wide) const {
  // Of a valid point only the rules that read the moved knob have to be asked.
  const bool base = space_.violated(point) == nullptr;
  std::vector<Point> out;
  Point moved = point;
  for (std::size_t k = 0; k < point.size(); ++k) {
    const Knob& knob = space_.knobs[k];
    const auto& rules = rules_of_[k];
    const std::size_t at = point[k];
    for (std::size_t c = 0; c < knob.choices.size(); ++c) {
      if (c == at) continue;
      const bool adjacent = c + 1 == at || at + 1 == c;
      if (knob.kind == KnobKind::Ordinal && !wide && !adjacent) continue;
      moved[k] = static_cast<std::uint16_t>(c);
      if (base ? std::all_of(rules.begin(), rules.end(), [&](const Constraint* rule) { return rule->holds(moved); })
               : space_.violated(moved) == nullptr)
        out.push_back(moved);
    }
    moved[k] = point[k];
  }
  return out;
}

}  // namespace amk
