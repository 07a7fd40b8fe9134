#include "orchestrator/strategy/composed.h"

#include <algorithm>
#include <cmath>

#include "orchestrator/strategy/moves.h"

namespace amk {
namespace {

std::optional<Point> next_start(std::vector<Point>& start, const Archive& archive) {
  while (!start.empty()) {
    Point point = std::move(start.front());
    start.erase(start.begin());
    if (archive.valid(point) && !archive.known(point)) return point;
  }
  return std::nullopt;
}

}  // namespace

SingleStrategy::SingleStrategy(std::unique_ptr<Proposer> proposer, const SearchSpace& space, const StrategyOptions& options)
    : proposer_(std::move(proposer)), space_(space), archive_(space_), rng_(options.seed), start_(options.start) {}

std::vector<Point> SingleStrategy::ask(std::size_t n) {
  std::vector<Point> out;
  while (out.size() < n) {
    auto point = next_start(start_, archive_);
    if (!point) {
      point = proposer_->propose(archive_, rng_);
      if (!point) point = fresh_point(archive_, rng_);
      if (point) mine_.emplace(*point, 0);
    }
    if (!point) break;
    archive_.mark_asked(*point);
    out.push_back(std::move(*point));
  }
  return out;
}

void SingleStrategy::tell(const Observation& observation) {
  archive_.record(observation);
  proposer_->observe(archive_, observation, mine_.erase(observation.point) > 0);
}

Portfolio::Portfolio(const SearchSpace& space, const StrategyOptions& options)
    : space_(space), archive_(space_), rng_(options.seed), start_(options.start), prior_(options.prior) {
  arms_.push_back({surrogate_proposer()});
  arms_.push_back({vnd_proposer()});
  arms_.push_back({evolutionary_proposer()});
  arms_.push_back({local_proposer()});
  initial_ = std::min<std::size_t>(2 + space_.knobs.size(), 12);
}

std::optional<Point> Portfolio::next() {
  if (auto point = next_start(start_, archive_)) return point;
  if (archive_.asked_or_told() < initial_) return fresh_point(archive_, rng_);
  // The arm with the best credit a use; one in ten at random, so that none is forgotten.
  std::size_t chosen = rng_.below(arms_.size());
  if (rng_.below(10) != 0) {
    double best = -1;
    for (std::size_t i = 0; i < arms_.size(); ++i) {
      const double score = arms_[i].credit / arms_[i].uses;
      if (score > best) best = score, chosen = i;
    }
  }
  auto point = arms_[chosen].proposer->propose(archive_, rng_);
  if (!point) point = fresh_point(archive_, rng_);
  if (point) asked_by_[*point] = static_cast<int>(chosen);
  return point;
}

std::vector<Point> Portfolio::ask(std::size_t n) {
  std::vector<Point> out;
  while (out.size() < n) {
    auto point = next();
    if (!point) break;
    archive_.mark_asked(*point);
    out.push_back(std::move(*point));
  }
  return out;
}

void Portfolio::tell(const Observation& observation) {
  const double before = archive_.best() != nullptr ? *archive_.best()->cost : 0;
  archive_.record(observation);
  const auto at = asked_by_.find(observation.point);
  const int by = at == asked_by_.end() ? -1 : at->second;
  for (std::size_t i = 0; i < arms_.size(); ++i) arms_[i].proposer->observe(archive_, observation, static_cast<int>(i) == by);
  if (by < 0) return;
  constexpr double kForget = 0.95;
  Arm& arm = arms_[static_cast<std::size_t>(by)];
  arm.uses = arm.uses * kForget + 1;
  arm.credit *= kForget;
  if (observation.cost && before > 0 && *observation.cost < before) arm.credit += std::min(1.0, 20 * std::log(before / *observation.cost));
}

}  // namespace amk
