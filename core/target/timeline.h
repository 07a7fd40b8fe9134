// When each instruction of a program ends, by a fluid model of every SM: one weight stream into a ring, one queue of consumers, counters
// between SMs. Internal to core/target. Pure; linear in tasks. The program must have passed validate().
#pragma once

#include <vector>

#include "core/program/program.h"
#include "core/target/machine_rates.h"

namespace amk {

struct Timeline {
  std::vector<double> instruction_end_us;  // the last task's end
  double end_us = 0;
};

// `position` is the launch position: position + 1 KV entries are read. `kv_from_hbm`: share of the KV bytes that competes with the weights.
// `hops` false: signals are seen at once and fetches take no round trip; what remains is streaming and arithmetic.
Timeline simulate(const Program& program, const MachineRates& rates, int position, double kv_from_hbm, bool hops);

}  // namespace amk
