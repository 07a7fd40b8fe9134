// bench/run strategy: what a suggestion costs when much is known, on a space of the megakernel's size (23 knobs, 4·10^12 points). The median and
// the slowest of 50 asks, each followed by its tell.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/base/json.h"
#include "core/base/random.h"
#include "orchestrator/strategy/strategy.h"

using namespace amk;

namespace {

SearchSpace space() {
  SearchSpace s;
  for (int i = 0; i < 12; ++i) {
    Knob k;
    k.name = "ordinal" + std::to_string(i);
    k.kind = KnobKind::Ordinal;
    for (int c = 0; c < 6; ++c) k.choices.push_back(1 << c);
    s.knobs.push_back(k);
  }
  for (int i = 0; i < 11; ++i) {
    Knob k;
    k.name = "flag" + std::to_string(i);
    k.kind = KnobKind::Boolean;
    k.choices = {false, true};
    s.knobs.push_back(k);
  }
  s.constraints.push_back({"storage", "these share storage", [](const Point& p) { return p[0] + p[1] + p[2] <= 9; }});
  return s;
}

double cost(const Point& p) {
  double y = 0;
  for (std::size_t k = 0; k < 12; ++k) y += 0.02 * std::pow(p[k] - static_cast<double>(k % 6), 2);
  for (std::size_t k = 12; k < p.size(); ++k) y += 0.05 * p[k] * (p[k - 12] % 2);
  return 100 * std::exp(y);
}

void line(const std::string& metric, double ms) {
  const Json out = {{"bench", "strategy"}, {"metric", metric}, {"value", ms}, {"unit", "ms"}};
  std::printf("%s\n", out.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

int main() {
  const SearchSpace s = space();
  for (const std::string& name : strategy_names()) {
    for (const std::size_t known : {100, 1000, 10000}) {
      auto strategy = make_strategy(name, s, {});
      if (!strategy) return 3;
      Rng rng(known);
      for (std::size_t told = 0; told < known;) {
        Point p;
        for (const Knob& k : s.knobs) p.push_back(static_cast<std::uint16_t>(rng.below(k.choices.size())));
        if (s.violated(p) != nullptr) continue;
        (*strategy)->tell({p, rng.below(20) == 0 ? std::nullopt : std::optional(cost(p))});
        ++told;
      }
      std::vector<double> ms;
      for (int i = 0; i < 50; ++i) {
        const auto t0 = std::chrono::steady_clock::now();
        const auto points = (*strategy)->ask(1);
        if (points.empty()) return 3;
        (*strategy)->tell({points[0], cost(points[0])});
        ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count());
      }
      std::sort(ms.begin(), ms.end());
      line(name + "/after_" + std::to_string(known) + "/median", ms[ms.size() / 2]);
      line(name + "/after_" + std::to_string(known) + "/slowest", ms.back());
    }
  }
  return 0;
}
