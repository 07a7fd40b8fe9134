// Lowering time. Prints JSON objects, one a line: {bench, metric, value, unit}. Times are CPU time of this process (one thread), so that a busy
// machine does not count.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/parse_json.h"
#include "core/program/lower.h"
#include "core/program/program_json.h"

using namespace amk;

namespace {

ModelSpec shape(const char* name, int hidden, int intermediate, int layers, int heads, int kv_heads, int head_dim) {
  ModelSpec spec;
  spec.name = name;
  spec.hidden = hidden;
  spec.intermediate = intermediate;
  spec.layers = layers;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = head_dim;
  spec.vocab = 128256;
  spec.max_position = 131072;
  return spec;
}

void print(const std::string& metric, double value, const char* unit) {
  std::printf("%s\n", Json{{"bench", "lower"}, {"metric", metric}, {"value", value}, {"unit", unit}}.dump().c_str());
  std::fflush(stdout);
}

double cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// Median over repeats, in milliseconds.
template <class Work>
double median_ms(int repeats, Work work) {
  std::vector<double> samples;
  for (int i = 0; i < repeats; ++i) {
    const double begin = cpu_ms();
    work();
    samples.push_back(cpu_ms() - begin);
  }
  std::nth_element(samples.begin(), samples.begin() + repeats / 2, samples.end());
  return samples[static_cast<std::size_t>(repeats / 2)];
}

Program lowered(const ModelSpec& spec, const ScheduleConfig& config) {
  auto program = lower(spec, config, {132, 232448, 2048, {}}, {});
  if (!program) {
    std::fprintf(stderr, "bench/lower: %s\n", program.error().message.c_str());
    std::exit(1);
  }
  return std::move(*program);
}

}  // namespace

int main() {
  const ModelSpec small = shape("llama-3.2-1b", 2048, 8192, 16, 32, 8, 64);
  const ModelSpec large = shape("llama-3.1-70b", 8192, 28672, 80, 64, 8, 128);
  const Program program = lowered(small, {});
  print("llama-3.2-1b tasks", static_cast<double>(program.tasks.size()), "tasks");
  print("llama-3.2-1b default config", median_ms(51, [&] { (void)lowered(small, {}); }), "ms");
  print("llama-3.1-70b tasks", static_cast<double>(lowered(large, {}).tasks.size()), "tasks");
  print("llama-3.1-70b default config", median_ms(11, [&] { (void)lowered(large, {}); }), "ms");

  // Growth: round robin makes a task of every tile, so N_tile sets the number of tasks.
  for (const int n_tile : {512, 128, 32, 16, 8}) {
    ScheduleConfig config;
    config.sm_assignment = SmAssignment::RoundRobin;
    config.gemv_n_tile = n_tile;
    const auto tasks = static_cast<double>(lowered(large, config).tasks.size());
    print("round robin, " + std::to_string(static_cast<long>(tasks)) + " tasks, time per task",
          median_ms(7, [&] { (void)lowered(large, config); }) / tasks * 1e6, "ns");
  }

  std::string text;
  print("llama-3.2-1b to JSON text", median_ms(5, [&] { text = canonical_dump(to_json(program)); }), "ms");
  print("llama-3.2-1b JSON text", static_cast<double>(text.size()) / 1e6, "MB");
  print("llama-3.2-1b from JSON text",
        median_ms(5,
                  [&] {
                    const auto json = parse_json(text, "program", {std::size_t{1} << 30, 64});
                    if (!json || !program_from_json(*json)) std::exit(1);
                  }),
        "ms");
  return 0;
}
