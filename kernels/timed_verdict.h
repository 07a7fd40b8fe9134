// What measured samples mean for a verdict, in one place for every family: the floor, what is withheld and why, clocks, the comparison. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "kernels/evaluator/judged_timing.h"
#include "kernels/verdict.h"

namespace amk {

struct TimedFloor {
  double bound_us = 0;          // no honest sample is shorter
  std::int64_t bytes_read = 0;  // of one unit of work: for the bandwidth beside the latency
};

// Overwrites every field that speaks of time. `incumbent`: the schedule_id that the samples were taken in turn with; empty: none.
void fill_timed(Verdict& verdict, const Timing& timing, const TimedFloor& floor, const std::string& incumbent);

// The verdict is correct and has no time: `reason` is the name ("no-valid-samples", …), `note` says it to people.
void withhold(Verdict& verdict, std::string reason, const std::string& note);

// How a worker says what it timed beside the samples: {"timing", "wall_ratio", "other_processes"}.
//   wall_ratio       wall clock over device events of the last sample: below 1 the events cannot be right
//   other_processes  computing on the card besides the worker, before or after; -1: unknown
Json timed_reply(const Timing& timing, double wall_ratio, int other_processes);

// Reads such a reply into the verdict; everything about time is computed again from the samples. False when the reply cannot be what a worker
// measured: the time is then withheld as kImplausibleTiming, and the worker should not be asked again.
bool judge_timed_reply(Verdict& verdict, const Json& reply, const TimingAsked& asked, const TimedFloor& floor, const std::string& incumbent);

// A sentence that the notes hold already is not said twice.
void append_note(Verdict& verdict, const std::string& note);

}  // namespace amk
