// Strategies made of proposers.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "orchestrator/strategy/proposer.h"
#include "orchestrator/strategy/trend.h"

namespace amk {

constexpr int kPatience = 12;      // evaluations without a better best before something else is tried
constexpr double kBetter = 0.995;  // a best that is better by more than noise

// As many points of `next` as there are, `n` at most; each is marked as asked before the next is chosen.
std::vector<Point> ask_each(std::size_t n, Archive& archive, const std::function<std::optional<Point>()>& next);
// The first of `start` that is valid and unknown; it and what was passed over leave the list.
std::optional<Point> next_start(std::vector<Point>& start, const Archive& archive);
// A prior's favourites: the best, then ones that differ from everything known in at least two knobs, so that a prior that is wrong about one knob is
// not asked the same question again.
std::optional<Point> next_favourite(const Trend& trend, const Archive& archive);

// One proposer, after the start points.
class SingleStrategy : public Strategy {
 public:
  SingleStrategy(std::unique_ptr<Proposer> proposer, const SearchSpace& space, const StrategyOptions& options);
  std::string_view name() const override { return proposer_->name(); }
  std::vector<Point> ask(std::size_t n) override;
  void tell(const Observation& observation) override;

 private:
  std::optional<Point> next();

  std::unique_ptr<Proposer> proposer_;
  SearchSpace space_;
  Archive archive_;
  Rng rng_;
  std::vector<Point> start_;
  std::unordered_map<Point, int, PointHash> mine_;
};

// Start points and the prior's favourites, a few spread-out points, then a bandit over the proposers, credited by improvement.
class Portfolio : public Strategy {
 public:
  Portfolio(const SearchSpace& space, const StrategyOptions& options);
  std::string_view name() const override { return "portfolio"; }
  std::vector<Point> ask(std::size_t n) override;
  void tell(const Observation& observation) override;

  // Whether the prior's two favourites are both better by a tenth than every point that was spread over the space; empty until both and one such
  // were told. Of a useless prior they are once in four times.
  std::optional<bool> convinced() const;

 private:
  struct Arm {
    std::unique_ptr<Proposer> proposer;
    double credit = 1, uses = 1;  // exponentially forgotten
  };
  std::optional<Point> next();
  std::optional<Point> initial();
  bool prior_convinces() const;
  std::optional<Point> swept();

  SearchSpace space_;
  Archive archive_;
  Rng rng_;
  std::vector<Point> start_;
  std::shared_ptr<const Trend> trend_;  // null without a prior
  bool shuns_slow_;                     // the prior is a model of this workload and device
  std::unordered_set<Point, PointHash> favourites_asked_;
  std::vector<Point> spread_asked_;
  bool sweep_planned_ = false;
  double sweep_from_ = 0;  // cost of the point around which it goes
  std::vector<Point> sweep_;
  int since_improvement_ = 0;
  std::vector<Arm> arms_;
  std::unordered_map<Point, int, PointHash> asked_by_;  // index of the arm, -1: nobody
};

}  // namespace amk
