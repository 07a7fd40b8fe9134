// Honest timing: candidate against incumbent in turn (ABBA), in one process, with what the card said of its clocks. Says nothing of correctness.
// Free of CUDA: a Contestant runs one timed sample, a Monitor reads the card; tests fake both.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "kernels/evaluator/nvml.h"

namespace amk {

// One thing that is timed. sample_us() runs one sample, waited for and checked, and returns its time per unit of work by device events; flushing or
// other preparation happens outside the events.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual Result<double> sample_us() = 0;
};

struct ClockReading {
  double sm_mhz = 0;  // 0: unknown
  std::uint64_t throttle_reasons = 0;
};

class Monitor {
 public:
  virtual ~Monitor() = default;
  virtual std::optional<ClockReading> read() = 0;  // empty: no NVML
};

struct TimingOptions {
  int fewest_rounds = 8, most_rounds = 60;  // a round is ABBA: two samples of each
  std::chrono::milliseconds most_time{4000};
  int most_warmup_windows = 12;  // of 4 samples; warm when two windows agree within 2%
  double margin = 0.01;          // of the decision (core/base/stats.h)
  // Rounds during which the card gave one of these reasons are dropped. A kernel that holds the card at its power limit, as a large matrix product
  // does, has no other rounds: its family takes the software power cap out, and the samples in turn see the same cap.
  std::uint64_t unfair = kThrottleUnfair;
  std::function<bool()> stop;  // may be empty
};

struct Timing {
  std::vector<double> candidate_us, incumbent_us;  // valid samples; equal in number and in pairs when there is an incumbent
  double latency_us = 0, mad_us = 0;               // median and median absolute deviation of the candidate
  double incumbent_latency_us = 0;
  std::optional<RatioInterval> versus;  // incumbent / candidate
  Comparison decision = Comparison::Inconclusive;
  int rounds = 0, dropped_rounds = 0;  // dropped: the card throttled during the round
  double clock_mhz = 0;                // median over rounds; 0: unknown
  std::uint64_t throttle_reasons = 0;  // seen in any round
  bool warmed_up = true;               // false: windows never agreed
};

// Unavailable when fewer than kFewestValidRounds (judged_timing.h) were not dropped ("no-valid-samples" in data.withheld); else the first error of a
// contestant, or Cancelled.
Result<Timing> time_in_turn(Contestant& candidate, Contestant* incumbent, Monitor& monitor, const TimingOptions& options);

Json to_json(const Timing& timing);  // read by the judge: judged_timing.h

}  // namespace amk
