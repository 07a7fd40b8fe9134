#include "orchestrator/strategy/moves.h"

#include <algorithm>
#include <cstdlib>

#include "orchestrator/strategy/round_numbers.h"

namespace amk {

void shuffle(std::vector<Point>& points, Rng& rng) {
  for (std::size_t i = points.size(); i > 1; --i) std::swap(points[i - 1], points[rng.below(i)]);
}

std::optional<Point> fresh_point(const Archive& archive, Rng& rng) {
  auto point = archive.random_fresh(rng);
  return point ? point : archive.first_fresh();
}

double knob_distance(const SearchSpace& space, std::size_t knob, std::uint16_t a, std::uint16_t b) {
  if (a == b) return 0;
  const std::size_t n = space.knobs[knob].choices.size();
  return space.knobs[knob].kind == KnobKind::Ordinal && n > 2 ? 0.5 + 0.5 * std::abs(int{a} - int{b}) / static_cast<double>(n - 1) : 1.0;
}

double distance(const SearchSpace& space, const Point& a, const Point& b) {
  double d = 0;
  for (std::size_t k = 0; k < a.size(); ++k) d += knob_distance(space, k, a[k], b[k]);
  return d;
}

std::optional<Point> spread_point(const Archive& archive, Rng& rng, const std::function<double(const Point&)>& score, bool rounded) {
  constexpr std::size_t kCandidates = 30, kLeft = 10;
  constexpr double kRounded = 0.5;  // of the choices that are no powers of two, so many go to the nearest one: a start that is mostly of these
  std::vector<std::size_t> mixed;
  for (std::size_t k = 0; rounded && k < archive.space().knobs.size(); ++k)
    if (!powers_of_two(archive.space().knobs[k]).empty()) mixed.push_back(k);
  std::vector<std::pair<double, Point>> candidates;
  while (candidates.size() < kCandidates) {
    auto point = fresh_point(archive, rng);
    if (!point) break;
    Point moved = *point;
    for (const std::size_t k : mixed)
      if (rng.uniform() < kRounded) moved[k] = nearest_power_of_two(archive.space().knobs[k], moved[k]);
    if (archive.valid(moved) && !archive.known(moved)) *point = std::move(moved);
    const double s = score ? score(*point) : 0;
    candidates.emplace_back(s, std::move(*point));
  }
  if (score && candidates.size() > kLeft) {
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    candidates.resize(kLeft);
  }
  std::optional<Point> chosen;
  double farthest = -1;
  const std::vector<const Point*> pending = archive.pending();
  for (auto& [s, point] : candidates) {
    double nearest = 1e300;
    for (const Observation& o : archive.observations()) nearest = std::min(nearest, distance(archive.space(), point, o.point));
    for (const Point* p : pending) nearest = std::min(nearest, distance(archive.space(), point, *p));
    if (nearest > farthest) farthest = nearest, chosen = std::move(point);
  }
  return chosen;
}

void mutate_knob(const SearchSpace& space, Point& point, std::size_t knob, Rng& rng) {
  const std::size_t n = space.knobs[knob].choices.size();
  if (n < 2) return;
  if (space.knobs[knob].kind == KnobKind::Ordinal && n > 2 && rng.below(2) == 0) {
    const bool up = point[knob] == 0 || (point[knob] + 1u < n && rng.below(2) == 1);
    point[knob] = static_cast<std::uint16_t>(up ? point[knob] + 1 : point[knob] - 1);
    return;
  }
  const auto other = static_cast<std::uint16_t>(rng.below(n - 1));
  point[knob] = static_cast<std::uint16_t>(other < point[knob] ? other : other + 1);
}

std::optional<Point> perturbed(const Archive& archive, const Point& from, int knobs, Rng& rng, int& tries) {
  const std::vector<std::size_t>& movable = archive.movable();
  Point point;
  while (!movable.empty() && tries-- > 0) {
    point = from;
    for (int i = 0; i < knobs; ++i) mutate_knob(archive.space(), point, movable[rng.below(movable.size())], rng);
    if (archive.valid(point) && !archive.known(point)) return point;
  }
  return std::nullopt;
}

std::optional<Point> perturbed(const Archive& archive, const Point& from, int knobs, Rng& rng) {
  int tries = 300;
  return perturbed(archive, from, knobs, rng, tries);
}

std::vector<const Observation*> best_observations(const Archive& archive, std::size_t n) {
  std::vector<const Observation*> out;
  for (std::size_t i = 0; i < std::min(n, archive.ranked().size()); ++i) out.push_back(&archive.observations()[archive.ranked()[i]]);
  return out;
}

}  // namespace amk
