#include "orchestrator/strategy/niches.h"

#include <cmath>
#include <tuple>

namespace amk {
namespace {

constexpr int kMisses = 3;

double log_best(const Archive& archive, Niche niche) {
  const auto best = best_of(archive, niche, 1);
  return best.empty() ? HUGE_VAL : std::log(*best.front()->cost);
}

}  // namespace

std::vector<const Observation*> best_of(const Archive& archive, Niche niche, std::size_t n) {
  std::vector<const Observation*> out;
  for (const std::uint32_t i : archive.ranked()) {
    if (out.size() == n) break;
    if (niche.holds(archive.observations()[i].point)) out.push_back(&archive.observations()[i]);
  }
  return out;
}

std::optional<Niche> Niches::next(const Archive& archive, double worthwhile) {
  if (archive.best() == nullptr) return std::nullopt;
  const Point& best = archive.best()->point;
  if (now_ && now_->holds(best)) now_.reset();
  if (now_) {
    const double cost = log_best(archive, *now_);
    misses_ = cost < best_ - worthwhile ? 0 : misses_ + 1;
    best_ = std::min(best_, cost);
    if (misses_ < kMisses) return now_;
  }
  now_.reset();
  const SearchSpace& space = archive.space();
  std::tuple<int, std::size_t, std::size_t> least;
  for (std::size_t k = 0; k < space.knobs.size(); ++k) {
    const std::size_t choices = space.knobs[k].choices.size();
    if (choices < 2 || choices > kFewChoices) continue;
    std::vector<std::size_t> seen(choices, 0);
    for (const Observation& o : archive.observations()) ++seen[o.point[k]];
    for (std::uint16_t c = 0; c < choices; ++c) {
      if (best[k] == c) continue;
      const auto visited = visits_.find({k, c});
      const std::tuple order(visited == visits_.end() ? 0 : visited->second, choices, seen[c]);
      if (!now_ || order < least) now_ = Niche{k, c}, least = order;
    }
  }
  if (!now_) return std::nullopt;
  ++visits_[{now_->knob, now_->choice}];
  misses_ = 0;
  best_ = log_best(archive, *now_);
  return now_;
}

}  // namespace amk
