#include "kernels/evaluator/clock.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/json.h"
#include "kernels/evaluator/judged_timing.h"
#include "kernels/evaluator/nvml.h"

namespace amk {
namespace {

constexpr int kWindow = 4;
constexpr double kWarmAgreement = 0.02;

// Until two windows in a row have medians within 2% of each other.
Result<bool> warm_up(Contestant& contestant, const TimingOptions& options) {
  double before = 0;
  for (int window = 0; window < options.most_warmup_windows; ++window) {
    std::array<double, kWindow> samples{};
    for (double& s : samples) {
      if (options.stop && options.stop()) return fail(ErrorKind::Cancelled, "cancelled while warming up");
      AMK_TRY(us, contestant.sample_us());
      s = us;
    }
    const double now = median(samples);
    if (window > 0 && std::abs(now - before) <= kWarmAgreement * before) return true;
    before = now;
  }
  return false;
}

struct Round {
  std::vector<double> candidate, incumbent;
};

Result<Round> run_round(Contestant& candidate, Contestant* incumbent) {
  Round round;
  const auto sample = [](Contestant& c, std::vector<double>& into) -> Status {
    AMK_TRY(us, c.sample_us());
    into.push_back(us);
    return {};
  };
  if (incumbent == nullptr) {
    AMK_CHECK(sample(candidate, round.candidate));
    AMK_CHECK(sample(candidate, round.candidate));
    return round;
  }
  AMK_CHECK(sample(*incumbent, round.incumbent));
  AMK_CHECK(sample(candidate, round.candidate));
  AMK_CHECK(sample(candidate, round.candidate));
  AMK_CHECK(sample(*incumbent, round.incumbent));
  return round;
}

}  // namespace

Result<Timing> time_in_turn(Contestant& candidate, Contestant* incumbent, Monitor& monitor, const TimingOptions& options) {
  Timing t;
  AMK_TRY(candidate_warm, warm_up(candidate, options));
  t.warmed_up = candidate_warm;
  if (incumbent != nullptr) {
    AMK_TRY(incumbent_warm, warm_up(*incumbent, options));
    t.warmed_up = t.warmed_up && incumbent_warm;
  }
  std::vector<double> clocks;
  const auto end = std::chrono::steady_clock::now() + options.most_time;
  for (int attempt = 0; attempt < options.most_rounds; ++attempt) {
    if (options.stop && options.stop()) return fail(ErrorKind::Cancelled, "cancelled during timing");
    if (t.rounds >= options.fewest_rounds || attempt >= 2 * options.fewest_rounds) {
      if (std::chrono::steady_clock::now() >= end) break;
      // Without an incumbent the fewest rounds are enough. With one, early when the interval is clear of 1 by the margin (stopping at the first look
      // at which it merely excludes 1 would find differences between equals), and when nothing is left to win: half the margin out of reach. The
      // latter can only cost a gain that is near the margin, never keep what is none.
      if (incumbent == nullptr && t.rounds >= options.fewest_rounds) break;
      if (incumbent != nullptr && t.rounds >= options.fewest_rounds) {
        const RatioInterval so_far = paired_ratio(t.incumbent_us, t.candidate_us);
        if (so_far.ci_low > 1 + options.margin || so_far.ci_high < 1 + options.margin / 2) break;
      }
    }
    const auto before = monitor.read();
    AMK_TRY(round, run_round(candidate, incumbent));
    const auto after = monitor.read();
    const std::uint64_t reasons = (before ? before->throttle_reasons : 0) | (after ? after->throttle_reasons : 0);
    t.throttle_reasons |= reasons;
    if ((reasons & options.unfair) != 0) {
      ++t.dropped_rounds;
      continue;
    }
    if (after && after->sm_mhz > 0) clocks.push_back(after->sm_mhz);
    t.candidate_us.insert(t.candidate_us.end(), round.candidate.begin(), round.candidate.end());
    t.incumbent_us.insert(t.incumbent_us.end(), round.incumbent.begin(), round.incumbent.end());
    ++t.rounds;
  }
  if (t.rounds < kFewestValidRounds)
    return fail(ErrorKind::Unavailable,
                "no valid timing samples: the card throttled in " + std::to_string(t.dropped_rounds) + " of " +
                    std::to_string(t.dropped_rounds + t.rounds) + " rounds (" + throttle_text(t.throttle_reasons) + ")",
                {{"withheld", "no-valid-samples"}, {"throttle_reasons", throttle_text(t.throttle_reasons)}});
  t.latency_us = median(t.candidate_us);
  t.mad_us = median_absolute_deviation(t.candidate_us);
  if (!clocks.empty()) t.clock_mhz = median(clocks);
  if (incumbent != nullptr) {
    t.incumbent_latency_us = median(t.incumbent_us);
    t.versus = paired_ratio(t.incumbent_us, t.candidate_us);
    t.decision = decide(*t.versus, options.margin);
  }
  return t;
}

Json to_json(const Timing& t) {
  Json json = {{"candidate_us", t.candidate_us},
               {"incumbent_us", t.incumbent_us},
               {"latency_us", t.latency_us},
               {"mad_us", t.mad_us},
               {"incumbent_latency_us", t.incumbent_latency_us},
               {"decision", static_cast<int>(t.decision)},
               {"rounds", t.rounds},
               {"dropped_rounds", t.dropped_rounds},
               {"clock_mhz", t.clock_mhz},
               {"throttle_reasons", t.throttle_reasons},
               {"warmed_up", t.warmed_up}};
  const auto or_null = [](double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); };
  if (t.versus) json["versus"] = {or_null(t.versus->ratio), or_null(t.versus->ci_low), or_null(t.versus->ci_high)};
  return json;
}

}  // namespace amk
