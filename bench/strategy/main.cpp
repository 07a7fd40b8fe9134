// bench/run strategy: what a suggestion costs when much is known, on a space of the megakernel's size (23 knobs, 4·10^12 points). The median and
// the slowest of 200 asks, each followed by its tell: elapsed, and in the thread's processor time, which is what it takes of an idle core where
// the machine is busy with other things.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/base/json.h"
#include "core/base/random.h"
#include "orchestrator/prior/corpus_prior.h"
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

double processor_ms() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

// Knows the half of the knobs that comes first; learned from 2,000 rows, as a prior from another GPU is.
std::shared_ptr<const Prior> sibling(const SearchSpace& s) {
  PriorSource source;
  source.name = "sibling";
  Rng rng(7);
  while (source.rows.size() < 2000) {
    Point p;
    for (const Knob& k : s.knobs) p.push_back(static_cast<std::uint16_t>(rng.below(k.choices.size())));
    if (s.violated(p) != nullptr) continue;
    Point half = p;
    for (std::size_t k = p.size() / 2; k < p.size(); ++k) half[k] = 0;
    source.rows.push_back({p, cost(half)});
  }
  return learn_prior(s, {}, {std::move(source)}, {}, 7).prior;
}

void line(const std::string& metric, double ms) {
  const Json out = {{"bench", "strategy"}, {"metric", metric}, {"value", ms}, {"unit", "ms"}};
  std::printf("%s\n", out.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

int main() {
  constexpr int kAsks = 200;
  const SearchSpace s = space();
  const std::shared_ptr<const Prior> prior = sibling(s);
  std::vector<std::pair<std::string, StrategyOptions>> all;
  for (const std::string& name : strategy_names()) all.emplace_back(name, StrategyOptions{});
  all.emplace_back(std::string(kDefaultStrategy), StrategyOptions{});
  all.back().second.prior = prior;
  for (const auto& [name, options] : all) {
    for (const std::size_t known : {100, 1000, 10000}) {
      auto strategy = make_strategy(name, s, options);
      if (!strategy) return 3;
      Rng rng(known);
      for (std::size_t told = 0; told < known;) {
        Point p;
        for (const Knob& k : s.knobs) p.push_back(static_cast<std::uint16_t>(rng.below(k.choices.size())));
        if (s.violated(p) != nullptr) continue;
        (*strategy)->tell({p, rng.below(20) == 0 ? std::nullopt : std::optional(cost(p))});
        ++told;
      }
      std::vector<double> elapsed, processor;
      for (int i = 0; i < kAsks; ++i) {
        const auto t0 = std::chrono::steady_clock::now();
        const double p0 = processor_ms();
        const auto points = (*strategy)->ask(1);
        if (points.empty()) return 3;
        (*strategy)->tell({points[0], cost(points[0])});
        processor.push_back(processor_ms() - p0);
        elapsed.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count());
      }
      std::sort(elapsed.begin(), elapsed.end());
      std::sort(processor.begin(), processor.end());
      const std::string prefix = name + (options.prior ? "+prior" : "") + "/after_" + std::to_string(known) + "/";
      line(prefix + "median", elapsed[elapsed.size() / 2]);
      line(prefix + "slowest", elapsed.back());
      line(prefix + "processor_median", processor[processor.size() / 2]);
      line(prefix + "processor_slowest", processor.back());
    }
  }
  return 0;
}
