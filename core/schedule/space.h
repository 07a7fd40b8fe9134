// A typed search space, the same for every kernel family: a flat list of knobs with finitely many choices.
// Strategies see only this; families translate a Point to their config and back. Value types, thread-safe when const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace amk {

enum class KnobKind {
  Ordinal,      // choices are numbers in ascending order: neighbours in the list are neighbours in effect
  Categorical,  // choices have no order
  Boolean,      // choices are false, true
};
std::string_view to_string(KnobKind kind);

struct Knob {
  std::string name;  // dotted path in the config, e.g. "tiling.gemv.N_tile"; "fusion_grouping[norm+qkv]" for one atom of a group list
  KnobKind kind = KnobKind::Categorical;
  std::vector<Json> choices;  // at least one, no duplicates
  std::size_t default_index = 0;
  std::string meaning;  // one sentence for the agent
  std::string unit;     // "bytes", "rows", "" …
};

// One choice index per knob, in the order of SearchSpace::knobs.
using Point = std::vector<std::uint16_t>;

// A rule between knobs that can be decided without lowering; `name` and `reason` appear in rejections.
struct Constraint {
  std::string name;
  std::string reason;
  std::function<bool(const Point&)> holds;  // pure, thread-safe
  // The knobs that it looks at, by their places; whatever the others are, its answer is the same. None: it may look at all.
  std::optional<std::vector<std::uint16_t>> reads = std::nullopt;
};

class ValidPoints;

struct SearchSpace {
  std::vector<Knob> knobs;
  std::vector<Constraint> constraints;
  // The points that the constraints allow, where they are too few among the combinations to be met by lot (valid_points.h). Else null. Whoever
  // changes knobs or constraints makes it anew.
  std::shared_ptr<const ValidPoints> valid;

  Point default_point() const;
  bool in_range(const Point& point) const;
  const Constraint* violated(const Point& point) const;                                    // the first violated constraint; nullptr when none
  double size() const;                                                                     // product of choice counts (may exceed 2^64)
  std::uint64_t hash(const Point& point) const;                                            // equal points, equal hashes, on every machine
  std::size_t index_of(std::string_view knob) const;                                       // knobs.size() when absent
  std::vector<std::uint16_t> places_of(const std::vector<std::string_view>& names) const;  // ascending; what is no knob here is left out
};

Json to_json(const SearchSpace& space);  // what `amk_propose` shows as search_space

}  // namespace amk
