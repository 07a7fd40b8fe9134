#include "orchestrator/strategy/correction.h"

#include <cmath>

namespace amk {

std::unique_ptr<const Correction> Correction::learn(const SearchSpace& space, const std::vector<Row>& rows) {
  constexpr double kSame = 1e-6;
  constexpr int kFits = 3, kSteps = 60;
  std::vector<const Point*> points;
  std::vector<double> ratios;
  bool differs = false;
  for (const Row& row : rows) {
    if (!(row.recorded_us > 0) || !(row.predicted_us > 0)) continue;
    points.push_back(&row.point);
    ratios.push_back(std::log(row.recorded_us / row.predicted_us));
    differs = differs || std::abs(ratios.back()) > kSame;
  }
  if (points.size() < kFewestRows || !differs) return nullptr;
  std::unique_ptr<Correction> out(new Correction(space));
  Rng rng(points.size());
  for (int i = 0; i < kFits; ++i) out->process_.fit(points, ratios, {}, kSteps, rng);
  out->rows_ = points.size();
  return out;
}

Correction::Estimate Correction::at(const Point& point, double predicted_us) const {
  const auto e = process_.predict({&point}).front();
  constexpr double kCentral95 = 1.96;
  return {predicted_us * std::exp(e.mean), predicted_us * std::exp(e.mean - kCentral95 * e.deviation),
          predicted_us * std::exp(e.mean + kCentral95 * e.deviation)};
}

}  // namespace amk
