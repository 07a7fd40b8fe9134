// Samples of decode steps for the clock.
#pragma once

#include <functional>
#include <vector>

#include "kernels/evaluator/clock.h"
#include "kernels/evaluator/pace.h"
#include "kernels/megakernel/gpu_model.h"

namespace amk {

// A sample is `tokens` steps from position `first`, back to back, as many a launch as the program has; their time is divided by `tokens`. `flush`: L2
// is overwritten before each sample, outside the timed region (small models, whose weights would stay in L2).
struct TimedSpan {
  int first = 0, tokens = 1;
  bool flush = false;
  bool decoded = true;  // the candidate decodes what is before `first`; false: whatever it needs of that is there
};

struct ProgramTiming {
  Timing timing;
  int other_processes = 0;  // computing on the GPU besides this one, before or after; -1: unknown
  double wall_ratio = 0;    // wall clock over events of the last sample: below 1 the events cannot be right
};

// `before_last` prepares the candidate's last sample (default: outputs are poisoned).
// The candidate decodes the sequence up to `first` (the tokens must be set), then both are timed in turn, and the candidate runs last: its outputs
// are left in the sequence. The caller holds the GPU's lock.
Result<ProgramTiming> time_programs(GpuModel& model, DeviceProgram& candidate, DeviceProgram* incumbent, const TimedSpan& span, int most_ms,
                                    const std::function<Status()>& before_last = {});

// Both in turn from position 0 on, a launch a sample of at most `tokens` steps (the tokens must be set), as short as can be: a hopeless candidate is
// not run for longer than it takes to see that. The caller holds the GPU's lock.
Result<Pace> pace_programs(GpuModel& model, DeviceProgram& candidate, DeviceProgram& incumbent, int tokens);

}  // namespace amk
