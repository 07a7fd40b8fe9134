// Happens-before of a step: walks the queues in an order that extends it (or shows a cycle), with one vector clock an SM, and hands every task to
// the byte tracker with its clock. Internal to core/program.
#pragma once

#include <memory>
#include <vector>

#include "core/program/validator_clock.h"
#include "core/program/validator_memory.h"
#include "core/program/validator_report.h"

namespace amk::validation {

// The program passed check_structure, check_counters and check_streams.
class OrderPass {
 public:
  OrderPass(const Program& program, const Layout& layout);

  Verdict run();  // one step, or two where only counters order them
  std::int64_t edges() const { return edges_; }

 private:
  struct CounterState {
    std::int32_t remaining = 0;          // signals still to come in this step
    std::int32_t clock = kNone;          // join of the signals so far
    std::int32_t previous = kNone;       // whole, of the step before
    std::int32_t first_blocked = kNone;  // SMs that stand before a wait for it, linked by SmState::next_blocked
    std::int32_t waits = 0;
    std::int32_t waits_left = 0;  // not yet passed: the clock is given back after the last
  };
  struct SmState {
    std::int32_t next = 0;       // position in its queue
    std::int32_t next_wait = 0;  // of the task there
    std::int32_t next_blocked = kNone;
  };

  Verdict run_step(ByteTracker& tracker);
  Verdict advance(std::int32_t sm, ByteTracker& tracker);
  bool pass_waits(std::int32_t sm, const Task& task);
  void signal(const Task& task, const std::int32_t* clock);
  // Signals of the step before must all have come before one of this step can: else it could stand in for one that is missing.
  Verdict check_epoch(TaskId id, const Task& task, const std::int32_t* clock) const;
  Verdict cycle() const;
  std::int32_t* clock_of(std::int32_t sm) { return sm_clocks_.data() + static_cast<std::size_t>(sm) * sms_; }

  const Program& program_;
  const Layout& layout_;
  const std::size_t sms_;
  const bool persistent_;
  std::vector<CounterState> counters_;
  std::vector<SmState> sm_;
  std::vector<std::int32_t> sm_clocks_;  // [sm][sm]
  std::vector<std::int32_t> runnable_;
  ClockPool clocks_;
  std::int32_t step_ = 0;
  std::int64_t edges_ = 0;
};

}  // namespace amk::validation
