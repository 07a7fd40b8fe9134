#include "orchestrator/service/suggestions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/base/random.h"

namespace amk {
namespace {

// Relative. Timing does not resolve less, and the cost model errs by 1% where it has a term for the knob at all (docs/cost-model.md).
constexpr double kSame = 5e-4;

std::size_t differing_knob(const Point& a, const Point& b) {
  std::size_t k = 0;
  while (k < a.size() && a[k] == b[k]) ++k;
  return k;
}

// Untried neighbours, the first of every knob, then the second, and so on. Within a knob: nearest choice first. The order of knobs changes whenever
// something was tried.
std::vector<Point> in_turns(const Archive& archive, const Point& incumbent) {
  std::vector<std::vector<Point>> by_knob(incumbent.size());
  for (Point& p : archive.neighbours(incumbent, true))
    if (!archive.known(p)) by_knob[differing_knob(p, incumbent)].push_back(std::move(p));
  for (std::size_t k = 0; k < by_knob.size(); ++k)
    std::stable_sort(by_knob[k].begin(), by_knob[k].end(), [&](const Point& a, const Point& b) {
      return std::abs(int{a[k]} - int{incumbent[k]}) < std::abs(int{b[k]} - int{incumbent[k]});
    });
  Rng rng(archive.asked_or_told() + 1);
  for (std::size_t i = by_knob.size(); i > 1; --i) std::swap(by_knob[i - 1], by_knob[rng.below(i)]);
  std::vector<Point> out;
  for (std::size_t turn = 0, before = 1; before != 0; ++turn) {
    before = 0;
    for (auto& points : by_knob)
      if (turn < points.size()) out.push_back(std::move(points[turn])), ++before;
  }
  return out;
}

// Of the logarithm of the latency below the incumbent's (Jones, Schonlau, Welch 1998).
double expected_improvement(const Correction::Estimate& e, double incumbent_us) {
  constexpr double kCentral95 = 2 * 1.96;
  const double s = std::max(1e-9, std::log(e.high_us / e.low_us) / kCentral95);
  const double z = std::log(incumbent_us / e.us) / s;
  return s * (z * 0.5 * std::erfc(-z / 1.4142135623730951) + std::exp(-0.5 * z * z) / 2.5066282746310002);
}

}  // namespace

Suggestions suggest(const Archive& archive, const Point& incumbent, const SuggestionModel& model, std::size_t wanted) {
  const auto corrected = [&](const Point& p, double us) {
    return model.correction != nullptr ? model.correction->at(p, us) : Correction::Estimate{us, us, us};
  };
  const auto differs = [&](double us) { return std::abs(us / model.incumbent_us - 1) >= kSame; };
  std::vector<bool> moved(incumbent.size(), false);
  for (const Observation& o : archive.observations())
    for (std::size_t k = 0; k < incumbent.size(); ++k)
      if (o.point[k] != incumbent[k]) moved[k] = true;

  Suggestions out;
  struct Ranked {
    Suggestion s;
    int group = 0;
    double score = 0;  // less is better
  };
  std::vector<Ranked> ranked;
  const std::vector<Point> points = in_turns(archive, incumbent);
  out.neighbours = points.size();
  std::vector<std::optional<double>> ranks;
  while (out.ranked < points.size() && (out.ranked == 0 || !model.expired())) {
    const auto some = std::span(points).subspan(out.ranked, std::min(model.at_once, points.size() - out.ranked));
    for (const auto& us : model.rank_us(some)) ranks.push_back(us);
    out.ranked = ranks.size();
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Point& p = points[i];
    const auto& us = ranks[i];
    if (!us) continue;
    Ranked r{{p, differing_knob(p, incumbent), corrected(p, *us), false}};
    r.s.told_apart = differs(r.s.estimate.us);
    out.told_apart += r.s.told_apart;
    if (model.correction != nullptr) {
      r.score = -expected_improvement(r.s.estimate, model.incumbent_us);
    } else if (r.s.told_apart) {
      r.group = r.s.estimate.us < model.incumbent_us ? 0 : 3;
      r.score = r.s.estimate.us;
    } else {
      r.group = moved[r.s.knob] ? 2 : 1;
    }
    ranked.push_back(std::move(r));
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.group != b.group ? a.group < b.group : a.score < b.score; });

  std::map<std::size_t, std::size_t> used;  // by knob
  for (Ranked& r : ranked) {
    if (out.best.size() == wanted) break;
    if (used[r.s.knob] >= (r.s.told_apart ? 2u : 1u)) continue;
    const auto us = model.predict_us(r.s.point);
    if (!us) continue;
    r.s.estimate = corrected(r.s.point, *us);
    ++used[r.s.knob];
    out.best.push_back(std::move(r.s));
  }
  return out;
}

}  // namespace amk
