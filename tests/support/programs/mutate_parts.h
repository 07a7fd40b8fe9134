// Shared by the mutation files.
#pragma once

#include "tests/support/programs/mutate.h"

namespace amk::testing {

class Mutator {
 public:
  Mutator(const Program& program, Rng& rng) : rng_(rng) { out_.program = program; }
  // False: nothing to change.
  bool apply(Mutation mutation);
  Mutant take() { return std::move(out_); }

 private:
  bool synchronisation(Mutation mutation);
  bool placement(Mutation mutation);
  bool streams(Mutation mutation);
  bool storage(Mutation mutation);
  bool regions(Mutation mutation);
  bool positions(Mutation mutation);
  bool mix_sequences();
  bool wild_index();
  bool wild_number();

  Program& p() { return out_.program; }
  Task& task(TaskId id) { return p().tasks[static_cast<std::size_t>(id)]; }
  Counter& counter(CounterId id) { return p().counters[static_cast<std::size_t>(id)]; }
  Buffer& buffer(BufferId id) { return p().buffers[static_cast<std::size_t>(id)]; }
  std::vector<TaskId>& queue(std::int32_t sm) { return p().queues[static_cast<std::size_t>(sm)]; }
  bool coin() { return rng_.below(2) == 0; }
  std::int32_t below(std::size_t n) { return static_cast<std::int32_t>(rng_.below(n)); }
  // A random index of 0 … n - 1 for which `suits`; kNone when there is none.
  template <class Suits>
  std::int32_t pick(std::size_t n, Suits suits) {
    if (n == 0) return kNone;
    const std::size_t from = rng_.below(n);
    for (std::size_t i = 0; i < n; ++i)
      if (const auto at = static_cast<std::int32_t>((from + i) % n); suits(at)) return at;
    return kNone;
  }
  template <class Suits>
  TaskId pick_task(Suits suits) {
    return pick(p().tasks.size(), [&](TaskId id) { return suits(task(id)); });
  }
  void suspect(TaskId id) { out_.suspects.push_back(id); }
  void suspect_counter(CounterId id);  // who waits for it and who signals it, a few of each
  void suspect_users(BufferId id);
  bool is_memory(BufferId id) { return buffer(id).space != Space::Weight && buffer(id).space != Space::Const; }

  // What a careful author of a wrong program would keep right.
  void number_queues();
  void rebuild_streams();
  void rebuild_counts();  // fan-ins, and targets that were whole

  Mutant out_;
  Rng& rng_;
};

}  // namespace amk::testing
