// bench/run host_part [MODEL] [SECONDS a figure]. What bounds evaluations a minute when GPUs are many: plans and builds of a search's candidates by
// as many threads at once as there are processors, the same by processes (a lock inside NVRTC would show as a difference), and the oracle's answer to
// fresh tokens, asked by one judgement and by several. Elapsed time, so on a busy machine it counts.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "core/base/parallel.h"
#include "core/base/random.h"
#include "core/base/resources.h"
#include "core/model/load.h"
#include "kernels/megakernel/gpu_gate.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/workload.h"
#include "kernels/registry.h"

using namespace amk;

namespace {

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench/host_part: %s\n", result.error().message.c_str());
  std::exit(result.error().kind == ErrorKind::Unavailable ? 77 : 1);
}

void print(const std::string& metric, double value, const char* unit) {
  std::printf("%s\n", Json{{"bench", "host_part"}, {"metric", metric}, {"value", value}, {"unit", unit}}.dump().c_str());
  std::fflush(stdout);
}

double elapsed_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double processor_s() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

std::vector<ScheduleConfig> candidates(const MegakernelWorkload& workload, std::size_t count) {
  std::vector<ScheduleConfig> out;
  Rng rng(7);
  const SearchSpace& space = workload.space();
  while (out.size() < count) {
    Point p;
    for (const Knob& knob : space.knobs) p.push_back(static_cast<std::uint16_t>(rng.below(knob.choices.size())));
    const auto canonical = workload.canonical(workload.config_at(p));
    if (!canonical) continue;
    const auto config = workload.parse(*canonical);
    if (config && workload.proved_program(*config)) out.push_back(*config);
  }
  return out;
}

// How often `work` (given a number that counts up) ends within about `seconds`, on `threads` threads: a second.
template <class Work>
double rate(int threads, double seconds, const Work& work) {
  std::atomic<std::size_t> next{0}, done{0};
  std::atomic<double> last{0};
  const double begin = elapsed_s();
  {
    std::vector<std::jthread> all;
    for (int t = 0; t < threads; ++t)
      all.emplace_back([&] {
        while (elapsed_s() - begin < seconds) {
          work(next++);
          ++done;
        }
      });
  }
  return static_cast<double>(done) / (elapsed_s() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "smollm2-135m";
  const double seconds = argc > 2 ? std::max(0.1, std::atof(argv[2])) : 3;
  const GpuTarget target = need(load_gpu_target("h200", need(find_resources()).config() / "gpus"));
  const auto shared = need(open_workload(model, target));
  const auto* workload = dynamic_cast<const MegakernelWorkload*>(shared.get());
  if (workload == nullptr) return std::fprintf(stderr, "bench/host_part: %s is no whole model\n", model.c_str()), 2;
  const ModelSpec& spec = workload->model().spec;
  const int max_seq = workload->lowering_target().max_seq, processors = resolve_threads(0);
  const NvrtcCompiler compiler = need(NvrtcCompiler::open());
  const DeviceLimits limits = limits_of(target);
  const std::vector<ScheduleConfig> configs = candidates(*workload, 16);
  std::vector<CompileRequest> requests;
  for (const ScheduleConfig& config : configs)
    if (auto planned = plan_candidate(spec, config, limits, max_seq)) requests.push_back(planned->plan.request);
  if (requests.empty()) return std::fprintf(stderr, "bench/host_part: no candidate could be planned\n"), 1;
  const auto plan = [&](std::size_t i) { (void)plan_candidate(spec, configs[i % configs.size()], limits, max_seq); };
  const auto build = [&](std::size_t i) { need(compiler.compile(requests[i % requests.size()])); };
  build(0);  // the library's own start

  std::vector<int> counts{1};
  for (int n = 2; n < processors; n *= 2) counts.push_back(n);
  if (processors > 1) counts.push_back(processors);
  const auto at_once = [](int n) { return std::to_string(n) + "_at_once"; };
  for (const int n : counts) print(model + "/plans/" + at_once(n), rate(n, seconds, plan), "plans/s");
  for (const int n : counts) {
    const double cpu = processor_s(), wall = elapsed_s();
    print(model + "/builds/" + at_once(n), rate(n, seconds, build), "builds/s");
    print(model + "/builds/" + at_once(n) + "/processors_used", (processor_s() - cpu) / (elapsed_s() - wall), "processors");
  }
  for (const int n : counts) {
    // Each process counts its own builds in its exit code.
    const double begin = elapsed_s();
    std::vector<pid_t> children;
    for (int i = 0; i < n; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        int done = 0;
        for (; done < 255 && elapsed_s() - begin < seconds; ++done) build(static_cast<std::size_t>(i + done));
        std::_Exit(done);
      }
      if (child > 0) children.push_back(child);
    }
    int done = 0;
    for (const pid_t child : children) {
      int status = 0;
      if (::waitpid(child, &status, 0) == child && WIFEXITED(status)) done += WEXITSTATUS(status);
    }
    print(model + "/builds_by_processes/" + at_once(n), done / (elapsed_s() - begin), "builds/s");
  }

  double begin = elapsed_s();
  const auto weights = need(load_weights(workload->model()));
  print(model + "/weights", elapsed_s() - begin, "s");
  begin = elapsed_s();
  const auto reference_plan = GpuReference::plan(spec, max_seq, 1);
  const auto oracle = need(GpuOracle::create(weights, reference_plan, 1, {}));
  print(model + "/oracle", elapsed_s() - begin, "s");
  print(model + "/oracle/positions", static_cast<double>(reference_plan.positions.size()), "positions");
  print(model + "/oracle/steps", reference_plan.positions.back() + 1, "steps");
  for (const int n : {1, 2, 4})
    print(model + "/answers/" + at_once(n), rate(n, seconds, [&](std::size_t i) { need(oracle->answer(oracle->redraw(i))); }), "answers/s");
  // As in a search: answers while other candidates are planned and built.
  std::jthread beside[8];
  std::atomic<bool> stop{false};
  for (int i = 0; i < std::min(8, processors - 1); ++i)
    beside[i] = std::jthread([&, i] {
      for (auto b = static_cast<std::size_t>(i); !stop; ++b) build(b);
    });
  print(model + "/answers/beside_" + std::to_string(std::min(8, processors - 1)) + "_builds",
        rate(1, seconds, [&](std::size_t i) { need(oracle->answer(oracle->redraw(i))); }), "answers/s");
  stop = true;
  std::vector<float> outputs(reference_plan.positions.size() * static_cast<std::size_t>(spec.vocab), 0.5f);
  const std::vector<int> next(reference_plan.positions.size(), 0);
  print(model + "/compares/1_at_once", rate(1, seconds, [&](std::size_t) { (void)oracle->reference()->compare(outputs, next, true); }), "compares/s");
  return 0;
}
