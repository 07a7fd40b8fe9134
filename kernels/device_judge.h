// Judging candidates on one GPU, in two processes: the parent knows what is expected and when to give up, a worker holds the CUDA context and may
// hang or die. A family brings both halves (KernelFamily::device_judge, device_service).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "kernels/evaluator/device.h"
#include "kernels/evaluator/framing.h"
#include "kernels/evaluator/gpu_lock.h"
#include "kernels/evaluator/worker_link.h"
#include "kernels/family.h"
#include "kernels/verdict.h"

namespace amk {

struct DeviceJudgeOptions {
  std::filesystem::path config_dir;    // models of the catalogue
  std::filesystem::path cache_folder;  // built kernels
  std::filesystem::path lock_folder = kGpuLockFolder;
  std::chrono::milliseconds open_limit{900'000}, check_limit{120'000}, time_limit{60'000}, lock_limit{600'000};
  int timing_ms = 4000;
  // Programs built with fault injection only: what the worker shall do in the next check ("hang", "crash", "exit"), or "".
  std::function<std::string()> next_fault;
};

// The parent's half. Thread-safe: one judgement at a time, others wait.
class DeviceJudge {
 public:
  virtual ~DeviceJudge() = default;
  // One whole judgement; fills everything but verdict_id. `incumbent` is timed in turn with the candidate. An Error means that the machinery failed
  // (no memory, a broken GPU, cancelled), never that the candidate is bad.
  virtual Result<Verdict> judge_against(const Workload& workload, const Json& canonical, const IncumbentNow& incumbent, const Progress& progress) = 0;
  Result<Verdict> judge(const Workload& workload, const Json& canonical, const std::optional<Json>& incumbent, const Progress& progress);
};

// The worker's half: one thread; the request's "op" says what is wanted.
class DeviceService {
 public:
  virtual ~DeviceService() = default;
  virtual Result<Message> handle(const Message& request) = 0;
};

}  // namespace amk
