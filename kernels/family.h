// A kernel family: everything amk needs to know of one kind of kernel. Adding a family is one folder under kernels/ and one line in
// registry.cpp. Implementations are thread-safe: one Workload is used by several jobs at once.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/schedule/space.h"
#include "core/target/gpu_target.h"
#include "kernels/verdict.h"

namespace amk {

enum class Device { Auto, Cuda, Cpu };

// Long work reports here; the callbacks may be empty. `stop` is polled at least every second.
struct Progress {
  std::function<void(double fraction, std::string_view message)> report;
  std::stop_token stop;
  // A judgement enters a phase: "lowering", "validation", "waiting" (for the GPU), "build", "check", "timing". From here to the next one, or to the
  // judgement's end, time is that phase's. Called by the judging thread.
  std::function<void(std::string_view phase)> enter = {};
  void phase(std::string_view name) const {
    if (enter) enter(name);
  }
};

// Whom a candidate is timed against: the canonical config, none, or why it cannot be told. Asked once, by the judging thread when it is about to
// time: the best may have changed while the candidate was built or waited for the GPU.
using IncumbentNow = std::function<Result<std::optional<Json>>()>;

// One workload on one GPU target, opened once and used for many evaluations.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual const std::string& id() const = 0;  // the `model` argument, canonical
  virtual const std::string& regime() const = 0;
  virtual const GpuTarget& target() const = 0;
  virtual const SearchSpace& space() const = 0;
  // Whether the files that it was opened from are still what they were: Unavailable when a checkpoint was replaced or written to meanwhile. What was
  // judged then is neither the old model nor the new one; open it again.
  virtual Status unchanged() const { return {}; }
  virtual Json features() const = 0;  // numbers that describe workload and device, for the prior

  // Fills defaults, checks names, types and ranges. InvalidArgument names the key, its value and what is accepted.
  virtual Result<Json> canonical(const Json& config) const = 0;
  virtual Json default_config() const = 0;
  virtual Result<Point> point_of(const Json& canonical) const = 0;
  virtual Json config_at(const Point& point) const = 0;
  virtual std::string schedule_id(const Json& canonical) const = 0;
  // The fastest config on record for this workload and GPU, {"config", "latency_us", "evidence"}; null where there is none. Keys that `config` lacks
  // are defaults. "longer_contexts": a list of the same with "context", for contexts longer than what is timed. Corrupt when the record is damaged.
  virtual Result<Json> tuned() const { return Json(nullptr); }

  // Analytic latency of a config in µs, without touching weights; Rejected when it cannot run.
  Result<double> predict_us(const Json& canonical) const { return predict_us(canonical, Progress{}); }
  virtual Result<double> predict_us(const Json& canonical, const Progress& progress) const = 0;  // `progress`: its phases only
  // The same number without the proof that the config can run, where that is cheaper: for ranking many. What is shown or judged is predicted.
  virtual Result<double> rank_us(const Json& canonical) const { return predict_us(canonical); }
  // About that number, where it is cheaper still: for ranking a thousand. Deterministic. A config of which it is good may be one that cannot run, as
  // rank_us() knows.
  virtual Result<double> screen_us(const Json& canonical) const { return rank_us(canonical); }

  // The whole judgement on the CPU: lower, validate, execute on the reference, compare with the oracle, predict. `verdict_id`, `device`
  // and `versus` are the caller's to fill. An Error means that the machinery failed, never that the candidate is bad.
  virtual Result<Verdict> judge_on_cpu(const Json& canonical, const Progress& progress) const = 0;

  // The artefact of `amk compile`: the lowered program or plan as JSON.
  virtual Result<Json> compile(const Json& canonical) const = 0;
};

// A verdict that says what was asked (workload, gpu, regime, config, schedule_id) and nothing yet of the answer.
Verdict verdict_of(const Workload& workload, const Json& canonical);

class DeviceJudge;
class DeviceService;
class WorkerLink;
struct DeviceJudgeOptions;
struct GpuDevice;

class KernelFamily {
 public:
  virtual ~KernelFamily() = default;
  virtual std::string_view name() const = 0;  // "megakernel", "det_gemm"
  virtual bool accepts(std::string_view workload) const = 0;
  virtual Result<std::shared_ptr<const Workload>> open(std::string_view workload, const GpuTarget& target) const = 0;
  virtual std::vector<std::string> known_workloads() const = 0;  // for completion

  // Judging on a GPU (device_judge.h): the parent's half, of workloads that this family opened; `link` outlives it. And the worker's half.
  virtual std::unique_ptr<DeviceJudge> device_judge(const GpuDevice& device, const DeviceJudgeOptions& options, WorkerLink& link) const = 0;
  virtual std::unique_ptr<DeviceService> device_service(bool faults) const = 0;
};

}  // namespace amk
