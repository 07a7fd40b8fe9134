// One whole judgement of a megakernel candidate on a GPU, from the parent's side: parse, lower, prove, plan, build (cached, no GPU), then in the
// worker check, time, check again; the comparison with what was expected is made here. Thread-safe: one judgement at a time, others wait.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/once_map.h"
#include "kernels/device_judge.h"
#include "kernels/megakernel/gpu_gate.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/instruction_workload.h"

namespace amk {

struct GpuDecode {
  std::vector<int> ids;  // generated
  int tokens_processed = 0;
  std::vector<float> logits;  // [tokens processed][vocab] when asked for
};

// What a worker's outputs were found to be.
struct OutputsJudged {
  Correctness correctness;
  std::string failure;  // empty: correct
};

// What workloads' outputs are held against, by workload id. The oracle's run takes tens of seconds on all cores: judges of several GPUs share one.
struct GpuReferences {
  using Sequences = std::vector<std::shared_ptr<GpuOracle>>;
  OnceMap<Sequences> whole;
  OnceMap<std::shared_ptr<const InstructionReference>> instructions;
};

class GpuJudge final : public DeviceJudge {
 public:
  // `link` outlives the judge.
  GpuJudge(GpuDevice device, DeviceJudgeOptions options, WorkerLink& link,
           std::shared_ptr<GpuReferences> references = std::make_shared<GpuReferences>());

  Result<Verdict> judge_against(const Workload& workload, const Json& canonical, const IncumbentNow& incumbent, const Progress& progress) override;

  // Greedy decoding with the given config, token fed back on the device.
  Result<GpuDecode> decode(const MegakernelWorkload& workload, const Json& canonical, const std::vector<int>& prompt, int count, bool logits,
                           const Progress& progress);
  // A prompt for each sequence of the workload's batch; the results in the same order.
  Result<std::vector<GpuDecode>> decode(const MegakernelWorkload& workload, const Json& canonical, const std::vector<std::vector<int>>& prompts,
                                        int count, bool logits, const Progress& progress);

  // One step at `position` with timestamps in the kernel, behind a decode of the tokens before it.
  struct Traced {
    BuiltCandidate built;
    std::vector<std::uint64_t> marks;  // trace_report.h
  };
  Result<Traced> trace(const MegakernelWorkload& workload, const Json& canonical, int position, const Progress& progress);

  const GpuDevice& device() const { return device_; }

 private:
  // What the worker is asked about one workload, and how its answer is held against what was expected.
  struct Question {
    Json check;  // without op and config
    std::function<Result<OutputsJudged>(std::span<const float> outputs, const Json& reply)> compare;
    int first = 0, tokens = 1;  // timed positions
    bool flush = false;
    Roofline floor;
  };
  Result<Question> question(const MegakernelWorkload& workload, int steps, const Progress& progress);  // steps: of a launch
  static void time_last(Question& asks, const MegakernelWorkload& workload, int total, int tokens);
  Result<Question> question(const InstructionWorkload& workload, const Progress& progress);
  Result<GpuReferences::Sequences> references(const MegakernelWorkload& workload, const Progress& progress);
  Result<std::shared_ptr<const InstructionReference>> reference(const InstructionWorkload& workload, const Progress& progress);
  // What a workload's first candidate on this GPU would wait for, while it is built: the oracle's run, the model on the GPU. Ends with them; what
  // fails there is tried again, and reported, where it is needed.
  std::vector<std::jthread> begin_ahead(const MegakernelWorkload& whole, const InstructionWorkload* alone, const Progress& progress);
  Status open_model(const MegakernelWorkload& workload, const Progress& progress);
  Result<BuiltCandidate> plan(const MegakernelWorkload& workload, const Json& canonical, const PlanOptions& options = {}) const;
  Status compile(BuiltCandidate& candidate) const;
  Result<BuiltCandidate> build(const MegakernelWorkload& workload, const Json& canonical, const PlanOptions& options = {}) const;  // both
  Result<Message> call(Json request, std::chrono::milliseconds limit, const Progress& progress);
  double known_us(const Workload& workload, const std::string& schedule_id) const;  // as last measured here; 0: not
  void remember_us(const Workload& workload, const std::string& schedule_id, double us);
  Result<Verdict> blame(Verdict verdict, const Error& error, const Progress& progress);

  GpuDevice device_;
  DeviceJudgeOptions options_;
  WorkerLink& link_;
  std::mutex mutex_;                                                   // one candidate has the worker
  std::map<std::pair<std::string, std::string>, double> measured_us_;  // by workload id, schedule id
  std::shared_ptr<GpuReferences> references_;
  std::mutex begun_mutex_;
  std::set<std::string> begun_;  // workloads that were begun ahead
};

}  // namespace amk
