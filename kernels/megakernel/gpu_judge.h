// One whole judgement of a megakernel candidate on a GPU, from the parent's side: parse, lower, prove, plan, build (cached, no GPU), then in the
// worker check, time, check again; the comparison with what was expected is made here. Thread-safe: one judgement at a time, others wait.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/evaluator/build_cache.h"
#include "kernels/evaluator/device.h"
#include "kernels/evaluator/framing.h"
#include "kernels/megakernel/gpu_gate.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/workload.h"

namespace amk {

// How requests reach a worker: a child process, or (tests) this one.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual Result<Message> call(const Json& request, std::chrono::milliseconds limit, const std::function<bool()>& stop) = 0;
  virtual void restart() = 0;  // drops the worker; the next call starts another
};
// argv of the worker's program, e.g. {"/proc/self/exe", "worker"}: it must call run_gpu_worker().
std::unique_ptr<WorkerLink> make_process_link(std::vector<std::string> argv);
std::unique_ptr<WorkerLink> make_local_link();

// The worker's main: serves the megakernel on stdin and stdout until stdin ends. Returns the exit status. `faults`: a worker for tests, which hangs or
// dies when a request asks for it.
int run_gpu_worker(int in, int out, bool faults = false);

struct GpuJudgeOptions {
  std::filesystem::path config_dir;    // models of the catalogue
  std::filesystem::path cache_folder;  // built kernels
  std::chrono::milliseconds open_limit{900'000}, check_limit{120'000}, time_limit{60'000}, lock_limit{600'000};
  int timing_ms = 4000;
};

struct GpuDecode {
  std::vector<int> ids;  // generated
  int tokens_processed = 0;
  std::vector<float> logits;  // [tokens processed][vocab] when asked for
};

class GpuJudge {
 public:
  GpuJudge(GpuDevice device, GpuJudgeOptions options, std::unique_ptr<WorkerLink> link);

  // Fills everything but verdict_id. An Error means that the machinery failed (no memory, a broken GPU, cancelled), never that the candidate is bad.
  Result<Verdict> judge(const MegakernelWorkload& workload, const Json& canonical, const std::optional<Json>& incumbent, const Progress& progress);

  // Greedy decoding with the given config, token fed back on the device.
  Result<GpuDecode> decode(const MegakernelWorkload& workload, const Json& canonical, const std::vector<int>& prompt, int count, bool logits,
                           const Progress& progress);

  const GpuDevice& device() const { return device_; }
  // Tests: asks a worker that was started with faults to "hang" (in the kernel), "crash" or "exit" in the next checks; "" ends it.
  void inject_fault(std::string fault) { fault_ = std::move(fault); }

 private:
  Result<std::shared_ptr<const GpuReference>> reference(const MegakernelWorkload& workload, const Progress& progress);
  Status open_model(const MegakernelWorkload& workload, const Progress& progress);
  Result<BuiltCandidate> build(const MegakernelWorkload& workload, const Json& canonical) const;
  Result<Message> call(const Json& request, std::chrono::milliseconds limit, const Progress& progress);
  Result<Verdict> blame(Verdict verdict, const Error& error, const MegakernelWorkload& workload, const Progress& progress);

  GpuDevice device_;
  GpuJudgeOptions options_;
  std::unique_ptr<WorkerLink> link_;
  std::string fault_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const GpuReference>> references_;  // by workload id
};

}  // namespace amk
