#include "orchestrator/strategy/local_search.h"

#include <algorithm>

namespace amk {
namespace {

// Takes the first start point that is valid and new.
std::optional<Point> next_start(std::vector<Point>& start, const Archive& archive) {
  while (!start.empty()) {
    Point point = std::move(start.front());
    start.erase(start.begin());
    if (archive.valid(point) && !archive.known(point)) return point;
  }
  return std::nullopt;
}

std::optional<Point> fresh(const Archive& archive, Rng& rng) {
  auto point = archive.random_fresh(rng);
  return point ? point : archive.first_fresh();
}

void shuffle(std::vector<Point>& points, Rng& rng) {
  for (std::size_t i = points.size(); i > 1; --i) std::swap(points[i - 1], points[rng.below(i)]);
}

}  // namespace

RandomSearch::RandomSearch(const SearchSpace& space, const StrategyOptions& options) : archive_(space), rng_(options.seed), start_(options.start) {}

std::vector<Point> RandomSearch::ask(std::size_t n) {
  std::vector<Point> out;
  while (out.size() < n) {
    auto point = next_start(start_, archive_);
    if (!point) point = fresh(archive_, rng_);
    if (!point) break;
    archive_.mark_asked(*point);
    out.push_back(std::move(*point));
  }
  return out;
}

LocalSearch::LocalSearch(const SearchSpace& space, const StrategyOptions& options) : archive_(space), rng_(options.seed), start_(options.start) {}

void LocalSearch::move_to(const Point& point, double cost) {
  centre_ = point;
  centre_cost_ = cost;
  frontier_ = archive_.neighbours(point, false);
  shuffle(frontier_, rng_);
}

std::vector<Point> LocalSearch::ask(std::size_t n) {
  std::vector<Point> out;
  while (out.size() < n) {
    auto point = next_start(start_, archive_);
    while (!point && !frontier_.empty()) {
      if (!archive_.known(frontier_.back())) point = frontier_.back();
      frontier_.pop_back();
    }
    if (!point) {
      // The neighbourhood is exhausted: a restart, unless results that may still move the centre are pending.
      if (pending_ + out.size() > 0 && centre_ && !out.empty()) break;
      centre_.reset();
      point = fresh(archive_, rng_);
    }
    if (!point) break;
    archive_.mark_asked(*point);
    out.push_back(std::move(*point));
  }
  pending_ += out.size();
  return out;
}

void LocalSearch::tell(const Observation& observation) {
  if (pending_ > 0 && archive_.known(observation.point) && !archive_.told(observation.point)) --pending_;
  archive_.record(observation);
  if (!observation.cost) return;
  if (!centre_ || *observation.cost < centre_cost_) move_to(observation.point, *observation.cost);
}

}  // namespace amk
