// Bayesian optimisation with a Gaussian process and expected improvement (Jones, Schonlau, Welch 1998; for auto-tuning: Willemsen et al. 2021).
// Improvement counts from kWorthwhile below the best, as in a campaign, which keeps nothing less: otherwise a knob that does almost nothing, of many
// choices, holds the search on a plateau, where each choice promises a hair. A process that saw a knob at a bad place first may avoid
// its other choices everywhere; so when nothing worthwhile was found for kScreened evaluations, every knob that was never moved alone from the
// best is (screening by single moves, Morris 1991).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "orchestrator/strategy/gaussian_process.h"
#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/niches.h"
#include "orchestrator/strategy/proposer.h"
#include "orchestrator/strategy/rank_correlation.h"
#include "orchestrator/strategy/trend.h"

namespace amk {
namespace {

constexpr std::size_t kTrainingLimit = 128;  // bounds the time of a suggestion: the best half, and an even sample of the rest
constexpr std::size_t kFewest = 5;           // observations before the model is asked
// A trend that ranks the observations no better than this is left out: its weight in the process would fade, but slowly, and meanwhile it
// decides where observations are made.
constexpr std::size_t kJudged = 5;  // observations before it is judged
constexpr double kBelieved = 0;     // Spearman's rank correlation; among favourites, which are all alike, a good trend may have little
// A trend goes for good when so many evaluations found nothing worthwhile: what carries over from elsewhere shows within the first few, and a trend
// that is wrong about the best costs no more than these.
constexpr std::size_t kTrendPatience = 12;
constexpr double kWorthwhile = 0.01;  // of log cost: the keep rule's 1%
// The longer nothing worthwhile is found, the more an improvement must promise: it doubles every kDoubling evaluations, up to kMostWanted. That
// leads out of a local optimum, where the model knows the small improvements best.
constexpr double kMostWanted = 0.1;
constexpr double kDoubling = 6;
constexpr std::size_t kScreened = 6;  // evaluations without a worthwhile improvement
// After as many as these every untried choice of a knob of few choices is, too, the most promising first: a local optimum is known for one when its
// neighbourhood was tried. A run on pnpoly-3090 stood at 94% for 28 evaluations, one such choice away from 99.7%.
constexpr std::size_t kCompleted = 8;
constexpr std::size_t kPlateau = 10;  // of the best, if not worse by kWorthwhile: what was moved alone from them is taken as moved from the best
// From then on, once each knob was moved and no trend is left, so many of the suggestions go into niches (niches.h).
constexpr double kNicheShare = 0.4;
constexpr double kDoubt = 2;                           // factor of the deviations, in half of the suggestions
constexpr std::size_t kElites = 5, kElitesEarly = 10;  // whose neighbourhoods are looked at
constexpr int kSteps = 60, kFewestSteps = 6;           // of fitting weights, at each tenth more observations
// Candidates whose deviation is computed, too: the best by mean, and some others. More while that is cheap: up to kFewShown observations.
constexpr std::size_t kExact = 128, kExactMost = 256, kFewShown = 64;

struct Training {
  std::vector<const Point*> points;
  std::vector<double> y;  // log cost, bent
  double bend = 0;
};

// Log costs, bent at the median of the correct ones (trend.h). Failures are no better than the median.
Training training_set(const Archive& archive) {
  const std::vector<Observation>& told = archive.observations();
  const std::vector<std::uint32_t>& ranked = archive.ranked();
  const double bend = std::log(*told[ranked[ranked.size() / 2]].cost);
  std::vector<const Observation*> all;
  if (told.size() <= kTrainingLimit) {
    for (const Observation& o : told) all.push_back(&o);
  } else {
    constexpr std::size_t kHalf = kTrainingLimit / 2;
    std::vector<bool> chosen(told.size(), false);
    for (std::size_t i = 0; i < std::min(kHalf, ranked.size()); ++i) chosen[ranked[i]] = true;
    std::vector<const Observation*> rest;
    for (std::size_t i = 0; i < told.size(); ++i) (chosen[i] ? all : rest).push_back(&told[i]);
    const std::size_t others = kTrainingLimit - all.size();
    const double stride = static_cast<double>(rest.size()) / static_cast<double>(others);
    for (std::size_t i = 0; i < others; ++i) all.push_back(rest[static_cast<std::size_t>(stride * static_cast<double>(i))]);
  }
  Training out;
  out.bend = bend;
  for (const Observation* o : all) {
    const double y = o->cost ? std::log(*o->cost) : bend;
    out.points.push_back(&o->point);
    out.y.push_back(bent(y, bend));
  }
  // Points that are being evaluated: taken for mediocre, so that the next suggestion looks elsewhere (constant liar, Ginsbourger et al. 2010).
  constexpr std::size_t kMostPending = 32;
  for (const Point* p : archive.pending()) {
    if (out.points.size() >= all.size() + kMostPending) break;
    out.points.push_back(p);
    out.y.push_back(bend);
  }
  return out;
}

double expected_improvement(double best, const GaussianProcess::Estimate& e) {
  const double s = std::max(e.deviation, 1e-9);
  const double z = (best - e.mean) / s;
  return s * (z * 0.5 * std::erfc(-z / 1.4142135623730951) + std::exp(-0.5 * z * z) / 2.5066282746310002);
}

// Random candidates: as many as cost a millisecond or two to look at.
std::size_t pool_size(const Archive& archive) {
  constexpr std::size_t kFewestCandidates = 400, kMostCandidates = 1500, kWork = 1'000'000;  // factors of covariances
  const std::size_t shown = std::min(archive.observations().size(), kTrainingLimit) + 1;
  return std::clamp(kWork / (shown * archive.space().knobs.size()), kFewestCandidates, kMostCandidates);
}

class GaussianProposer final : public Proposer {
 public:
  explicit GaussianProposer(std::shared_ptr<const Trend> trend) : trend_(std::move(trend)) {}
  std::string_view name() const override { return "gp"; }

  std::optional<Point> propose(const Archive& archive, Rng& rng) override {
    if (archive.best() == nullptr || archive.observations().size() < kFewest) return spread_point(archive, rng);
    refit(archive, rng);
    const double wanted = std::min(kMostWanted, kWorthwhile * std::exp2(static_cast<double>(unimproved_) / kDoubling));
    if (unimproved_ >= kScreened) {
      if (const auto pool = unmoved(archive); !pool.empty()) return most_promising(pool, best_ - wanted, rng);
      if (unimproved_ >= kCompleted)
        if (const auto pool = untried(archive); !pool.empty()) return most_promising(pool, best_ - wanted, rng);
      if (!trend_ && rng.uniform() < kNicheShare) {
        if (const auto niche = niches_.next(archive, kWorthwhile)) {
          const auto inside = best_of(archive, *niche, kElites);
          const double own = inside.empty() || !inside.front()->cost ? bend_ : bent(std::log(*inside.front()->cost), bend_);
          if (const auto pool = niche_candidates(archive, *niche, inside, rng); !pool.empty()) return most_promising(pool, own - kWorthwhile, rng);
        }
      }
    }
    const auto pool = candidates(archive, rng);
    if (pool.empty()) return fresh_point(archive, rng);
    return most_promising(pool, best_ - wanted, rng);
  }

 private:
  // The candidate with the most expected improvement below `target`. Deviations are taken as the model says and doubled, by lot: fitted weights know
  // nothing of the doubt about themselves, so that the model is surest where it is wrong; several measures of exploration cover for each other
  // (several targets: Jones 2001; a portfolio of acquisitions: Hoffman, Brochu, de Freitas 2011). Not while there is a trend, which is
  // followed as long as it leads.
  Point most_promising(const std::vector<Point>& pool, double target, Rng& rng) const {
    std::vector<const Point*> views;
    std::vector<double> trends;
    for (const Point& p : pool) {
      views.push_back(&p);
      if (trend_ && trusted_) trends.push_back(trend_->at(p));
    }
    screen(views, trends, rng);
    auto estimates = model_->predict(views, trends);
    const double doubt = !trend_ && rng.below(2) == 0 ? kDoubt : 1;
    std::size_t chosen = 0;
    double chosen_score = -1;
    for (std::size_t i = 0; i < views.size(); ++i) {
      estimates[i].deviation *= doubt;
      const double score = expected_improvement(target, estimates[i]);
      if (score > chosen_score) chosen_score = score, chosen = i;
    }
    return *views[chosen];
  }

  // Neighbours of the niche's best, what the best of all would be in it, and random points moved into it.
  static std::vector<Point> niche_candidates(const Archive& archive, Niche niche, const std::vector<const Observation*>& inside, Rng& rng) {
    std::vector<Point> pool;
    std::unordered_set<Point, PointHash> seen;
    const auto add = [&](Point p) {
      p[niche.knob] = niche.choice;
      if (archive.valid(p) && !archive.known(p) && seen.insert(p).second) pool.push_back(std::move(p));
    };
    for (const Observation* o : inside)
      for (Point& p : archive.neighbours(o->point, true)) add(std::move(p));
    add(archive.best()->point);
    const std::size_t others = pool_size(archive);
    for (std::size_t i = 0; i < others; ++i)
      if (auto p = archive.random_valid(rng, 200)) add(std::move(*p));
    return pool;
  }

  // The untried choices of knobs of few choices, each moved alone from the best.
  static std::vector<Point> untried(const Archive& archive) {
    const Point& best = archive.best()->point;
    std::vector<Point> out;
    for (Point& p : archive.neighbours(best, true))
      if (!archive.known(p) && archive.space().knobs[knob_between(p, best)].choices.size() <= kFewChoices) out.push_back(std::move(p));
    return out;
  }

  static std::size_t knob_between(const Point& a, const Point& b) {
    std::size_t k = 0;
    while (a[k] == b[k]) ++k;
    return k;
  }

  // The untried choices of one knob, the others as in the best: of those never moved alone the one with the fewest choices. Empty: all were.
  static std::vector<Point> unmoved(const Archive& archive) {
    const Observation& best = *archive.best();
    std::vector<bool> moved(best.point.size(), false);
    for (const Observation* elite : best_observations(archive, kPlateau)) {
      if (std::log(*elite->cost / *best.cost) > kWorthwhile) break;
      for (const Point& p : archive.neighbours(elite->point, true))
        if (archive.known(p)) moved[knob_between(p, elite->point)] = true;
    }
    std::vector<Point> out;
    std::size_t chosen = best.point.size();
    for (Point& p : archive.neighbours(best.point, true)) {
      const std::size_t k = knob_between(p, best.point);
      if (moved[k] || archive.known(p)) continue;
      const auto choices = [&](std::size_t knob) { return archive.space().knobs[knob].choices.size(); };
      if (k != chosen && chosen < best.point.size() && choices(k) >= choices(chosen)) continue;
      if (k != chosen) out.clear();
      chosen = k;
      out.push_back(std::move(p));
    }
    return out;
  }

  void refit(const Archive& archive, Rng& rng) {
    unimproved_ = evaluations_without_improvement(archive);
    if (trend_ && unimproved_ >= kTrendPatience) {
      trend_ = nullptr;
      model_.reset();
      refit_at_ = 0;
    }
    if (!model_) model_.emplace(archive.space(), trend_ == nullptr);
    const Training t = training_set(archive);
    const std::size_t n = t.points.size(), known = archive.observations().size();
    int steps = 0;
    if (known >= refit_at_) {
      // Weights settle as observations grow; a step costs n³, so fewer of them.
      steps = std::clamp(static_cast<int>(kSteps * 3600.0 / static_cast<double>(n * n)), kFewestSteps, kSteps);
      refit_at_ = known + 1 + known / 10;
    }
    std::vector<double> trends;
    if (trend_) {
      for (const Point* p : t.points) trends.push_back(trend_of_told(*p));
      trusted_ = n < kJudged || rank_correlation(trends, t.y) >= kBelieved;
      if (!trusted_) trends.clear();
    }
    model_->fit(t.points, t.y, trends, steps, rng);
    shown_ = n;
    bend_ = t.bend;
    best_ = *std::min_element(t.y.begin(), t.y.end());
  }

  // A prior's score costs a walk through its forests; what was told is asked for again and again.
  double trend_of_told(const Point& point) {
    const auto [at, fresh] = told_trends_.try_emplace(point, 0.0);
    if (fresh) at->second = trend_->at(point);
    return at->second;
  }

  // Told since the first that is within kWorthwhile of the best.
  static std::size_t evaluations_without_improvement(const Archive& archive) {
    const auto& all = archive.observations();
    const double bar = *archive.best()->cost * std::exp(kWorthwhile);
    std::size_t first = 0;
    while (!all[first].cost || *all[first].cost > bar) ++first;
    return all.size() - 1 - first;
  }

  std::vector<Point> candidates(const Archive& archive, Rng& rng) const {
    std::vector<Point> pool;
    std::unordered_set<Point, PointHash> seen;
    const auto add = [&](const Point& p) {
      if (!archive.known(p) && seen.insert(p).second) pool.push_back(p);
    };
    for (const Observation* elite : best_observations(archive, shown_ <= kFewShown ? kElitesEarly : kElites)) {
      for (const Point& p : archive.neighbours(elite->point, true)) add(p);
    }
    if (trend_ && trusted_)
      for (const Point& p : trend_->favourites()) add(p);
    const std::size_t others = pool_size(archive);
    for (std::size_t i = 0; i < others; ++i)
      if (auto p = archive.random_valid(rng, 200)) add(*p);
    return pool;
  }

  // Keeps the kExact most promising: mostly by mean, and one in four by lot, for the sake of those that are merely uncertain.
  void screen(std::vector<const Point*>& views, std::vector<double>& trends, Rng& rng) const {
    const std::size_t exact = shown_ <= kFewShown ? kExactMost : kExact;
    if (views.size() <= exact) return;
    const std::vector<double> mean = model_->means(views, trends);
    std::vector<std::size_t> order(views.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return mean[a] != mean[b] ? mean[a] < mean[b] : a < b; });
    const std::size_t by_mean = exact * 3 / 4;
    for (std::size_t i = by_mean; i < exact; ++i) std::swap(order[i], order[i + rng.below(order.size() - i)]);
    std::vector<const Point*> kept;
    std::vector<double> kept_trends;
    for (std::size_t i = 0; i < exact; ++i) {
      kept.push_back(views[order[i]]);
      if (!trends.empty()) kept_trends.push_back(trends[order[i]]);
    }
    views.swap(kept);
    trends.swap(kept_trends);
  }

  std::shared_ptr<const Trend> trend_;
  std::unordered_map<Point, double, PointHash> told_trends_;
  Niches niches_;
  std::optional<GaussianProcess> model_;
  std::size_t refit_at_ = 0;
  bool trusted_ = true;         // the trend, as far as the observations go
  std::size_t shown_ = 0;       // observations that the model was shown
  double best_ = 0, bend_ = 0;  // lowest value that the model was shown; where they are bent
  std::size_t unimproved_ = 0;  // evaluations without a worthwhile improvement
};

}  // namespace

std::unique_ptr<Proposer> gaussian_proposer(std::shared_ptr<const Trend> trend) { return std::make_unique<GaussianProposer>(std::move(trend)); }
std::unique_ptr<Proposer> cold_gaussian_proposer() { return gaussian_proposer(nullptr); }

}  // namespace amk
