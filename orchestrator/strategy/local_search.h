// Random search, and one-knob local search with restarts (first improvement in random order; restart from a fresh random point
// when a neighbourhood is exhausted). The plain baselines that cleverer strategies must beat.
#pragma once

#include "orchestrator/strategy/archive.h"

namespace amk {

class RandomSearch final : public Strategy {
 public:
  RandomSearch(const SearchSpace& space, const StrategyOptions& options);
  std::string_view name() const override { return "random"; }
  std::vector<Point> ask(std::size_t n) override;
  void tell(const Observation& observation) override { archive_.record(observation); }

 private:
  Archive archive_;
  Rng rng_;
  std::vector<Point> start_;
};

class LocalSearch final : public Strategy {
 public:
  LocalSearch(const SearchSpace& space, const StrategyOptions& options);
  std::string_view name() const override { return "local"; }
  std::vector<Point> ask(std::size_t n) override;
  void tell(const Observation& observation) override;

 private:
  void move_to(const Point& point, double cost);

  Archive archive_;
  Rng rng_;
  std::vector<Point> start_;
  std::optional<Point> centre_;
  double centre_cost_ = 0;
  std::vector<Point> frontier_;  // shuffled neighbours of centre_, not yet asked
  std::size_t pending_ = 0;      // asked, not told
};

}  // namespace amk
