#include "orchestrator/strategy/trial.h"

#include <utility>

#include "orchestrator/strategy/moves.h"

namespace amk {
namespace {

StrategyOptions of_the_search(StrategyOptions options) {
  options.prior = std::exchange(options.otherwise, nullptr);
  options.prior_is_model = options.prior != nullptr;
  return options;
}

}  // namespace

Trial::Trial(const SearchSpace& space, const StrategyOptions& options)
    : space_(space), archive_(space_), start_(options.start), search_(space, of_the_search(options)) {
  Rng rng(mix64(options.seed ^ 0x7121A1));
  trend_ = Trend::create(options.prior, archive_, rng);
}

std::optional<Point> Trial::next() {
  if (auto point = next_start(start_, archive_)) return point;
  if (trend_ && tried_ < kTried) {
    if (auto point = next_favourite(*trend_, archive_)) {
      ++tried_;
      kept_back_.insert(*point);
      return point;
    }
    tried_ = kTried;  // it likes nothing else
  }
  for (;;) {
    std::vector<Point> asked = search_.ask(1);
    if (asked.empty()) return std::nullopt;
    kept_back_.erase(asked[0]);
    if (!archive_.known(asked[0])) return std::move(asked[0]);
    if (archive_.told(asked[0])) tell_search({asked[0], archive_.cost(asked[0])});  // it costs no evaluation
  }
}

std::vector<Point> Trial::ask(std::size_t n) {
  return ask_each(n, archive_, [this] { return next(); });
}

void Trial::tell_search(const Observation& observation) {
  const bool better = observation.cost && (best_ == 0 || *observation.cost < kBetter * best_);
  standing_ = better ? 0 : standing_ + 1;
  if (observation.cost && (best_ == 0 || *observation.cost < best_)) best_ = *observation.cost;
  search_.tell(observation);
}

void Trial::tell(const Observation& observation) {
  archive_.record(observation);
  if (kept_back_.count(observation.point) == 0) tell_search(observation);
  if (kept_back_.empty() || standing_ < kPatience || best_ == 0 || *archive_.best()->cost >= kBetter * best_) return;
  std::vector<Observation> late;
  for (const Observation& o : archive_.observations())
    if (kept_back_.erase(o.point) != 0) late.push_back(o);
  for (const Observation& o : late) tell_search(o);
}

}  // namespace amk
