#include <limits>

#include "core/program/validator_structure.h"

namespace amk::validation {

namespace {

// Counters are 32 bits wide on the device and are compared without wrap-around, by some as signed numbers.
constexpr std::int64_t kCounterMax = std::numeric_limits<std::int32_t>::max();

Verdict check_wait(const Program& p, TaskId id, const Wait& wait) {
  const Counter& counter = p.counters[static_cast<std::size_t>(wait.counter)];
  // "Every earlier step has signalled": nothing at all across launches, an edge between steps of one launch.
  const bool previous_step = wait.target == 0 && p.step_sync == StepSync::Persistent;
  if (wait.target == counter.fan_in && wait.target > 0) return {};
  if (previous_step && counter.fan_in > 0) return {};
  Finding finding;
  finding.task = id;
  finding.counter = wait.counter;
  const std::string what = cat(task_name(p, id), " waits for ", wait.target, " of ", counter.fan_in, " signals of counter ", counter.name);
  if (counter.fan_in == 0 || wait.target > counter.fan_in) {
    finding.rule = "unmet-wait";
    finding.message = cat(what, ": one step never gives that many");
    finding.missing = cat(wait.target - counter.fan_in, " more tasks that signal ", counter.name);
  } else if (wait.target <= 0) {
    finding.rule = "stale-epoch";
    finding.message = cat(what, ": signals of earlier steps already meet it");
    finding.missing = cat("target ", counter.fan_in);
  } else {
    finding.rule = "partial-wait";
    finding.message = cat(what, ": whichever producers come first meet it, and the others may still be writing");
    finding.missing = cat("target ", counter.fan_in);
  }
  return reject(p, std::move(finding));
}

}  // namespace

Verdict check_counters(const Program& p) {
  std::vector<std::int64_t> signals(p.counters.size(), 0);
  for (const Task& task : p.tasks)
    if (task.signal != kNone) ++signals[static_cast<std::size_t>(task.signal)];
  for (std::size_t c = 0; c < p.counters.size(); ++c) {
    const Counter& counter = p.counters[c];
    Finding finding;
    finding.counter = static_cast<CounterId>(c);
    if (counter.fan_in < 0) {
      finding.rule = "malformed";
      finding.message = cat("counter ", counter.name, " has fan-in ", counter.fan_in);
      return reject(p, std::move(finding));
    }
    if (signals[c] != counter.fan_in) {
      const bool too_few = signals[c] < counter.fan_in;
      finding.rule = too_few ? "unmet-wait" : "stale-epoch";
      finding.message =
          cat("counter ", counter.name, " declares ", counter.fan_in, " signals a step, and ", signals[c],
              " tasks signal it: ", too_few ? "waits for it are never met" : "from the second step on, signals of earlier steps meet its waits");
      return reject(p, std::move(finding));
    }
    // In step max_steps - 1 the value reaches max_steps · fan_in; one step of head-room, as Program promises.
    if (counter.fan_in > 0 && p.max_steps > kCounterMax / counter.fan_in - 1) {
      finding.rule = "counter-overflow";
      finding.message = cat("counter ", counter.name, " with fan-in ", counter.fan_in, " passes 2^31 - 1 within max_steps = ", p.max_steps,
                            " steps; accepted: at most ", kCounterMax / counter.fan_in - 1);
      return reject(p, std::move(finding));
    }
  }
  for (std::size_t i = 0; i < p.tasks.size(); ++i)
    for (const Wait& wait : p.tasks[i].waits)
      if (Verdict v = check_wait(p, static_cast<TaskId>(i), wait)) return v;
  return {};
}

}  // namespace amk::validation
