// The parent's half of judging a deterministic GEMM: plans and builds without the GPU, then lets a worker judge, with limits. Unlike the
// megakernel's, what is expected lives in the worker: it is computed there by a plain kernel that is itself held against the CPU oracle at every
// opening, and a plan is data, so no candidate brings code of its own into that process. Thread-safe: one candidate at a time is the
// worker's. docs/det-gemm.md.
#pragma once

#include <mutex>

#include "kernels/device_judge.h"

namespace amk::det_gemm {

class RemoteJudge final : public DeviceJudge {
 public:
  RemoteJudge(const GpuDevice& device, const DeviceJudgeOptions& options, WorkerLink& link) : device_(device), options_(options), link_(link) {}
  Result<Verdict> judge_against(const Workload& workload, const Json& canonical, const IncumbentNow& incumbent, const Progress& progress) override;

 private:
  Result<Message> call(Json request, std::chrono::milliseconds limit, const Progress& progress);
  GpuDevice device_;
  DeviceJudgeOptions options_;
  WorkerLink& link_;
  std::mutex mutex_;
};

}  // namespace amk::det_gemm
