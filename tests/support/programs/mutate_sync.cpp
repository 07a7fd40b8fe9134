// Waits, signals, counters.
#include <algorithm>

#include "tests/support/programs/mutate_parts.h"

namespace amk::testing {

bool Mutator::synchronisation(Mutation m) {
  const TaskId waiter = pick_task([](const Task& t) { return !t.waits.empty(); });
  const TaskId signaller = pick_task([](const Task& t) { return t.signal != kNone; });
  if (waiter == kNone || signaller == kNone) return false;
  Task& w = task(waiter);
  Task& s = task(signaller);
  const std::size_t at = rng_.below(w.waits.size());
  Wait& wait = w.waits[at];
  switch (m) {
    case Mutation::DropWait:
      suspect(waiter), suspect_counter(wait.counter);
      w.waits.erase(w.waits.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    case Mutation::LowerTarget:
      suspect(waiter), suspect_counter(wait.counter);
      if (wait.target < 2) return false;
      wait.target = coin() ? wait.target - 1 : 1 + below(static_cast<std::size_t>(wait.target - 1));
      return true;
    case Mutation::RaiseTarget:
      suspect(waiter);
      wait.target += 1 + below(3);
      return true;
    case Mutation::ZeroTarget:
      suspect(waiter), suspect_counter(wait.counter);
      wait.target = -below(3);
      return true;
    case Mutation::RedirectWait: {
      suspect(waiter), suspect_counter(wait.counter);
      // Most often to a neighbour: what an off-by-one in counter numbering does.
      const auto n = static_cast<std::int32_t>(p().counters.size());
      const CounterId to = coin() ? std::clamp(wait.counter + (coin() ? 1 : -1), 0, n - 1) : below(p().counters.size());
      if (counter(to).fan_in == 0) return false;
      wait = {to, counter(to).fan_in};
      return true;
    }
    case Mutation::DuplicateWait: {
      const CounterId also = coin() ? wait.counter : below(p().counters.size());
      if (counter(also).fan_in == 0) return false;
      w.waits.push_back({also, counter(also).fan_in});
      suspect(waiter);
      return true;
    }
    case Mutation::SelfWait:
      s.waits.push_back({s.signal, counter(s.signal).fan_in});
      return true;
    case Mutation::DropSignal:
      suspect(signaller);
      s.signal = kNone;
      return true;
    case Mutation::RedirectSignal:
      suspect(signaller), suspect_counter(s.signal);
      s.signal = below(p().counters.size());
      suspect_counter(s.signal);
      return true;
    case Mutation::ChangeFanIn: {
      const CounterId c = below(p().counters.size());
      suspect_counter(c);
      const std::int32_t change = coin() ? 1 : -1;
      for (Task& t : p().tasks)
        for (Wait& each : t.waits)
          if (each.counter == c && each.target == counter(c).fan_in && coin()) each.target += change;
      counter(c).fan_in += change;
      return true;
    }
    case Mutation::ConsistentDropSignal:
      suspect(signaller), suspect_counter(s.signal);
      s.signal = kNone;
      rebuild_counts();
      return true;
    case Mutation::ConsistentRedirectSignal:
      suspect(signaller), suspect_counter(s.signal);
      s.signal = below(p().counters.size());
      suspect_counter(s.signal);
      rebuild_counts();
      return true;
    case Mutation::OverflowSteps: {
      std::int32_t fan_in = 1;
      for (const Counter& c : p().counters) fan_in = std::max(fan_in, c.fan_in);
      const std::int64_t last = (std::int64_t{1} << 32) / fan_in;
      p().max_steps = coin() ? last + below(4) - 1 : last * (1 + below(1000));
      suspect(waiter), suspect(signaller);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace amk::testing
