// A prior that is tried, not followed. What a prior likes best may be no optimum even where it was learned: of few rows, or of a search that ended
// early, it is the best that was met. Such a favourite can look good and lead nowhere: a search that sees it stays around it for a hundred
// evaluations (docs/search.md). So the prior's favourites are evaluated, kTried of them, and then a search of its own begins, which has not seen
// them: whatever the prior, that search is kTried evaluations late and otherwise what it would have been, until it stands still while a favourite is
// better. Then it is told. Deterministic. Not thread-safe.
#pragma once

#include <unordered_set>

#include "orchestrator/strategy/composed.h"

namespace amk {

class Trial final : public Strategy {
 public:
  static constexpr std::size_t kTried = 4;

  // The search that follows has options.otherwise as its prior.
  Trial(const SearchSpace& space, const StrategyOptions& options);
  std::string_view name() const override { return search_.name(); }
  std::vector<Point> ask(std::size_t n) override;
  void tell(const Observation& observation) override;

 private:
  std::optional<Point> next();
  void tell_search(const Observation& observation);

  SearchSpace space_;
  Archive archive_;  // of everything
  std::vector<Point> start_;
  std::shared_ptr<const Trend> trend_;
  std::size_t tried_ = 0;
  std::unordered_set<Point, PointHash> kept_back_;  // favourites that the search has not asked for
  Portfolio search_;
  double best_ = 0;   // that the search knows; 0: none
  int standing_ = 0;  // its evaluations since that last improved
};

}  // namespace amk
