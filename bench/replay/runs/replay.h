// One strategy's run over a recorded space, and many of them. Repeats run side by side on the machine's cores; each depends on its seed alone.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "bench/replay/recorded/recorded_space.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {

struct ReplayOptions {
  std::string strategy;
  int repeats = 100;
  std::size_t limit = 3000;  // evaluations; one that 95% or 99% took longer counts as infinity
  std::uint64_t seed = 1;
  int samples = 7;             // runtimes that one evaluation sees
  std::size_t at_least = 200;  // evaluations of every repeat, also when it has reached `goal`
  double goal = 0.99;          // of the optimum: where a repeat may end
  int threads = 0;             // 0: one a core
  bool paired = false;         // noise as seen_cost() draws it, to compare runs of one seed; else in the order of evaluation
  std::shared_ptr<const Prior> prior;
};

struct ReplayRun {
  double to95 = std::numeric_limits<double>::infinity(), to99 = std::numeric_limits<double>::infinity();
  std::vector<double> fraction;  // of the optimum, true cost of the incumbent, after evaluation i
  double ms_per_evaluation = 0;
};

// What a run of this seed sees of a configuration. The noise depends on both alone: two searches of one seed see the same configuration alike,
// whenever they come to it, so that their runs can be compared pair by pair.
std::optional<double> seen_cost(const RecordedSpace& recorded, const Point& point, int samples, std::uint64_t seed);

// InvalidArgument names the strategies that exist.
Result<std::vector<ReplayRun>> replay(const RecordedSpace& recorded, const ReplayOptions& options);

// Each configuration with at least ten samples against itself: its even samples as the incumbent's, its odd ones as the candidate's, judged by
// the keep rule. NaN when no configuration has so many.
double false_keep_rate(const RecordedSpace& recorded);

}  // namespace amk
