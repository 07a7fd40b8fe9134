// Order of execution: per-SM queues, monotone counters, and the ring that weight streams share. Internal to reference_vm*.cpp.
#pragma once

#include <functional>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/program/program.h"

namespace amk::vm {

// Every id that execution follows is in range, and every task is in exactly one queue. Semantics are the validator's.
Status check_queues(const Program& program);

// Keeps counters between steps: they are monotone, as on the device. `program` must outlive this and have passed check_queues.
class Queues {
 public:
  explicit Queues(const Program& program);

  // One launch: runs every task once in each of `steps` steps, the first of them `epoch`, each time choosing at random among the SMs whose next task
  // may start. Several steps: an SM that is through with one begins the next, whatever the others do. An error of `execute`, which is told the step
  // within the launch, ends it.
  // Deadlock is Rejected with {"rule": "deadlock", "starved": [{task, counter, value, needed} | {task, ring}]}: the VM is then unusable.
  Status run(std::int64_t epoch, int steps, Rng& rng, const std::function<Status(TaskId, int)>& execute);

 private:
  struct Unmet {
    CounterId counter = kNone;
    std::int64_t needed = 0;
  };
  Unmet first_unmet(const Task& task, std::int64_t epoch) const;
  bool stream_reaches(std::int32_t sm, TaskId task);
  Error deadlock(std::int64_t epoch) const;

  const Program& program_;
  std::vector<std::int64_t> counters_;
  std::vector<std::size_t> heads_;  // [sm]: next in the queue
  std::vector<int> steps_;          // [sm]: where it is in the launch
  std::vector<char> finished_;      // [task], in its SM's step
  // SMs to look at again once the counter reaches the lowest value that one of them waits for; waking at every signal would cost SMs²
  // per instruction.
  struct Waiters {
    std::vector<std::int32_t> sms;
    std::int64_t lowest = 0;
  };
  std::vector<Waiters> waiting_;  // [counter]
  struct StreamFront {            // tasks that finished at the front of a stream, and the chunks that they were
    std::size_t tasks = 0;
    std::int64_t chunks = 0;
  };
  std::vector<StreamFront> fronts_;  // [sm]
};

}  // namespace amk::vm
