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
    : space_(space), archive_(space_), start_(options.start), of_search_(of_the_search(options)) {
  if (options.prior->explored()) {
    following_ = std::make_unique<Portfolio>(space, options);
    return;
  }
  Rng rng(mix64(options.seed ^ 0x7121A1));
  trend_ = Trend::create(options.prior, archive_, rng);
}

Portfolio& Trial::search() {
  if (!search_) search_ = std::make_unique<Portfolio>(space_, of_search_);
  return *search_;
}

std::optional<Point> Trial::next() {
  if (following_) {
    std::vector<Point> asked = following_->ask(1);
    return asked.empty() ? std::nullopt : std::optional(std::move(asked[0]));
  }
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
    std::vector<Point> asked = search().ask(1);
    if (asked.empty()) return std::nullopt;
    kept_back_.erase(asked[0]);
    if (!archive_.known(asked[0])) return std::move(asked[0]);
    if (archive_.told(asked[0])) tell_search({asked[0], archive_.cost(asked[0])});  // it costs no evaluation
  }
}

std::vector<Point> Trial::ask(std::size_t n) {
  return ask_each(n, archive_, [this] { return next(); });
}

// What was told until an explored prior is refuted goes to the search, but for the favourites.
void Trial::judge() {
  const auto convinced = following_->convinced();
  if (!convinced) return;
  convinced_ = *convinced;
  if (convinced_) return;
  kept_back_ = following_->favourites_asked();
  following_.reset();
  for (const Observation& o : archive_.observations())
    if (kept_back_.count(o.point) == 0) tell_search(o);
}

void Trial::tell_search(const Observation& observation) {
  const bool better = observation.cost && (best_ == 0 || *observation.cost < kBetter * best_);
  standing_ = better ? 0 : standing_ + 1;
  if (observation.cost && (best_ == 0 || *observation.cost < best_)) best_ = *observation.cost;
  search().tell(observation);
}

void Trial::tell(const Observation& observation) {
  archive_.record(observation);
  if (following_) {
    following_->tell(observation);
    if (!convinced_) judge();
    return;
  }
  if (kept_back_.count(observation.point) == 0) tell_search(observation);
  if (kept_back_.empty() || standing_ < kPatience || best_ == 0 || *archive_.best()->cost >= kBetter * best_) return;
  std::vector<Observation> late;
  for (const Observation& o : archive_.observations())
    if (kept_back_.erase(o.point) != 0) late.push_back(o);
  for (const Observation& o : late) tell_search(o);
}

}  // namespace amk
