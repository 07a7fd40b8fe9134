// What an evaluation costs where there is no GPU. Prints JSON objects, one a line: {bench, metric, value, unit}. Times are CPU time of this
// process, so that a busy machine does not count; "wall" ones are elapsed time.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/resources.h"
#include "core/program/validator.h"
#include "core/reference/reference_vm.h"
#include "core/target/cost_model.h"
#include "kernels/megakernel/gpu_layout.h"
#include "kernels/megakernel/workload.h"
#include "kernels/registry.h"

using namespace amk;

namespace {

void print(const std::string& metric, double value, const char* unit) {
  std::printf("%s\n", Json{{"bench", "predict"}, {"metric", metric}, {"value", value}, {"unit", unit}}.dump().c_str());
  std::fflush(stdout);
}

double ms(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

template <class Work>
double median_ms(int repeats, clockid_t clock, Work work) {
  std::vector<double> samples;
  for (int i = 0; i < repeats; ++i) {
    const double begin = ms(clock);
    work();
    samples.push_back(ms(clock) - begin);
  }
  std::nth_element(samples.begin(), samples.begin() + repeats / 2, samples.end());
  return samples[static_cast<std::size_t>(repeats / 2)];
}

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench/predict: %s\n", result.error().message.c_str());
  std::exit(1);
}

}  // namespace

int main() {
  const GpuTarget target = need(load_gpu_target("h200", need(find_resources()).config() / "gpus"));
  constexpr int kRepeats = 15;
  for (const char* name : {"llama-3.2-1b", "llama-3.1-8b", "smollm2-135m", "toy"}) {
    const std::string prefix = std::string(name) + "/";
    const auto shared = need(open_workload(name, target));
    const auto& workload = dynamic_cast<const MegakernelWorkload&>(*shared);
    const ScheduleConfig config = need(workload.parse(workload.default_config()));
    const ModelSpec& spec = workload.model().spec;
    const auto lower_once = [&] { return need(lower(spec, config, workload.lowering_target(), gpu_format(spec.dtype))); };
    const Program program = lower_once();
    const auto part = [&](const char* metric, const auto& work) {
      print(prefix + metric, median_ms(kRepeats, CLOCK_PROCESS_CPUTIME_ID, work), "ms cpu");
    };
    print(prefix + "tasks", static_cast<double>(program.tasks.size()), "tasks");
    print(prefix + "predicted", predict(program, config, target, kPredictPosition).latency_us, "us");
    part("lower", [&] { lower_once(); });
    part("validate", [&] { validate(program); });
    part("predict", [&] { predict(program, config, target, kPredictPosition); });
    part("dry_run", [&] { need(Result<int>(dry_run(program).map([] { return 0; }))); });
    part("predict_us", [&] { need(workload.predict_us(workload.default_config())); });
    // The first judgement of a workload also makes weights and the oracle's logits.
    const double wall = ms(CLOCK_MONOTONIC), cpu = ms(CLOCK_PROCESS_CPUTIME_ID);
    need(workload.judge_on_cpu(workload.default_config(), {}));
    print(prefix + "first judgement", ms(CLOCK_PROCESS_CPUTIME_ID) - cpu, "ms cpu");
    print(prefix + "first judgement", ms(CLOCK_MONOTONIC) - wall, "ms wall");
    part("judgement", [&] { need(workload.judge_on_cpu(workload.default_config(), {})); });
    print(prefix + "judgement", median_ms(kRepeats, CLOCK_MONOTONIC, [&] { need(workload.judge_on_cpu(workload.default_config(), {})); }), "ms wall");
  }
  return 0;
}
