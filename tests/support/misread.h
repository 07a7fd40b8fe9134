// Whether rules say truly which knobs they read: neighbourhoods and draws rely on it.
#pragma once

#include <algorithm>
#include <string>

#include "core/base/random.h"
#include "core/schedule/space.h"

namespace amk {

inline Point any_point(const SearchSpace& space, Rng& rng) {
  Point point;
  for (const Knob& knob : space.knobs) point.push_back(static_cast<std::uint16_t>(rng.below(knob.choices.size())));
  return point;
}

// The first rule that was seen to answer otherwise when a knob moved that it says it does not read, and that knob; "" when none was. Valid points and
// their surroundings are looked at as well as any: far from them most rules are broken whatever moves.
inline std::string misread(const SearchSpace& space, int points) {
  Rng rng(points);
  Point near = space.default_point();
  for (int i = 0; i < points; ++i) {
    Point point = any_point(space, rng);
    if (i % 2 == 0) {
      point = near;
      for (int moves = 0; moves < 3; ++moves) {
        const std::size_t k = rng.below(point.size());
        point[k] = static_cast<std::uint16_t>(rng.below(space.knobs[k].choices.size()));
      }
      if (space.violated(point) == nullptr) near = point;
    }
    for (const Constraint& rule : space.constraints) {
      if (!rule.reads) continue;
      const bool before = rule.holds(point);
      for (std::size_t k = 0; k < point.size(); ++k) {
        if (std::find(rule.reads->begin(), rule.reads->end(), k) != rule.reads->end()) continue;
        Point moved = point;
        moved[k] = static_cast<std::uint16_t>(rng.below(space.knobs[k].choices.size()));
        if (rule.holds(moved) != before) return rule.name + " reads " + space.knobs[k].name;
      }
    }
  }
  return "";
}

}  // namespace amk
