// Model-guided search: a forest with expected improvement, and variable neighbourhood descent with a nearest-neighbour surrogate.
#include <algorithm>
#include <cmath>

#include "orchestrator/strategy/forest.h"
#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/proposer.h"

namespace amk {
namespace {

constexpr std::size_t kTrainingLimit = 600;  // the best half and an even sample of the rest: bounds the time at 10,000 observations
constexpr std::size_t kPool = 400;           // random candidates beside the neighbourhoods

// Failures are known to be bad, not how bad: they get the worst correct cost seen.
struct Training {
  std::vector<const Point*> points;
  std::vector<double> y;  // log cost
};

Training training_set(const Archive& archive) {
  Training out;
  double worst = 0;
  bool any = false;
  for (const Observation& o : archive.observations())
    if (o.cost) worst = any ? std::max(worst, std::log(*o.cost)) : std::log(*o.cost), any = true;
  if (!any) return out;
  std::vector<std::pair<double, const Point*>> all;
  for (const Observation& o : archive.observations()) all.emplace_back(o.cost ? std::log(*o.cost) : worst, &o.point);
  if (all.size() > kTrainingLimit) {
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    constexpr std::size_t kHalf = kTrainingLimit / 2;
    std::vector<std::pair<double, const Point*>> kept(all.begin(), all.begin() + kHalf);
    const double stride = static_cast<double>(all.size() - kHalf) / static_cast<double>(kHalf);
    for (std::size_t i = 0; i < kHalf; ++i) kept.push_back(all[kHalf + static_cast<std::size_t>(stride * static_cast<double>(i))]);
    all = std::move(kept);
  }
  for (const auto& [y, point] : all) out.y.push_back(y), out.points.push_back(point);
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
    if (!forest_) forest_.emplace(archive.space(), 40);
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
    // Large archives change little with one more observation: refit on every 2%.
    if (forest_->fitted() && archive.observations().size() < fitted_at_ + fitted_at_ / 50) return;
    const Training t = training_set(archive);
    forest_->fit(t.points, t.y, rng);
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
        for (const Point& point : neighbourhood(archive, elites[e]->point, width, rng)) {
          if (archive.known(point)) continue;
          const double score = nearest_estimate(archive.space(), t, point);
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
    std::vector<Point> out;
    for (int i = 0; i < 60; ++i)
      if (auto point = perturbed(archive, centre, 2, rng)) out.push_back(std::move(*point));
    return out;
  }

  // Inverse-distance mean of the observations.
  static double nearest_estimate(const SearchSpace& space, const Training& t, const Point& point) {
    double weights = 0, sum = 0;
    for (std::size_t i = 0; i < t.points.size(); ++i) {
      const double d = distance(space, point, *t.points[i]);
      const double w = 1.0 / (d * d * d);
      weights += w;
      sum += w * t.y[i];
    }
    return sum / weights;
  }
};

}  // namespace

std::unique_ptr<Proposer> surrogate_proposer() { return std::make_unique<SurrogateProposer>(); }
std::unique_ptr<Proposer> vnd_proposer() { return std::make_unique<VndProposer>(); }

}  // namespace amk
