// The validator's speed and its answers. Prints JSON objects, one a line: {bench, metric, value, unit}. Times are CPU time of this process (one
// thread), so that a busy machine does not count. Exit 1 if any answer was wrong.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/base/json.h"
#include "core/program/lower.h"
#include "core/program/validator.h"
#include "tests/support/programs/mutation_suite.h"

using namespace amk;
using namespace amk::testing;

namespace {

void print(const std::string& metric, double value, const char* unit) {
  std::printf("%s\n", Json{{"bench", "validator"}, {"metric", metric}, {"value", value}, {"unit", unit}}.dump().c_str());
  std::fflush(stdout);
}

double cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// The widths of llama-3.2-1b on 132 SMs; layers, or tiles that stay tasks of their own (round robin), set the number of tasks.
void growth(const std::string& curve, int layers, const ScheduleConfig& config) {
  ModelSpec spec;
  spec.name = "llama";
  spec.hidden = 2048;
  spec.intermediate = 8192;
  spec.layers = layers;
  spec.heads = 32;
  spec.kv_heads = 8;
  spec.head_dim = 64;
  spec.vocab = 128256;
  spec.max_position = 131072;
  const Result<Program> program = lower(spec, config, {132, 232448, 2048, {}}, {});
  if (!program) {
    std::fprintf(stderr, "bench/validator: %s\n", program.error().message.c_str());
    std::exit(1);
  }
  double best = 1e300;
  for (int i = 0; i < 5; ++i) {
    const double begin = cpu_ms();
    const Validation v = validate(*program);
    best = std::min(best, cpu_ms() - begin);
    if (!v.valid()) {
      std::fprintf(stderr, "bench/validator: %s\n", to_json(*v.rejection).dump().c_str());
      std::exit(1);
    }
  }
  const std::string at = curve + ", " + std::to_string(program->tasks.size()) + " tasks";
  print(at, best, "ms");
  print(at + ", per task", best * 1e3 / static_cast<double>(program->tasks.size()), "us");
}

bool mutants(std::int64_t count, const char* table) {
  SuiteOptions options;
  options.seed = 1;
  options.mutants = count;
  options.complain = [](const std::string& report) { std::fprintf(stderr, "bench/validator: %s\n", report.c_str()); };
  const double begin = cpu_ms();
  const SuiteResult result = run_suite(options);
  const double seconds = (cpu_ms() - begin) / 1e3;
  const KindCount all = result.total();
  for (int m = 0; m < kMutations; ++m) {
    const KindCount& k = result.kinds[static_cast<std::size_t>(m)];
    const std::string name = "mutants: " + std::string(to_string(static_cast<Mutation>(m)));
    print(name, static_cast<double>(k.mutants), "programs");
    print(name + ", refused", static_cast<double>(k.rejected + k.wrong_footprint), "programs");
  }
  print("mutants", static_cast<double>(all.mutants), "programs");
  print("mutants refused", static_cast<double>(all.rejected + all.wrong_footprint), "programs");
  print("mutants refused by the proof that the adversary broke", static_cast<double>(all.rejected_broken), "programs");
  print("mutants accepted, unbroken", static_cast<double>(all.accepted_unbroken), "programs");
  print("false accepts", static_cast<double>(all.false_accepts), "programs");
  print("valid programs", static_cast<double>(result.programs), "programs");
  print("false rejects", static_cast<double>(result.false_rejects + result.broken_bases), "programs");
  print("adversarial schedules", static_cast<double>(result.schedules), "runs");
  print("mutation suite", seconds, "s");
  if (table != nullptr) std::ofstream(table) << markdown_table(result);
  return all.false_accepts == 0 && result.false_rejects == 0 && result.broken_bases == 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (const int layers : {8, 16, 32, 64, 128}) growth("layers", layers, {});
  for (const int n_tile : {64, 32, 16, 8}) {
    ScheduleConfig config;
    config.sm_assignment = SmAssignment::RoundRobin;
    config.gemv_n_tile = n_tile;
    growth("tiles", 16, config);
  }
  const std::int64_t count = argc > 1 ? std::atoll(argv[1]) : 100000;
  return mutants(count, argc > 2 ? argv[2] : nullptr) ? 0 : 1;
}
