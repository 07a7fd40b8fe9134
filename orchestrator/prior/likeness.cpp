#include <algorithm>
#include <cmath>

#include "orchestrator/prior/corpus_prior.h"

namespace amk {

double likeness(const Features& a, const Features& b) {
  constexpr double kUnknown = 0.3;
  double sum = 0;
  int shared = 0;
  for (const auto& [name, x] : a) {
    const auto at = b.find(name);
    if (at == b.end()) continue;
    const double y = at->second;
    // Sizes and rates are positive: what counts is their ratio. Others (flags, zeros) count as alike or not.
    sum += x > 0 && y > 0 ? std::min(3.0, std::abs(std::log(x / y))) : x == y ? 0.0 : 1.0;
    ++shared;
  }
  return shared == 0 ? kUnknown : std::exp(-sum / shared);
}

}  // namespace amk
