#include "orchestrator/strategy/trial.h"

#include <cmath>
#include <utility>

#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/rank_correlation.h"

namespace amk {
namespace {

StrategyOptions of_the_search(StrategyOptions options) {
  options.prior = std::exchange(options.otherwise, nullptr);
  options.prior_is_model = options.prior != nullptr;
  return options;
}

}  // namespace

Trial::Trial(const SearchSpace& space, const StrategyOptions& options)
    : space_(space), archive_(space_), start_(options.start), prior_(options.prior), of_search_(of_the_search(options)) {
  if (prior_->explored()) {
    following_ = std::make_unique<Portfolio>(space, options);
    return;
  }
  Rng rng(mix64(options.seed ^ 0x7121A1));
  trend_ = Trend::create(prior_, archive_, rng);
}

Portfolio& Trial::search() {
  if (!search_) search_ = std::make_unique<Portfolio>(space_, of_search_);
  return *search_;
}

std::optional<Point> Trial::next() {
  if (following_) {
    const bool starts = next_start(start_, archive_).has_value();
    std::vector<Point> asked = following_->ask(1);
    if (asked.empty()) return std::nullopt;
    held_against_.insert(asked[0]);
    if (!starts) kept_back_.insert(asked[0]);
    return std::move(asked[0]);
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

bool Trial::refuted() {
  if (!convinced_) {
    const auto convinced = following_->convinced();
    if (convinced && !*convinced) return true;
    convinced_ = convinced.value_or(false);
  }
  return said_.size() >= kAgreed && correlation(said_, measured_) < kAgreement;
}

void Trial::give_up() {
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
    if (held_against_.erase(observation.point) != 0 && observation.cost) {
      if (const auto said = prior_->log_cost(observation.point)) {
        said_.push_back(*said);
        measured_.push_back(std::log(*observation.cost));
      }
    }
    following_->tell(observation);
    if (refuted()) give_up();
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
