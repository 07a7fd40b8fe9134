// bench/run lanes [MODEL] [--gpus 1,2,4,8] [--seconds N]: the daemon's own share of a search on several GPUs. The service, its store, its strategies
// and the pool of lanes are the real ones; the GPUs are played: a candidate is built for a second beside others, then has its GPU to itself for 0.7 s
// (smollm2-135m on an H200: docs/lab/search.md, 6), and both only wait. What falls short of as many times the evaluations of one GPU is the daemon's,
// or this machine's want of processors: processor milliseconds an evaluation are printed beside.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/hash.h"
#include "core/base/json.h"
#include "orchestrator/service/lane_pool.h"
#include "orchestrator/service/service.h"
#include "tests/support/store_in.h"
#include "tests/support/temp_folder.h"

using namespace amk;
using Steady = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kBuild{1000}, kTurn{700};
constexpr std::size_t kDepth = 3;
constexpr const char* kGpu = "h200";
const std::filesystem::path kGpus = std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus";

double seconds_since(Steady::time_point t) { return std::chrono::duration<double>(Steady::now() - t).count(); }

double processor_s() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto s = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return s(use.ru_utime) + s(use.ru_stime);
}

// A latency for each schedule, always the same; ten percent apart at most, so that the best changes seldom, as in a search that has gone on for a
// while.
double latency_us(const std::string& schedule_id) { return 600 * (1 + 0.1 * static_cast<double>(hash64(schedule_id) % 1000) / 1000); }

class PlayedGpus final : public CpuJudge {
 public:
  explicit PlayedGpus(std::size_t gpus) : gpus_(gpus), pool_(gpus, kDepth) {}
  std::vector<GpuTarget> local_gpus() override { return {load_gpu_target(kGpu, kGpus).value()}; }
  int lanes(const GpuTarget&) override { return static_cast<int>(gpus_.size() * kDepth); }
  Result<Verdict> judge(const Workload& workload, const Json& canonical, Device, const IncumbentNow& incumbent, const Progress& progress) override {
    return pool_.judge<Verdict>(progress.stop, [&](std::size_t gpu) -> Result<Verdict> {
      progress.phase("build");
      std::this_thread::sleep_for(kBuild);
      progress.phase("waiting");
      const std::lock_guard lock(gpus_[gpu]);
      progress.phase("timing");
      AMK_TRY(best, incumbent());
      std::this_thread::sleep_for(kTurn);
      Verdict v;
      v.status = VerdictStatus::Ok;
      v.valid = v.correct = true;
      v.workload = workload.id();
      v.gpu = workload.target().name;
      v.device = "GPU-" + std::to_string(gpu);
      v.regime = workload.regime();
      v.config = canonical;
      v.schedule_id = workload.schedule_id(canonical);
      v.correctness = Correctness{};
      v.latency_us = latency_us(v.schedule_id);
      v.latency_kind = LatencyKind::MeasuredGpu;
      v.bound_us = 100;
      if (best) {
        const std::string id = workload.schedule_id(*best);
        const double ratio = latency_us(id) / *v.latency_us;
        v.versus = Versus{id, ratio, ratio * 0.999, ratio * 1.001, ratio > 1.01 ? Decision::Faster : Decision::Slower};
      }
      return v;
    });
  }

 private:
  std::vector<std::mutex> gpus_;
  LanePool pool_;
};

struct Measured {
  double per_minute = 0;                   // from the first evaluation that ended to the last
  double processor_ms = 0;                 // an evaluation
  std::map<std::string, double> phases_s;  // an evaluation
};

Result<Measured> measure(const std::string& model, std::size_t gpus, double seconds) {
  test::TempFolder folder;
  AMK_TRY(store, test::store_in(folder.path));
  PlayedGpus judge(gpus);
  AMK_TRY(service, Service::create({folder.path, kGpus, "bench"}, *store, judge));
  SearchRequest request;
  request.model = model;
  request.gpu = kGpu;
  request.device = "cuda";
  request.budget = 100'000;
  std::stop_source stop;
  std::mutex mutex;
  std::int64_t ended = 0;
  std::optional<Steady::time_point> first, last;
  double processor_first = 0, processor_last = 0;
  Progress progress;
  progress.stop = stop.get_token();
  progress.report = [&](double, std::string_view) {
    const std::lock_guard lock(mutex);
    last = Steady::now();
    processor_last = processor_s();
    if (ended++ == 0) first = last, processor_first = processor_last;
    if (seconds_since(*first) >= seconds) stop.request_stop();
  };
  AMK_TRY(done, service->loop(request, progress));
  AMK_TRY(campaign, service->campaigns().resolve(done["campaign"].get<std::string>()));
  AMK_TRY(report, service->campaigns().report(campaign));
  Measured out;
  const auto n = static_cast<double>(ended);
  if (ended < 2) return fail(ErrorKind::Unavailable, "no two evaluations ended in " + std::to_string(seconds) + " s");
  out.per_minute = 60 * (n - 1) / std::chrono::duration<double>(*last - *first).count();
  out.processor_ms = 1e3 * (processor_last - processor_first) / (n - 1);
  for (const auto& [name, s] : report.json["history"]["time_by_phase_s"].items()) out.phases_s[name] = s.get<double>() / n;
  return out;
}

void line(const std::string& metric, double value, const std::string& unit, std::optional<double> versus = {}) {
  Json out = {{"bench", "lanes"}, {"metric", metric}, {"value", value}, {"unit", unit}};
  if (versus) out["versus"] = *versus;
  std::printf("%s\n", out.dump().c_str());
  std::fflush(stdout);
}

int problem(const std::string& said) {
  std::fprintf(stderr, "lanes: %s\nusage: bench/run lanes [MODEL] [--gpus 1,2,4,8] [--seconds N]\n", said.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = "smollm2-135m";
  std::vector<std::size_t> gpus{1, 2, 4, 8};
  double seconds = 20;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag != "--gpus" && flag != "--seconds") {
      model = flag;
      continue;
    }
    if (i + 1 >= argc) return problem(flag + " needs a value");
    const std::string value = argv[++i];
    char* end = nullptr;
    if (flag == "--seconds") {
      seconds = std::strtod(value.c_str(), &end);
      if (*end != 0 || !(seconds >= 1 && seconds <= 3600)) return problem("--seconds is " + value + "; accepted: 1 to 3600");
      continue;
    }
    gpus.clear();
    for (const char* at = value.c_str(); *at != 0;) {
      const long n = std::strtol(at, &end, 10);
      if (end == at || n < 1 || n > 64 || (*end != 0 && *end != ','))
        return problem("--gpus is " + value + "; accepted: numbers from 1 to 64, e.g. 1,2,4");
      gpus.push_back(static_cast<std::size_t>(n));
      at = *end == ',' ? end + 1 : end;
    }
  }
  std::optional<double> one;
  for (const std::size_t n : gpus) {
    const auto measured = measure(model, n, seconds);
    if (!measured) return problem(measured.error().message);
    const std::string at = model + "/gpus" + std::to_string(n) + "/";
    if (n == 1) one = measured->per_minute;
    line(at + "evaluations_per_minute", measured->per_minute, "1/min", one ? std::optional(measured->per_minute / *one) : std::nullopt);
    line(at + "processor", measured->processor_ms, "ms an evaluation");
    for (const auto& [name, s] : measured->phases_s) line(at + name, s, "s an evaluation");
  }
  return 0;
}
