// Judges on this machine's GPUs in worker processes, and on the CPU as CpuJudge does. Thread-safe. Nothing is probed before it is asked for; no CUDA
// context is ever made in this process.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "orchestrator/service/judge.h"

namespace amk {

struct LocalJudgeOptions {
  std::filesystem::path config;             // resources: gpus/, models
  std::filesystem::path cache;              // built kernels and measured facts of this user; made on first use
  std::vector<std::string> worker;          // argv of the worker's program
  std::function<std::string()> next_fault;  // programs for tests: DeviceJudgeOptions::next_fault
};

// $AMK_CACHE, else $XDG_CACHE_HOME/amk, else ~/.cache/amk.
std::filesystem::path default_cache_folder();

class LocalJudge final : public CpuJudge {
 public:
  explicit LocalJudge(LocalJudgeOptions options);
  ~LocalJudge() override;

  std::vector<GpuTarget> local_gpus() override;
  // Measures the read bandwidth of each usable GPU that has no figure yet: a second or two, once per GPU. A GPU that is busy keeps it for later.
  Json gpu_report() override;
  Result<Verdict> judge(const Workload& workload, const Json& canonical, Device device, const IncumbentNow& incumbent,
                        const Progress& progress) override;
  // GPUs of this kind, times the candidates that each has in work at once (lane_pool.h): one on the GPU, the others being built. A comparison stays
  // on one GPU.
  int lanes(const GpuTarget& target) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace amk
