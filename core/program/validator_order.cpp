#include "core/program/validator_order.h"

#include <algorithm>

namespace amk::validation {

OrderPass::OrderPass(const Program& program, const Layout& layout)
    : program_(program),
      layout_(layout),
      sms_(static_cast<std::size_t>(program.sm_count)),
      persistent_(program.step_sync == StepSync::Persistent),
      counters_(program.counters.size()),
      sm_(sms_),
      sm_clocks_(sms_ * sms_, 0),
      clocks_(sms_) {}

// Counters make a step's order the same as the next one's, and every edge lies within a step or leads from one to the next. So two steps show all
// there is: the order within a step, and between neighbours (docs/validator.md).
Verdict OrderPass::run() {
  ByteTracker first(program_, layout_, nullptr);
  if (Verdict v = run_step(first)) return v;
  if (!persistent_) return {};
  ++step_;
  ByteTracker second(program_, layout_, &first);
  return run_step(second);
}

Verdict OrderPass::run_step(ByteTracker& tracker) {
  for (std::size_t c = 0; c < counters_.size(); ++c) {
    counters_[c].remaining = program_.counters[c].fan_in;
    counters_[c].previous = counters_[c].clock;
    counters_[c].clock = kNone;
    counters_[c].first_blocked = kNone;
    counters_[c].waits = 0;
  }
  for (const Task& task : program_.tasks)
    for (const Wait& wait : task.waits) ++counters_[static_cast<std::size_t>(wait.counter)].waits;
  for (CounterState& counter : counters_) counter.waits_left = counter.waits;
  for (std::int32_t s = program_.sm_count - 1; s >= 0; --s) {
    sm_[static_cast<std::size_t>(s)] = SmState{};
    runnable_.push_back(s);
  }
  while (!runnable_.empty()) {
    const std::int32_t sm = runnable_.back();
    runnable_.pop_back();
    if (Verdict v = advance(sm, tracker)) return v;
  }
  for (std::size_t s = 0; s < sms_; ++s)
    if (static_cast<std::size_t>(sm_[s].next) < program_.queues[s].size()) return cycle();
  return {};
}

// Runs an SM's queue as far as the signals so far allow.
Verdict OrderPass::advance(std::int32_t sm, ByteTracker& tracker) {
  SmState& state = sm_[static_cast<std::size_t>(sm)];
  const std::vector<TaskId>& queue = program_.queues[static_cast<std::size_t>(sm)];
  std::int32_t* clock = clock_of(sm);
  while (static_cast<std::size_t>(state.next) < queue.size()) {
    const TaskId id = queue[static_cast<std::size_t>(state.next)];
    const Task& task = program_.tasks[static_cast<std::size_t>(id)];
    if (!pass_waits(sm, task)) return {};
    if (persistent_ && step_ > 0)
      if (Verdict v = check_epoch(id, task, clock)) return v;
    const Event self{sm, step_ * static_cast<std::int32_t>(queue.size()) + state.next + 1};
    clock[sm] = self.order;
    if (Verdict v = tracker.access(id, self, clock)) return v;
    signal(task, clock);
    ++state.next;
    state.next_wait = 0;
  }
  return {};
}

bool OrderPass::pass_waits(std::int32_t sm, const Task& task) {
  SmState& state = sm_[static_cast<std::size_t>(sm)];
  for (; static_cast<std::size_t>(state.next_wait) < task.waits.size(); ++state.next_wait) {
    const Wait& wait = task.waits[static_cast<std::size_t>(state.next_wait)];
    CounterState& counter = counters_[static_cast<std::size_t>(wait.counter)];
    if (wait.target == 0) {  // the step before, which is over
      if (counter.previous != kNone) join(clock_of(sm), clocks_.at(counter.previous), sms_);
    } else {
      if (counter.remaining > 0) {
        state.next_blocked = counter.first_blocked;
        counter.first_blocked = sm;
        return false;
      }
      join(clock_of(sm), clocks_.at(counter.clock), sms_);
    }
    ++edges_;
    if (--counter.waits_left == 0 && !persistent_) clocks_.release(counter.clock);
  }
  return true;
}

void OrderPass::signal(const Task& task, const std::int32_t* clock) {
  if (task.signal == kNone) return;
  CounterState& counter = counters_[static_cast<std::size_t>(task.signal)];
  if (counter.waits == 0) return;  // nobody will ask
  if (counter.clock == kNone) counter.clock = clocks_.allocate();
  join(clocks_.at(counter.clock), clock, sms_);
  if (--counter.remaining > 0) return;
  for (std::int32_t sm = counter.first_blocked; sm != kNone; sm = sm_[static_cast<std::size_t>(sm)].next_blocked) runnable_.push_back(sm);
  counter.first_blocked = kNone;
}

Verdict OrderPass::check_epoch(TaskId id, const Task& task, const std::int32_t* clock) const {
  if (task.signal == kNone) return {};
  const CounterState& counter = counters_[static_cast<std::size_t>(task.signal)];
  if (counter.previous == kNone || covers(clock, clocks_.at(counter.previous), sms_)) return {};
  for (const std::vector<TaskId>& queue : program_.queues)
    for (const TaskId other : queue) {
      const Task& producer = program_.tasks[static_cast<std::size_t>(other)];
      if (producer.signal != task.signal || happens_before({producer.sm, producer.queue_pos + 1}, clock)) continue;
      Finding finding;
      finding.rule = "stale-epoch";
      finding.task = id;
      finding.other = other;
      finding.counter = task.signal;
      finding.message = cat(task_name(program_, id), " may signal ", program_.counters[static_cast<std::size_t>(task.signal)].name,
                            " for the next step before ", task_name(program_, other), " has for this one: a wait would take one for the other");
      finding.missing = cat("edge ", task_name(program_, other), " -> ", task_name(program_, id), " of the next step");
      return reject(program_, std::move(finding));
    }
  return {};  // unreachable: the clock of the counter holds nothing but its producers and what is before them
}

// Every blocked SM stands before a wait for a counter one of whose producers is queued at or behind another blocked SM's head. Following these leads
// round in the end.
Verdict OrderPass::cycle() const {
  const auto blocked = [&](std::size_t s) { return static_cast<std::size_t>(sm_[s].next) < program_.queues[s].size(); };
  const auto head = [&](std::size_t s) { return program_.queues[s][static_cast<std::size_t>(sm_[s].next)]; };
  std::size_t at = 0;
  while (!blocked(at)) ++at;
  struct Hop {
    std::size_t sm = 0;
    TaskId waits = kNone;
    CounterId counter = kNone;
    TaskId producer = kNone;
  };
  std::vector<Hop> path;
  std::vector<std::int32_t> seen(sms_, kNone);
  while (seen[at] == kNone) {
    seen[at] = static_cast<std::int32_t>(path.size());
    const TaskId waiter = head(at);
    const CounterId counter = program_.tasks[static_cast<std::size_t>(waiter)].waits[static_cast<std::size_t>(sm_[at].next_wait)].counter;
    Hop hop{at, waiter, counter, kNone};
    for (std::size_t t = 0; t < program_.tasks.size(); ++t) {
      const Task& task = program_.tasks[t];
      if (task.signal != counter || task.queue_pos < sm_[static_cast<std::size_t>(task.sm)].next) continue;
      hop.producer = static_cast<TaskId>(t);
      break;
    }
    path.push_back(hop);
    at = static_cast<std::size_t>(program_.tasks[static_cast<std::size_t>(hop.producer)].sm);
  }
  path.erase(path.begin(), path.begin() + seen[at]);
  Finding finding;
  finding.rule = "cycle";
  finding.task = path.front().waits;
  finding.other = path.front().producer;
  finding.counter = path.front().counter;
  for (const Hop& hop : path) {
    const std::string& counter = program_.counters[static_cast<std::size_t>(hop.counter)].name;
    finding.chain.push_back(
        cat(task_name(program_, hop.waits), " waits for counter ", counter, ", signalled by ", task_name(program_, hop.producer)));
    const TaskId ahead = head(static_cast<std::size_t>(program_.tasks[static_cast<std::size_t>(hop.producer)].sm));
    if (ahead != hop.producer)
      finding.chain.push_back(cat(task_name(program_, hop.producer), " is queued on its SM behind ", task_name(program_, ahead)));
  }
  finding.message = cat("no interleaving can finish: ", finding.chain.front(), finding.chain.size() == 1 ? ": itself" : ", and so on in a circle");
  return reject(program_, std::move(finding));
}

}  // namespace amk::validation
