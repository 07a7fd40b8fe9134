// A prior on trial. What a prior likes best may be no optimum even where it was learned, or nothing at all here, and a search that has seen
// its favourites stays around them for a hundred evaluations (docs/search.md). So behind the prior stands a search of its own that has not seen them.
// - A prior that nobody explored (of few rows, or of a search that ended early: the best that was met, no more) is tried: kTried of its favourites
//   are evaluated, then the search of its own begins.
// - One that was explored is followed, unless its first two favourites are not both better than every point that was spread over the space (those of
//   a sibling are in nine of ten runs, those of a useless prior in one of three): then the search of its own begins, told all but the favourites.
// Whatever the prior, that search is a few evaluations late and otherwise what it would have been, until it stands still while a favourite is
// better. Then it is told. Deterministic. Not thread-safe.
#pragma once

#include <memory>
#include <unordered_set>

#include "orchestrator/strategy/composed.h"

namespace amk {

class Trial final : public Strategy {
 public:
  static constexpr std::size_t kTried = 4;

  // The search of its own has options.otherwise as its prior.
  Trial(const SearchSpace& space, const StrategyOptions& options);
  std::string_view name() const override { return "portfolio"; }
  std::vector<Point> ask(std::size_t n) override;
  void tell(const Observation& observation) override;

 private:
  std::optional<Point> next();
  Portfolio& search();
  void judge();
  void tell_search(const Observation& observation);

  SearchSpace space_;
  Archive archive_;  // of everything
  std::vector<Point> start_;
  std::shared_ptr<const Trend> trend_;  // of a prior that is tried
  std::size_t tried_ = 0;
  std::unique_ptr<Portfolio> following_;            // of a prior that was explored, until it is refuted
  bool convinced_ = false;                          // following_ goes on to the end
  std::unordered_set<Point, PointHash> kept_back_;  // favourites that the search has not asked for
  StrategyOptions of_search_;
  std::unique_ptr<Portfolio> search_;  // made when it is first needed: its prior costs time
  double best_ = 0;                    // that the search knows; 0: none
  int standing_ = 0;                   // its evaluations since that last improved
};

}  // namespace amk
