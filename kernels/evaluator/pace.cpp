#include "kernels/evaluator/pace.h"

#include <algorithm>
#include <numeric>

#include "core/base/json.h"
#include "kernels/evaluator/judged_timing.h"

namespace amk {
namespace {

constexpr std::size_t kPaceTurns = 5;

}  // namespace

Result<Pace> take_pace(Contestant& candidate, Contestant& incumbent) {
  Pace pace;
  AMK_TRY(unseen, incumbent.sample_us());
  (void)unseen;
  AMK_TRY(first, incumbent.sample_us());
  pace.incumbent_us.push_back(first);
  for (std::size_t i = 0; i < kPaceTurns; ++i) {
    AMK_TRY(own, candidate.sample_us());
    AMK_TRY(other, incumbent.sample_us());
    pace.candidate_us.push_back(own);
    pace.incumbent_us.push_back(other);
  }
  return pace;
}

bool hopeless(const Pace& pace) {
  const std::size_t turns = pace.candidate_us.size();
  if (turns < kPaceTurns || pace.incumbent_us.size() != turns + 1) return false;
  for (std::size_t i = 0; i < turns; ++i) {
    const double beside = std::max(pace.incumbent_us[i], pace.incumbent_us[i + 1]);
    if (pace.candidate_us[i] <= std::max(kHopeless * beside, beside + kClearlySlower_us)) return false;
  }
  return true;
}

Json to_json(const Pace& pace) { return {{"candidate_us", pace.candidate_us}, {"incumbent_us", pace.incumbent_us}}; }

Result<Pace> judged_pace(const Json& reply, std::chrono::microseconds waited) {
  Pace pace;
  AMK_TRY(candidate, judged_samples(reply, "candidate_us"));
  AMK_TRY(incumbent, judged_samples(reply, "incumbent_us"));
  pace.candidate_us = std::move(candidate);
  pace.incumbent_us = std::move(incumbent);
  if (pace.candidate_us.size() != kPaceTurns || pace.incumbent_us.size() != kPaceTurns + 1)
    return timing_lie("unpaired-samples", std::to_string(pace.candidate_us.size()) + " samples of the candidate, " +
                                              std::to_string(pace.incumbent_us.size()) + " of the incumbent in turn");
  const auto sum = [](const std::vector<double>& us) { return std::accumulate(us.begin(), us.end(), 0.0); };
  AMK_CHECK(within_the_wait(sum(pace.candidate_us) + sum(pace.incumbent_us), waited));
  return pace;
}

}  // namespace amk
