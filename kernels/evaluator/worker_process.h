// A child process that holds a CUDA context. It may crash, hang or be poisoned: calls have hard limits, and on overrun the whole process group is
// killed. Replies carry the id of their request; a process that was killed takes its late answers with it (its pipe is closed).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/evaluator/framing.h"

namespace amk {

class WorkerProcess {
 public:
  // Starts argv[0] with argv in its own process group; stdin and stdout are the pipes, stderr is inherited.
  static Result<WorkerProcess> start(const std::vector<std::string>& argv);
  ~WorkerProcess();
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;

  // One request, one reply. `stop` (may be empty) is asked at least every 100 ms; true cancels. Errors: Timeout (group killed), Cancelled (group
  // killed), Unavailable (the process died; data {"exit"} or {"signal"}), or what the worker replied as {"error": …}.
  Result<Message> call(const Json& request, std::chrono::milliseconds limit, const std::function<bool()>& stop = {});

  // SIGKILL to the group; returns when the process is gone. Idempotent.
  void kill();
  bool alive();  // reaps it when it has ended by itself
  pid_t pid() const { return pid_; }
  std::uint64_t generation() const { return generation_; }  // unique in this process, ascending

 private:
  WorkerProcess() = default;
  tl::unexpected<Error> died(const Error& seen);
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::uint64_t generation_ = 0, next_id_ = 1;
};

// What a worker's message says to request `id`: nothing when it answers another one, else the reply, or the error that it carries. Trusts nothing of
// its form: fields of a wrong type are as if they were absent.
std::optional<Result<Message>> take_reply(Message message, std::uint64_t id);

// The worker's side: answers requests on `in`/`out` until `in` ends. `handle` returns the reply or an error, which travels as {"error": …}.
int serve_worker(int in, int out, const std::function<Result<Message>(const Message& request)>& handle);

}  // namespace amk
