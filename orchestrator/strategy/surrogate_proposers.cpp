// Model-guided search: a forest with expected improvement, and variable neighbourhood descent with a nearest-neighbour surrogate.
#include <algorithm>
#include <cmath>

#include "orchestrator/strategy/forest.h"
#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/proposer.h"

namespace amk {
namespace {

constexpr std::size_t kTrainingLimit = 256;  // the best half and an even sample of the rest: bounds the time at 10,000 observations
constexpr std::size_t kPool = 400;           // random candidates beside the neighbourhoods
constexpr std::size_t kTrees = 40, kFewestGrown = 3, kGrownWork = 800;  // trees grown an ask: as many as cost about two milliseconds

// Failures are known to be bad, not how bad: they get the worst correct cost seen.
struct Training {
  std::vector<const Point*> points;
  std::vector<double> y;  // log cost
};

// Best first, failures last.
Training training_set(const Archive& archive) {
  Training out;
  const std::vector<Observation>& told = archive.observations();
  const std::vector<std::uint32_t>& ranked = archive.ranked();
  if (ranked.empty()) return out;
  std::vector<const Observation*> all;
  for (const std::uint32_t i : ranked) all.push_back(&told[i]);
  for (const Observation& o : told)
    if (!o.cost) all.push_back(&o);
  const double worst = std::log(*told[ranked.back()].cost);
  const auto take = [&](const Observation& o) {
    out.points.push_back(&o.point);
    out.y.push_back(o.cost ? std::log(*o.cost) : worst);
  };
  if (all.size() <= kTrainingLimit) {
    for (const Observation* o : all) take(*o);
    return out;
  }
  constexpr std::size_t kHalf = kTrainingLimit / 2;
  for (std::size_t i = 0; i < kHalf; ++i) take(*all[i]);
  const double stride = static_cast<double>(all.size() - kHalf) / static_cast<double>(kHalf);
  for (std::size_t i = 0; i < kHalf; ++i) take(*all[kHalf + static_cast<std::size_t>(stride * static_cast<double>(i))]);
  return out;
}

// Expected improvement below `best` of a normal estimate.
double expected_improvement(double best, const Forest::Estimate& e) {
  const double s = std::max(e.deviation, 1e-6);
  const double z = (best - e.mean) / s;
  const double density = std::exp(-0.5 * z * z) / 2.5066282746310002;
  return s * (z * 0.5 * std::erfc(-z / 1.4142135623730951) + density);
}

class SurrogateProposer final : public Proposer {
 public:
  std::string_view name() const override { return "surrogate"; }

  std::optional<Point> propose(const Archive& archive, Rng& rng) override {
    constexpr std::size_t kFewest = 4;
    if (archive.best() == nullptr || archive.observations().size() < kFewest) return fresh_point(archive, rng);
    if (!forest_) forest_.emplace(archive.space(), static_cast<int>(kTrees));
    if (archive.observations().size() != fitted_at_) refit(archive, rng);

    const double best = std::log(*archive.best()->cost);
    std::optional<Point> chosen;
    double chosen_score = -1;
    const auto consider = [&](const Point& point) {
      if (archive.known(point)) return;
      const double score = expected_improvement(best, forest_->predict(point));
      if (score > chosen_score) chosen_score = score, chosen = point;
    };
    for (const Observation* elite : best_observations(archive, 5))
      for (const Point& point : archive.neighbours(elite->point, true)) consider(point);
    for (std::size_t i = 0; i < kPool; ++i)
      if (auto point = archive.random_valid(rng, 200)) consider(*point);
    return chosen ? chosen : fresh_point(archive, rng);
  }

 private:
  void refit(const Archive& archive, Rng& rng) {
    const Training t = training_set(archive);
    forest_->refresh(t.points, t.y, std::clamp(kGrownWork / t.points.size(), kFewestGrown, kTrees), rng);
    fitted_at_ = archive.observations().size();
  }
  std::optional<Forest> forest_;
  std::size_t fitted_at_ = 0;
};

class VndProposer final : public Proposer {
 public:
  std::string_view name() const override { return "vnd"; }

  std::optional<Point> propose(const Archive& archive, Rng& rng) override {
    const std::vector<const Observation*> elites = best_observations(archive, 6);
    if (elites.size() < 2) return fresh_point(archive, rng);
    const Training t = training_set(archive);
    // Neighbourhoods widen only when the narrower ones of every elite are used up.
    for (int width = 0; width < 3; ++width) {
      std::optional<Point> chosen;
      double chosen_score = 0;
      for (std::size_t e = 0; e < std::min<std::size_t>(elites.size(), width == 0 ? 1 : width == 1 ? 3 : 6); ++e) {
        const Nearby nearby(archive.space(), t, elites[e]->point);
        for (const Point& point : neighbourhood(archive, elites[e]->point, width, rng)) {
          if (archive.known(point)) continue;
          const double score = nearby.estimate(point);
          if (!chosen || score < chosen_score) chosen = point, chosen_score = score;
        }
      }
      if (chosen) return chosen;
    }
    return fresh_point(archive, rng);
  }

 private:
  static std::vector<Point> neighbourhood(const Archive& archive, const Point& centre, int width, Rng& rng) {
    if (width == 0) return archive.neighbours(centre, false);
    if (width == 1) return archive.neighbours(centre, true);
    // Where almost every pair of moves is known, or breaks a rule, a fraction of a millisecond of tries is enough.
    constexpr std::size_t kPairs = 60;
    int tries = 600;
    std::vector<Point> out;
    while (out.size() < kPairs && tries > 0 && !archive.movable().empty())
      if (auto point = perturbed(archive, centre, 2, rng, tries)) out.push_back(std::move(*point));
    return out;
  }

  // Inverse-distance mean of the observations at points near a centre: distances are sums over knobs, so that only those which differ from the
  // centre are looked at.
  class Nearby {
   public:
    Nearby(const SearchSpace& space, const Training& t, const Point& centre) : space_(space), t_(t), centre_(centre) {
      for (const Point* p : t.points) from_centre_.push_back(distance(space, centre, *p));
    }
    double estimate(const Point& point) const {
      std::vector<std::size_t> moved;
      for (std::size_t k = 0; k < point.size(); ++k)
        if (point[k] != centre_[k]) moved.push_back(k);
      double weights = 0, sum = 0;
      for (std::size_t i = 0; i < t_.points.size(); ++i) {
        const Point& other = *t_.points[i];
        double d = from_centre_[i];
        for (const std::size_t k : moved) d += knob_distance(space_, k, point[k], other[k]) - knob_distance(space_, k, centre_[k], other[k]);
        const double w = 1.0 / (d * d * d);
        weights += w;
        sum += w * t_.y[i];
      }
      return sum / weights;
    }

   private:
    const SearchSpace& space_;
    const Training& t_;
    const Point& centre_;
    std::vector<double> from_centre_;
  };
};

}  // namespace

std::unique_ptr<Proposer> surrogate_proposer() { return std::make_unique<SurrogateProposer>(); }
std::unique_ptr<Proposer> vnd_proposer() { return std::make_unique<VndProposer>(); }

}  // namespace amk
