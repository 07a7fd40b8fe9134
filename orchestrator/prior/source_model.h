// One campaign's rows as a model of its space: what it measured, and a forest for what lies between. Pure and deterministic given the generator;
// immutable once learned, so safe to read on many threads.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/random.h"
#include "core/schedule/space.h"
#include "orchestrator/strategy/forest.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {

// Costs are standardised logarithms, bent at the median (trend.h): campaigns of different sizes become comparable. Lower is better; a row that
// failed counts as the median.
class SourceModel {
 public:
  // `space` is referred to by the forest and must outlive the model. Empty where the rows teach nothing: fewer than four correct ones, or all alike.
  static std::optional<SourceModel> learn(const SearchSpace& space, const std::vector<Observation>& rows, Rng& rng);

  double score(const Point& point) const;
  double log_cost(const Point& point) const;  // relative to the source's median
  // The n best rows, best first; ties in the order of points, which is the same on every machine.
  std::vector<Point> best(std::size_t n) const;
  // Of ten single moves from the best row nine are among the rows: it is an optimum of the source, not merely the best that somebody met.
  bool explored() const { return explored_; }

 private:
  bool explored_ = false;
  double bend_ = 0, mean_ = 0, deviation_ = 1;  // of the logarithms that scores stand for
  std::unordered_map<Point, float, PointHash> exact_;
  std::optional<Forest> forest_;
};

}  // namespace amk
