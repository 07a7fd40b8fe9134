// How the judge reads a worker's timing. Only raw samples and what the card said of its clocks are taken from it; median, deviation, ratio, interval
// and decision are computed here, from the samples. What a summary in the reply says is compared, never used. Pure, thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "kernels/evaluator/clock.h"

namespace amk {

// Fewer valid rounds than this are no measurement (six samples: the interval of core/base/stats.h needs five pairs).
inline constexpr int kFewestValidRounds = 3;

struct TimingAsked {
  bool incumbent = false;  // samples of an incumbent were asked for
  int samples_per_round = 2;
  double units_per_sample = 1;         // a sample is the time of one of so many units of work (tokens, launches) that ran
  std::chrono::microseconds waited{};  // for the reply, on the judge's own clock
};

// Corrupt with {"lie": name} when the reply cannot be what a worker measured:
//   "malformed"                    a field is missing or of a wrong type
//   "impossible-sample"            a sample is not a positive finite number
//   "too-few-samples"              fewer than kFewestValidRounds rounds of two, or another number than the rounds make
//   "unpaired-samples"             candidate and incumbent differ in number, or an incumbent was (not) asked for
//   "summary-contradicts-samples"  the reply's own median, ratio, interval or decision is not that of its samples
//   "longer-than-the-wait"         the samples together lasted longer than the judge waited for them
Result<Timing> judged_timing(const Json& reply, const TimingAsked& asked, double margin = TimingOptions().margin);

// The same of parts of it, for replies of other forms (pace.h): a list of samples, their sum, and how a lie is told.
Result<std::vector<double>> judged_samples(const Json& reply, const char* key);
Status within_the_wait(double total_us, std::chrono::microseconds waited);
tl::unexpected<Error> timing_lie(const char* name, const std::string& what);

// How a verdict calls such a timing.
inline constexpr const char* kImplausibleTiming = "implausible-timing";

}  // namespace amk
