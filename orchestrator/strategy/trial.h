// A prior on trial. What a prior likes best may be no optimum even where it was learned, or nothing at all here, and a search that has seen
// its favourites stays around them for a hundred evaluations (docs/search.md). So behind the prior stands a search of its own that has not seen them.
// - A prior that nobody explored (of few rows, or of a search that ended early: the best that was met, no more) is tried: kTried of its favourites
//   are evaluated, then the search of its own begins.
// - One that was explored is followed, unless it is refuted: its first two favourites are not both better by a tenth than every point that was spread
//   over the space (a sibling's are in four of five runs, those of a useless prior in one of four); or, from kAgreed results on, what it said of them
//   and what was measured have a correlation below kAgreement. Of costs, not ranks: what it tries is mostly alike, where ranks are chance, but the
//   moves that it thinks dear are dear (after twelve a sibling's have 0.87, its ranks 0.5). Then the search of its own begins.
// Until it stands still while a point of the prior's is better, that search is the one without a prior, point by point, late by what was spent
// before: four evaluations, or three, or what it took to refute the prior. Then it is told. Deterministic. Not thread-safe.
#pragma once

#include <memory>
#include <unordered_set>

#include "orchestrator/strategy/composed.h"

namespace amk {

class Trial final : public Strategy {
 public:
  static constexpr std::size_t kTried = 4;
  static constexpr std::size_t kAgreed = 6;
  static constexpr double kAgreement = 0.3;

  // The search of its own has options.otherwise as its prior.
  Trial(const SearchSpace& space, const StrategyOptions& options);
  std::string_view name() const override { return "portfolio"; }
  std::vector<Point> ask(std::size_t n) override;
  void tell(const Observation& observation) override;

 private:
  std::optional<Point> next();
  Portfolio& search();
  bool refuted();
  void give_up();
  void tell_search(const Observation& observation);

  SearchSpace space_;
  Archive archive_;  // of everything
  std::vector<Point> start_;
  std::shared_ptr<const Prior> prior_;
  std::shared_ptr<const Trend> trend_;  // where it is tried
  std::size_t tried_ = 0;
  std::unique_ptr<Portfolio> following_;               // of a prior that was explored, until it is refuted
  bool convinced_ = false;                             // by its favourites
  std::unordered_set<Point, PointHash> held_against_;  // points asked while it is followed and not told yet
  std::vector<double> said_, measured_;                // of those that are, logarithms of costs
  std::unordered_set<Point, PointHash> kept_back_;     // points of the prior's, which the search has not asked for
  StrategyOptions of_search_;
  std::unique_ptr<Portfolio> search_;  // made when it is first needed: its prior costs time
  double best_ = 0;                    // that the search knows; 0: none
  int standing_ = 0;                   // its evaluations since that last improved
};

}  // namespace amk
