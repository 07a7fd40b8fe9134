// What a strategy remembers, and how it draws valid points. Shared by every strategy; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/random.h"
#include "core/schedule/space.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {

struct PointHash {
  std::size_t operator()(const Point& point) const;
};

class Archive {
 public:
  explicit Archive(const SearchSpace& space);  // outlives the archive, and does not change

  const SearchSpace& space() const { return space_; }
  const std::vector<std::size_t>& movable() const { return movable_; }  // knobs of more than one choice
  bool valid(const Point& point) const { return space_.in_range(point) && space_.violated(point) == nullptr; }
  bool known(const Point& point) const { return entries_.count(point) != 0; }  // asked or told
  void mark_asked(const Point& point);
  void record(const Observation& observation);  // the last result of a point counts

  const std::vector<Observation>& observations() const { return observations_; }  // one a point, in order of first telling
  // Correct ones, as indices into observations(), ascending by cost; of equals the one told first. Kept in order, so that looking costs nothing.
  const std::vector<std::uint32_t>& ranked() const { return ranked_; }
  const Observation* best() const { return ranked_.empty() ? nullptr : &observations_[ranked_.front()]; }
  std::optional<double> cost(const Point& point) const;  // empty: unknown or failed
  bool told(const Point& point) const;
  std::vector<const Point*> pending() const;  // asked and not told yet, in a fixed order; until the next change
  std::size_t asked_or_told() const { return entries_.size(); }

  // Uniform over valid points, by rejection where the space has not prepared them. Empty after `tries` misses, which means that the valid part is
  // tiny or exhausted; then an exhaustive walk (first_fresh) decides.
  std::optional<Point> random_valid(Rng& rng, int tries = 2000) const;
  std::optional<Point> random_fresh(Rng& rng, int tries = 2000) const;  // also unknown
  std::optional<Point> first_fresh() const;  // in a fixed order, from where it stopped last; walks at most 4 million points a call

  // Valid points that differ in one knob: all other choices for categorical knobs, adjacent (or, with `wide`, all other) choices for ordinal ones.
  std::vector<Point> neighbours(const Point& point, bool wide) const;

 private:
  const SearchSpace& space_;
  std::vector<std::vector<const Constraint*>> rules_of_;  // by knob: the rules that may read it
  std::vector<std::size_t> movable_;
  // Where first_fresh() stands: all before it is invalid or known, and stays so.
  mutable std::uint64_t walked_ = 0;
  mutable Point walk_;
  mutable bool walked_all_ = false;
  std::unordered_map<Point, std::int64_t, PointHash> entries_;  // index into observations_, or -1 while pending
  std::vector<Observation> observations_;
  std::vector<std::uint32_t> ranked_;
  std::size_t pending_ = 0;
};

}  // namespace amk
