#include "orchestrator/strategy/composed.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "orchestrator/strategy/moves.h"

namespace amk {
namespace {

constexpr std::size_t kFavourites = 2;                      // of the prior, in the start
constexpr std::size_t kSwept = 10;                          // knobs moved one at a time around the best favourite
constexpr double kWon = 0.9;                                // a tenth: a move that wins so much from the favourite is followed by the model …
constexpr int kFollowed = 6;                                // … until it has not improved for so many evaluations; then the sweep goes on
constexpr std::size_t kInitial = 5, kInitialWithPrior = 3;  // points before any model is asked
constexpr double kLead = 1, kStalled = 0.9;                 // the Gaussian process's share of the turns

}  // namespace

std::vector<Point> ask_each(std::size_t n, Archive& archive, const std::function<std::optional<Point>()>& next) {
  std::vector<Point> out;
  while (out.size() < n) {
    auto point = next();
    if (!point) break;
    archive.mark_asked(*point);
    out.push_back(std::move(*point));
  }
  return out;
}

std::optional<Point> next_start(std::vector<Point>& start, const Archive& archive) {
  while (!start.empty()) {
    Point point = std::move(start.front());
    start.erase(start.begin());
    if (archive.valid(point) && !archive.known(point)) return point;
  }
  return std::nullopt;
}

std::optional<Point> next_favourite(const Trend& trend, const Archive& archive) {
  for (const Point& point : trend.favourites()) {
    if (archive.known(point)) continue;
    const auto differs = [&](const Point& other) {
      std::size_t knobs = 0;
      for (std::size_t k = 0; k < point.size(); ++k) knobs += point[k] != other[k];
      return knobs >= std::min<std::size_t>(2, point.size());
    };
    const auto pending = archive.pending();
    if (std::all_of(archive.observations().begin(), archive.observations().end(), [&](const Observation& o) { return differs(o.point); }) &&
        std::all_of(pending.begin(), pending.end(), [&](const Point* p) { return differs(*p); }))
      return point;
  }
  return std::nullopt;
}

SingleStrategy::SingleStrategy(std::unique_ptr<Proposer> proposer, const SearchSpace& space, const StrategyOptions& options)
    : proposer_(std::move(proposer)), space_(space), archive_(space_), rng_(options.seed), start_(options.start) {}

std::optional<Point> SingleStrategy::next() {
  if (auto point = next_start(start_, archive_)) return point;
  auto point = proposer_->propose(archive_, rng_);
  if (!point) point = fresh_point(archive_, rng_);
  if (point) mine_.emplace(*point, 0);
  return point;
}

std::vector<Point> SingleStrategy::ask(std::size_t n) {
  return ask_each(n, archive_, [this] { return next(); });
}

void SingleStrategy::tell(const Observation& observation) {
  archive_.record(observation);
  proposer_->observe(archive_, observation, mine_.erase(observation.point) > 0);
}

Portfolio::Portfolio(const SearchSpace& space, const StrategyOptions& options)
    : space_(space), archive_(space_), rng_(options.seed), start_(options.start), shuns_slow_(options.prior_is_model) {
  if (options.prior) trend_ = Trend::create(options.prior, archive_, rng_);
  arms_.push_back({gaussian_proposer(trend_)});
  arms_.push_back({surrogate_proposer()});
  arms_.push_back({vnd_proposer()});
  arms_.push_back({evolutionary_proposer()});
  arms_.push_back({iterated_local_proposer()});
}

// Whether every favourite told so far beats every other point of the start. A useless prior has it once in ten times.
bool Portfolio::prior_convinces() const {
  double worst_favourite = 0, best_other = HUGE_VAL;
  for (const Observation& o : archive_.observations()) {
    const double cost = o.cost.value_or(HUGE_VAL);
    if (favourites_asked_.count(o.point) != 0)
      worst_favourite = std::max(worst_favourite, cost);
    else
      best_other = std::min(best_other, cost);
  }
  return worst_favourite < best_other;
}

std::optional<bool> Portfolio::convinced() const {
  double worst_favourite = 0, best_spread = HUGE_VAL;
  std::size_t favourites = 0, spread = 0;
  for (const Observation& o : archive_.observations()) {
    const double cost = o.cost.value_or(HUGE_VAL);
    if (favourites_asked_.count(o.point) != 0)
      worst_favourite = std::max(worst_favourite, cost), ++favourites;
    else if (std::find(spread_asked_.begin(), spread_asked_.end(), o.point) != spread_asked_.end())
      best_spread = std::min(best_spread, cost), ++spread;
  }
  if (favourites < kFavourites || spread == 0) return std::nullopt;
  return worst_favourite < kWon * best_spread;
}

// A start without models. Cold: points spread over the space. With a prior: its favourites and spread points in turn; when the favourites do
// not stand out, the spread points of a cold start follow in full, so that a wrong prior costs its favourites and no more. A model of this
// very workload and device also keeps the spread points out of what it ranks low: those are many times slower and take as many times longer to judge.
std::optional<Point> Portfolio::initial() {
  if (trend_ && favourites_asked_.size() < kFavourites && favourites_asked_.size() <= spread_asked_.size()) {
    if (auto point = next_favourite(*trend_, archive_)) {
      favourites_asked_.insert(*point);
      return point;
    }
  }
  const bool short_start = trend_ && spread_asked_.size() + 1 >= kFavourites && prior_convinces();
  // Points told from elsewhere are a start, too.
  const std::size_t others = archive_.asked_or_told() - std::min(archive_.asked_or_told(), favourites_asked_.size());
  if (short_start || others >= (trend_ ? kInitialWithPrior : kInitial)) return std::nullopt;
  std::function<double(const Point&)> score;
  if (trend_ && shuns_slow_) score = [this](const Point& p) { return trend_->at(p); };
  auto point = spread_point(archive_, rng_, score, !shuns_slow_);  // the model knows what sizes suit
  if (point) spread_asked_.push_back(*point);
  return point;
}

// One knob at a time (screening by single moves, Morris 1991) around the best favourite: for each knob the other choice that the prior likes best.
// What carries over from one device to another is the shape; where they differ, it is often by what one knob costs (a cache, a bank), and a model
// that has seen each knob moved once at the place that matters learns that at once, where more favourites, alike in that knob, would never tell.
std::optional<Point> Portfolio::swept() {
  if (!trend_) return std::nullopt;
  if (!sweep_planned_) {
    const Observation* centre = nullptr;
    for (const Observation& o : archive_.observations())
      if (o.cost && favourites_asked_.count(o.point) != 0 && (centre == nullptr || *o.cost < *centre->cost)) centre = &o;
    if (centre == nullptr) return std::nullopt;  // none told yet, or all of them failed
    sweep_planned_ = true;
    std::vector<std::pair<double, Point>> best(space_.knobs.size());
    for (const Point& p : archive_.neighbours(centre->point, true)) {
      std::size_t k = 0;
      while (p[k] == centre->point[k]) ++k;
      const double score = trend_->at(p);
      if (best[k].second.empty() || score < best[k].first) best[k] = {score, p};
    }
    sweep_from_ = *centre->cost;
    std::vector<std::size_t> order(best.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    // Knobs of few choices first: there one evaluation settles most.
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const std::size_t x = space_.knobs[a].choices.size(), y = space_.knobs[b].choices.size();
      return x != y ? x < y : best[a].first < best[b].first;
    });
    for (const std::size_t k : order)
      if (!best[k].second.empty() && sweep_.size() < kSwept) sweep_.push_back(std::move(best[k].second));
  }
  if (archive_.best() != nullptr && *archive_.best()->cost < kWon * sweep_from_ && since_improvement_ < kFollowed) return std::nullopt;
  return next_start(sweep_, archive_);
}

std::optional<Point> Portfolio::next() {
  if (auto point = next_start(start_, archive_)) return point;
  if (auto point = initial()) return point;
  if (auto point = swept()) return point;
  // The Gaussian process leads: on tens of observations it is worth several of the others. When it has not improved the best for a while, the
  // others get some of the turns, by credit a use and one time in four by lot: where the process is blind, their walks lead out.
  std::size_t chosen = 0;
  const double share = since_improvement_ < kPatience ? kLead : kStalled;
  if (rng_.uniform() >= share) {
    chosen = 1 + rng_.below(arms_.size() - 1);
    if (rng_.below(4) != 0) {
      double best = -1;
      for (std::size_t i = 1; i < arms_.size(); ++i) {
        const double score = arms_[i].credit / arms_[i].uses;
        if (score > best) best = score, chosen = i;
      }
    }
  }
  auto point = arms_[chosen].proposer->propose(archive_, rng_);
  if (!point) point = fresh_point(archive_, rng_);
  if (point) asked_by_[*point] = static_cast<int>(chosen);
  return point;
}

std::vector<Point> Portfolio::ask(std::size_t n) {
  return ask_each(n, archive_, [this] { return next(); });
}

void Portfolio::tell(const Observation& observation) {
  const double before = archive_.best() != nullptr ? *archive_.best()->cost : 0;
  archive_.record(observation);
  const auto at = asked_by_.find(observation.point);
  const int by = at == asked_by_.end() ? -1 : at->second;
  for (std::size_t i = 0; i < arms_.size(); ++i) arms_[i].proposer->observe(archive_, observation, static_cast<int>(i) == by);
  const bool better = before == 0 || (observation.cost && *observation.cost < kBetter * before);
  since_improvement_ = better ? 0 : since_improvement_ + 1;
  if (by < 0) return;
  constexpr double kForget = 0.95;
  Arm& arm = arms_[static_cast<std::size_t>(by)];
  arm.uses = arm.uses * kForget + 1;
  arm.credit *= kForget;
  if (observation.cost && before > 0 && *observation.cost < before) arm.credit += std::min(1.0, 20 * std::log(before / *observation.cost));
}

}  // namespace amk
