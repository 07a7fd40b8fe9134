#include <unordered_set>

#include "tests/support/programs/simulator.h"

namespace amk::testing {

std::string Simulator::state_key() const {
  std::string key;
  const auto add = [&](std::int64_t value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (const std::int32_t tag : tags_) add(tag);
  for (const std::int32_t step : written_) add(step);
  for (const std::uint32_t counter : counters_) add(counter);
  for (const Sm& sm : sms_) {
    add(sm.step), add(sm.at), add(static_cast<std::int64_t>(sm.phase)), add(sm.chunk), add(sm.load_step), add(sm.load_at), add(sm.load_chunk);
    add(sm.finished_ring_tasks);
  }
  add(launched_step_);
  return key;
}

std::optional<Breakage> Simulator::explore(std::int64_t max_states, bool& complete) {
  struct State {
    std::vector<std::int32_t> tags, written;
    std::vector<std::uint32_t> counters;
    std::vector<Sm> sms;
    std::int32_t launched_step = 0;
  };
  begin({});
  complete = true;
  std::unordered_set<std::string> seen;
  std::vector<State> stack;
  const auto push = [&] {
    if (seen.insert(state_key()).second) stack.push_back({tags_, written_, counters_, sms_, launched_step_});
  };
  push();
  while (!stack.empty()) {
    if (static_cast<std::int64_t>(seen.size()) > max_states) {
      complete = false;
      return std::nullopt;
    }
    const State from = std::move(stack.back());
    stack.pop_back();
    const auto restore = [&] {
      tags_ = from.tags;
      written_ = from.written;
      counters_ = from.counters;
      sms_ = from.sms;
      launched_step_ = from.launched_step;
    };
    bool moved = false;
    for (std::size_t sm = 0; sm < from.sms.size(); ++sm) {
      restore();
      if (!move(sm)) continue;
      moved = true;
      if (breakage_) return breakage_;
      push();
    }
    if (moved) continue;
    restore();
    if (program_.step_sync == StepSync::Launch && step_over()) {
      finish_step(launched_step_);
      if (++launched_step_ < steps_) push();
    } else if (all_done()) {
      finish_step(steps_ - 1);
    } else {
      broken("deadlock", "nobody can move");
    }
    if (breakage_) return breakage_;
  }
  return std::nullopt;
}

}  // namespace amk::testing
