// The points that a space's rules allow, prepared for drawing where few of all combinations are allowed. Knobs that rules tie together are kept as
// the list of their allowed combinations; such lists, and the knobs that no rule reads, are independent of each other, so a draw from each is a draw
// from all points alike. Rules that do not say what they read, tie too many combinations together, or tie many and refuse few, are left to trial. The
// lists are made at the first use (tens of milliseconds for a hundred thousand combinations). Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/random.h"
#include "core/schedule/space.h"

namespace amk {

class ValidPoints {
 public:
  // Of this space's knobs and rules as they are now. Only the number of choices counts of a knob.
  static std::shared_ptr<const ValidPoints> of(const SearchSpace& space);
  // Where somebody knows them all; each once.
  static std::shared_ptr<const ValidPoints> listed(const SearchSpace& space, const std::vector<Point>& points);

  // Uniform over the valid points. Empty when there is none, or when `tries` draws in a row broke rules that are left to trial.
  std::optional<Point> draw(Rng& rng, int tries) const;

  // Each valid point has a place from 0 to places() - 1; a place without one holds what a rule left to trial refuses. At most 2^63 places are
  // counted.
  std::uint64_t places() const;
  std::optional<Point> at(std::uint64_t place) const;

 private:
  // Knobs and the allowed combinations of their choices, each a number in mixed radix, the first knob's digit lowest. A knob that no rule reads is a
  // group by itself without a list: every choice is allowed.
  struct Group {
    std::vector<std::uint16_t> knobs;
    std::vector<std::uint64_t> codes;
    std::uint64_t rows = 0;
    bool listed = false;
  };

  ValidPoints() = default;
  const std::vector<Group>& groups() const;
  void build() const;
  void join(const std::vector<std::size_t>& members, const std::vector<const Constraint*>& rules) const;
  void set(const Group& group, std::uint64_t row, Point& point) const;
  bool allowed(const Point& point) const;

  std::vector<std::uint32_t> choices_;  // of each knob
  std::vector<Constraint> rules_;
  Point default_;
  mutable std::once_flag built_;
  mutable std::vector<Group> groups_;
  mutable std::vector<const Constraint*> trial_;  // rules that are not in the lists
};

}  // namespace amk
