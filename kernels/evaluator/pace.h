// Whether a candidate is so slow that the check of its outputs is not worth the GPU's time. It is timed in turn with the incumbent, in the same
// moment, a launch each: beside other programs on the card everything may take many times as long as it did a second ago, and no figure of another
// moment can tell that from a slow candidate. Pure but for the contestants.
#pragma once

#include <chrono>
#include <vector>

#include "core/base/json_fwd.h"
#include "kernels/evaluator/clock.h"

namespace amk {

// Hopeless is a candidate that takes so many times as long as the incumbent, and so much longer: its check, hundreds of steps, would cost more than
// those of all that come after it.
constexpr double kHopeless = 4, kClearlySlower_us = 2000;

// Samples in turn: incumbent, candidate, incumbent, …, candidate, incumbent.
struct Pace {
  std::vector<double> candidate_us, incumbent_us;  // one more of the incumbent
};

// Five of the candidate. The incumbent runs once before, unseen; the candidate has run.
Result<Pace> take_pace(Contestant& candidate, Contestant& incumbent);

// In every turn the candidate was slower by the margin than the incumbent on either side of it. Of two that are alike it would be the slowest of its
// three in all five turns by chance less than once in a hundred times (353,792 of the 11! orders of eleven samples, Euler's zigzag number E11), and
// then by the margin as well: a candidate that is not slower is not given up.
bool hopeless(const Pace& pace);

Json to_json(const Pace& pace);
// What a worker says it saw. Corrupt, with the lie's name in the data, when it cannot be that: `waited` for the reply.
Result<Pace> judged_pace(const Json& reply, std::chrono::microseconds waited);

}  // namespace amk
