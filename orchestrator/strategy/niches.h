// Parts of a space to be searched by themselves: a niche is all points with one choice of a knob of few choices. Where two knobs must move at once,
// what is known of the other choice was seen beside settings that do not suit it, and whatever ranks points by the best of all passes it over; held
// against its own best, it shows in a few evaluations what it can do (the incumbent of a niche, as in quality-diversity search: Mouret and Clune
// 2015). Deterministic. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "orchestrator/strategy/archive.h"

namespace amk {

constexpr std::size_t kFewChoices = 4;  // of a knob that makes niches

struct Niche {
  std::size_t knob = 0;
  std::uint16_t choice = 0;
  bool holds(const Point& point) const { return point[knob] == choice; }
};

// Correct points of a niche, ascending by cost, at most n.
std::vector<const Observation*> best_of(const Archive& archive, Niche niche, std::size_t n);

class Niches {
 public:
  // The one to look into now; asked once for each suggestion that goes there. A niche keeps its turn until kMisses suggestions have not made it
  // better by `worthwhile` (of log cost), or it holds the best of all; then comes the one visited least, of those one of a knob of the fewest
  // choices, then of the fewest evaluations. None: no knob has few choices.
  std::optional<Niche> next(const Archive& archive, double worthwhile);

 private:
  std::optional<Niche> now_;
  double best_ = 0;  // log cost, when it was looked at last
  int misses_ = 0;
  std::map<std::pair<std::size_t, std::uint16_t>, int> visits_;
};

}  // namespace amk
