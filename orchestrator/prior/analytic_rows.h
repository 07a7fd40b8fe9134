// What the cost model says of a search space, as rows to learn from: a sample, and climbs from the default and from the sample's best to what the
// model likes best. Deterministic given the generator, on any number of cores.
#pragma once

#include <functional>
#include <vector>

#include "core/base/random.h"
#include "core/schedule/space.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {

// The cost model. It is asked at a few hundred points and a forest stands in for it afterwards, because strategies ask for thousands of scores.
// Both are thread-safe: they are asked on all cores.
struct AnalyticModel {
  std::function<double(const Point&)> score;  // lower is better; NaN when the point cannot run. Empty: there is no model
  // Whether a point that has a score can run after all, where that is dearer to know: asked only of those that the model likes best. Empty: it can.
  std::function<bool(const Point&)> runs;
};

// At most 1,000 rows, the default's first where it is valid; one without a cost cannot run. `analytic.score` must not be empty.
std::vector<Observation> analytic_rows(const SearchSpace& space, const AnalyticModel& analytic, Rng& rng);

}  // namespace amk
