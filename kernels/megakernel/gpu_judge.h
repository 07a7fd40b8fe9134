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

#include "core/target/cost_model.h"
#include "kernels/device_judge.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/gpu_question.h"
#include "kernels/megakernel/instruction_workload.h"

namespace amk {

struct GpuDecode {
  std::vector<int> ids;  // generated
  int tokens_processed = 0;
  std::vector<float> logits;  // [tokens processed][vocab] when asked for
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
  // One judgement on its way through its phases.
  struct Turn {
    const Workload& workload;
    const MegakernelWorkload& whole;   // the model
    const InstructionWorkload* alone;  // one kind of instruction; null: a whole step
    int steps;                         // tokens of a launch
    Verdict verdict;
    GpuQuestion asks;
    std::optional<Prediction> predicted = {};  // of a whole step: where its time goes
    std::uint64_t checked_hash = 0;            // of the outputs that the checked run left
    bool last = true;                          // no other follows this one (worker_link.h)
  };
  // Each returns whether the turn goes on: false, the verdict is final.
  Result<bool> prepare(Turn& turn, const Progress& progress);  // builds, and finds what is right meanwhile; no GPU
  Result<bool> check(Turn& turn, const IncumbentNow& against, const Progress& progress);
  // The worker's answer to a check; empty: the candidate did it harm, the verdict is final. `patience_us`: 0 is unlimited.
  Result<std::optional<Message>> run_check(Turn& turn, double patience_us, const Progress& progress);
  // Whether a candidate that was slow when its check began is worth one, by its pace beside the incumbent's now.
  Result<bool> worth_a_check(Turn& turn, const Json& incumbent, const Progress& progress);
  Result<bool> time(Turn& turn, const IncumbentNow& against, const Progress& progress);
  // What a workload's first candidate on this GPU would wait for, while it is built: the oracle's run, the model on the GPU. Ends with them; what
  // fails there is tried again, and reported, where it is needed.
  std::vector<std::jthread> begin_ahead(const MegakernelWorkload& whole, const InstructionWorkload* alone, const Progress& progress);
  Status open_model(const MegakernelWorkload& workload, const Progress& progress);
  // What the workload has proved lately, as a search does before it asks for a judgement, is planned as it is; the worker proves it again.
  Result<BuiltCandidate> plan(const MegakernelWorkload& workload, const Json& canonical, const PlanOptions& options, const Progress& progress) const;
  Status compile(BuiltCandidate& candidate) const;
  Result<BuiltCandidate> build(const MegakernelWorkload& workload, const Json& canonical, const PlanOptions& options,
                               const Progress& progress) const;  // both
  Result<Message> call(Json request, std::chrono::milliseconds limit, const Progress& progress);
  // As last measured here; 0: not. Of another moment: it says when to look, and decides nothing.
  double known_us(const Workload& workload, const std::string& schedule_id) const;
  void remember_us(const Workload& workload, const std::string& schedule_id, double us);
  Result<bool> on_gpu(Turn& turn, const IncumbentNow& against, const Progress& progress);  // open, check, time
  Status blame(Turn& turn, const Error& error, const Progress& progress);

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
