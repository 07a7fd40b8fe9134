// How requests reach a GPU worker, and whose fault it is when one fails.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
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

// No sign against the candidate whose turn it was: the worker was ended by a signal that comes from outside (an operator's; the kernel's, when the
// host's memory is short), or the GPU's memory was short. A fresh worker may do better.
bool worth_another_turn(const Error& error);
// Runs turn(false); where that fails with an error that is worth another turn, drops the worker and runs turn(true), whose result stands.
template <class Turn>
auto in_turns(WorkerLink& link, Turn turn) -> decltype(turn(true)) {
  auto first = turn(false);
  if (first || !worth_another_turn(first.error())) return first;
  link.restart();
  return turn(true);
}

// What a candidate did to its worker.
struct CandidateFailure {
  bool timed_out = false;  // else it crashed
  std::string note;        // for people
};

// `error` came from a call that ran a candidate, in its last turn. The worker is dropped, and a new one runs a known-good probe: when that passes the
// candidate is to blame. Otherwise an Error: of a broken GPU (gpu_is_broken), else `error` unchanged (cancelled, no memory, a refusal).
Result<CandidateFailure> blame_candidate(WorkerLink& link, int gpu_ordinal, const Error& error, const std::function<bool()>& stop);

// `error` came from a call that ran no candidate. What may be the GPU's fault is told as Unavailable, and after a failed probe as a broken GPU's; all
// else is as it was.
Error without_candidate(WorkerLink& link, int gpu_ordinal, const Error& error, const std::function<bool()>& stop);

// The GPU failed a known-good probe, and not for want of memory: it is of no use until somebody mends it. Any other error may be gone the next time.
bool gpu_is_broken(const Error& error);
Json broken_gpu(int gpu_ordinal);  // the data of such an error

}  // namespace amk
