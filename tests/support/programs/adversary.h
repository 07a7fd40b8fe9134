// Looks for an interleaving, a launch position and an epoch at which a program breaks: every task held back before it reads and before it writes, the
// SMs in several orders, positions at and around every border of a guard, counters at the start and near the end of their range.
#pragma once

#include <optional>
#include <vector>

#include "tests/support/programs/simulator.h"

namespace amk::testing {

struct AdversaryOptions {
  int positions = 3;         // launch positions tried, of the interesting ones; drawn when there are more
  int random_schedules = 4;  // with random order and a random hold, for each position
  bool hold_every_task = true;
  std::vector<TaskId> suspects;  // held first, whatever the options say
};

struct Found {
  Breakage breakage;
  std::int32_t position = 0;
  std::uint32_t epoch = 0;
  Schedule schedule;
};

// Counts schedules in `runs` when given.
std::optional<Found> find_break(const Program& program, Rng& rng, const AdversaryOptions& options = {}, std::int64_t* runs = nullptr);

}  // namespace amk::testing
