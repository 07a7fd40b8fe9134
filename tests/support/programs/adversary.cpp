#include "tests/support/programs/adversary.h"

#include <algorithm>

namespace amk::testing {

namespace {

// Positions at which some task wakes up or falls asleep, the step before them, and both ends.
std::vector<std::int32_t> interesting_positions(const Program& p, int steps) {
  const std::int64_t last = p.max_seq - steps;
  std::vector<std::int32_t> out{0, static_cast<std::int32_t>(last)};
  const auto add = [&](std::int64_t at) {
    for (const std::int64_t q : {at, at - 1})
      if (q >= 0 && q <= last) out.push_back(static_cast<std::int32_t>(q));
  };
  for (const Task& t : p.tasks) {
    add(t.pos_lo);
    add(t.pos_hi);
    for (const auto* list : {&t.reads, &t.writes})
      for (const Region& r : *list) {
        add(r.pos_lo);
        add(r.pos_hi);
      }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Steps at which some counter leaves 32 bits although the program promises that many steps.
std::vector<std::uint32_t> overflow_epochs(const Program& p) {
  std::vector<std::uint32_t> out;
  for (const Counter& c : p.counters) {
    if (c.fan_in < 1) continue;
    const std::int64_t last = (std::int64_t{1} << 32) / c.fan_in;  // from about here on the value has wrapped
    if (last < p.max_steps) out.push_back(static_cast<std::uint32_t>(std::max<std::int64_t>(last - 1, 0)));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

std::optional<Found> find_break(const Program& program, Rng& rng, const AdversaryOptions& options, std::int64_t* runs) {
  if (auto b = static_breakage(program)) return Found{*b, 0, 0, {}};
  const int steps = std::min(program.step_sync == StepSync::Launch ? 2 : 3, program.max_seq);
  std::vector<std::int32_t> positions = interesting_positions(program, steps);
  for (std::size_t i = positions.size(); i > 1; --i) std::swap(positions[i - 1], positions[rng.below(i)]);
  const std::vector<std::uint32_t> overflows = overflow_epochs(program);
  // Bounded, but at least the wanted number, and every epoch at which something special happens.
  const std::size_t tries = std::max(std::min(positions.size(), static_cast<std::size_t>(options.positions)), overflows.size());
  for (std::size_t i = 0; i < tries; ++i) {
    const std::int32_t position = positions[i % positions.size()];
    const std::uint32_t epoch = i < overflows.size() ? overflows[i] : (i % 2 == 0 ? 1 : 0);
    Simulator simulator(program, position, epoch, steps);
    std::optional<Found> found;
    const auto attempt = [&](const Schedule& schedule) {
      if (runs != nullptr) ++*runs;
      if (auto b = simulator.run(schedule)) found = Found{*b, position, epoch, schedule};
      return found.has_value();
    };
    // Before its write: whoever may read too early does. Before its read: whoever may overwrite does, and in two orders, so that of two who both may
    // each comes last once.
    const auto hold = [&](TaskId id) { return attempt({id, Phase::Write, 0}) || attempt({id, Phase::Read, 0}) || attempt({id, Phase::Read, 1}); };
    if (attempt({}) || attempt({kNone, Phase::Read, 1})) return found;
    for (const TaskId id : options.suspects)
      if (id >= 0 && (hold(id) || attempt({id, Phase::Start, 0}))) return found;
    if (options.hold_every_task)
      for (std::size_t id = 0; id < program.tasks.size(); ++id)
        if (hold(static_cast<TaskId>(id))) return found;
    for (int r = 0; r < options.random_schedules; ++r) {
      const TaskId id = program.tasks.empty() ? kNone : static_cast<TaskId>(rng.below(program.tasks.size()));
      if (attempt({id, rng.below(2) == 0 ? Phase::Read : Phase::Write, 2 + (rng.next() >> 1)})) return found;
    }
  }
  return std::nullopt;
}

}  // namespace amk::testing
