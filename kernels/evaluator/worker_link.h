// How requests reach a GPU worker, and whose fault it is when one fails.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/evaluator/framing.h"

namespace amk {

// A child process, or (tests) this one. One thread at a time.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // Errors as WorkerProcess::call(). Starts the worker when there is none.
  virtual Result<Message> call(const Json& request, std::chrono::milliseconds limit, const std::function<bool()>& stop) = 0;
  virtual void restart() = 0;  // drops the worker; the next call starts another
};

// argv of the worker's program, e.g. {"/proc/self/exe", "worker"}: it must call run_gpu_worker().
std::unique_ptr<WorkerLink> make_process_link(std::vector<std::string> argv);

// What a candidate did to its worker.
struct CandidateFailure {
  bool timed_out = false;  // else it crashed
  std::string note;        // for people
};

// `error` came from a call that ran a candidate. The worker is dropped, and a new one runs a known-good probe: when that passes the candidate is to
// blame. Otherwise an Error: Unavailable when the GPU itself fails, else `error` unchanged (cancelled, no memory, a refusal).
Result<CandidateFailure> blame_candidate(WorkerLink& link, int gpu_ordinal, const Error& error, const std::function<bool()>& stop);

}  // namespace amk
