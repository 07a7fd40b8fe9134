// bench/run replay [--spaces DIR|FILE] [--strategy NAME|all] [--repeats N] [--limit N] [--seed N] [--samples N]
// For every space and strategy one JSON line a metric; evaluations that a repeat did not reach within the limit count as above it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>

#include "bench/replay/recorded_space.h"
#include "core/base/json.h"
#include "core/base/stats.h"
#include "orchestrator/strategy/strategy.h"

using namespace amk;

namespace {

struct Options {
  std::filesystem::path spaces;
  std::string strategy = std::string(kDefaultStrategy);
  int repeats = 100;
  std::size_t limit = 3000;
  std::uint64_t seed = 1;
  int samples = 7;  // runtimes that one evaluation sees
};

constexpr std::size_t kCheckpoints[] = {25, 50, 100, 200};

struct Run {
  double to95 = std::numeric_limits<double>::infinity(), to99 = std::numeric_limits<double>::infinity();
  std::vector<double> fraction;  // of the optimum, true cost of the incumbent, after evaluation i
  double ms_per_ask = 0;
};

Run replay(const RecordedSpace& recorded, const std::string& name, std::uint64_t seed, const Options& options) {
  StrategyOptions strategy_options;
  strategy_options.seed = seed;
  auto strategy = make_strategy(name, recorded.space(), strategy_options);
  if (!strategy) {
    std::cerr << strategy.error().message << "\n";
    std::exit(2);
  }
  Rng noise(mix64(seed ^ 0xA5A5));
  Run run;
  double incumbent = std::numeric_limits<double>::infinity(), incumbent_true = incumbent, busy_ms = 0;
  std::size_t evaluations = 0;
  while (evaluations < options.limit && (evaluations < kCheckpoints[3] || run.to99 > 1e18)) {
    const auto t0 = std::chrono::steady_clock::now();
    const std::vector<Point> points = (*strategy)->ask(1);
    busy_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count();
    if (points.empty()) break;
    const auto seen = recorded.noisy_cost(points[0], options.samples, noise);
    ++evaluations;
    if (seen && *seen < incumbent) {
      incumbent = *seen;
      incumbent_true = *recorded.true_cost(points[0]);
    }
    const double fraction = std::isinf(incumbent_true) ? 0 : recorded.optimum() / incumbent_true;
    run.fraction.push_back(fraction);
    if (fraction >= 0.95 && std::isinf(run.to95)) run.to95 = static_cast<double>(evaluations);
    if (fraction >= 0.99 && std::isinf(run.to99)) run.to99 = static_cast<double>(evaluations);
    const auto t1 = std::chrono::steady_clock::now();
    (*strategy)->tell({points[0], seen});
    busy_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t1).count();
  }
  run.ms_per_ask = busy_ms / static_cast<double>(std::max<std::size_t>(evaluations, 1));
  return run;
}

// Each configuration against itself: its even samples as the incumbent's, its odd ones as the candidate's (measured in turn, as our clock does).
double false_keep_rate(const RecordedSpace& recorded) {
  std::size_t judged = 0, kept = 0;
  for (const auto& samples : recorded.samples()) {
    if (samples.size() < 10) continue;
    std::vector<double> a, b;
    for (std::size_t i = 0; i < samples.size(); ++i) (i % 2 ? b : a).push_back(samples[i]);
    ++judged;
    if (decide(paired_ratio(a, b, judged)) == Comparison::Faster) ++kept;
  }
  return judged == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(kept) / static_cast<double>(judged);
}

void line(const std::string& metric, double value, const char* unit) {
  Json out = {{"bench", "replay"}, {"metric", metric}, {"unit", unit}};
  out["value"] = std::isfinite(value) ? Json(value) : Json(nullptr);  // null: not reached within the limit
  std::cout << out.dump() << "\n" << std::flush;
}

void report(const RecordedSpace& recorded, const std::string& strategy, const Options& options) {
  std::vector<double> to95, to99, ms;
  std::vector<std::vector<double>> at(std::size(kCheckpoints));
  for (int r = 0; r < options.repeats; ++r) {
    const Run run = replay(recorded, strategy, mix64(options.seed * 1'000'003 + static_cast<std::uint64_t>(r)), options);
    to95.push_back(run.to95);
    to99.push_back(run.to99);
    ms.push_back(run.ms_per_ask);
    for (std::size_t c = 0; c < std::size(kCheckpoints); ++c)
      if (!run.fraction.empty()) at[c].push_back(run.fraction[std::min(kCheckpoints[c], run.fraction.size()) - 1]);
  }
  const std::string prefix = recorded.name() + "/" + strategy + "/";
  const auto lower = [](std::vector<double> v, double q) {  // an order statistic: no interpolation towards infinity
    std::sort(v.begin(), v.end());
    return v[std::min(v.size() - 1, static_cast<std::size_t>(q * static_cast<double>(v.size())))];
  };
  for (const auto& [name, values] : {std::pair{"95", &to95}, std::pair{"99", &to99}}) {
    line(prefix + "evaluations_to_" + name + "_median", lower(*values, 0.5), "evaluations");
    line(prefix + "evaluations_to_" + name + "_q25", lower(*values, 0.25), "evaluations");
    line(prefix + "evaluations_to_" + name + "_q75", lower(*values, 0.75), "evaluations");
  }
  for (std::size_t c = 0; c < std::size(kCheckpoints); ++c)
    line(prefix + "fraction_of_optimum_at_" + std::to_string(kCheckpoints[c]), median(at[c]), "ratio");
  line(prefix + "overhead_per_evaluation", median(ms), "ms");
}

int usage(const std::string& problem) {
  std::cerr << "replay: " << problem
            << "\nusage: bench/run replay --spaces DIR|FILE [--strategy NAME|all] [--repeats N] [--limit N] [--seed N] [--samples N]\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 >= argc) return usage(flag + " needs a value");
    const std::string value = argv[++i];
    if (flag == "--spaces")
      options.spaces = value;
    else if (flag == "--strategy")
      options.strategy = value;
    else {
      char* end = nullptr;
      const long number = std::strtol(value.c_str(), &end, 10);
      if (*end != 0 || number < 1) return usage(flag + " is " + value + "; accepted: a whole number from 1");
      if (flag == "--repeats")
        options.repeats = static_cast<int>(number);
      else if (flag == "--limit")
        options.limit = static_cast<std::size_t>(number);
      else if (flag == "--seed")
        options.seed = static_cast<std::uint64_t>(number);
      else if (flag == "--samples")
        options.samples = static_cast<int>(number);
      else
        return usage("unknown option " + flag);
    }
  }
  if (options.spaces.empty()) return usage("--spaces names a folder of recorded spaces, or one file");
  std::vector<std::filesystem::path> files;
  std::error_code code;
  if (std::filesystem::is_directory(options.spaces, code)) {
    for (const auto& entry : std::filesystem::directory_iterator(options.spaces, code))
      if (entry.path().extension() == ".tsv") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(options.spaces);
  }
  if (files.empty()) return usage(options.spaces.string() + " holds no .tsv file");
  const std::vector<std::string> strategies = options.strategy == "all" ? strategy_names() : std::vector<std::string>{options.strategy};
  for (const auto& file : files) {
    auto recorded = RecordedSpace::load(file);
    if (!recorded) return usage(recorded.error().message);
    for (const std::string& strategy : strategies) report(*recorded, strategy, options);
    line(recorded->name() + "/false_keep_rate", false_keep_rate(*recorded), "ratio");
  }
  return 0;
}
