// The weighted vote of several campaigns' models, or the cost model's stand-in alone, as a prior. Immutable once made, so safe to read on many
// threads.
#pragma once

#include <utility>
#include <vector>

#include "core/schedule/space.h"
#include "orchestrator/prior/source_model.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {

// Owns the space that its members' forests refer to.
class Vote final : public Prior {
 public:
  explicit Vote(const SearchSpace& s) : space(s) {}
  double score(const Point& point) const override;
  std::optional<double> log_cost(const Point& point) const override;
  std::vector<Point> known_best(std::size_t n) const override;
  // Of the members with at least half of the weight; always of the cost model, which was asked for what is around its best.
  bool explored() const override;

  const SearchSpace space;
  std::vector<std::pair<double, SourceModel>> members;  // weights sum to one
  bool is_model = false;
};

}  // namespace amk
