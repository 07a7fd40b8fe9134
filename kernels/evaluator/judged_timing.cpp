#include "kernels/evaluator/judged_timing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/json.h"
#include "core/base/number_text.h"

namespace amk {
namespace {

// Sums and medians are computed from the same numbers by the same code on both sides; JSON keeps doubles exactly. The slack is for a worker of
// another compiler.
bool agree(double said, double computed) {
  if (std::isinf(said) || std::isinf(computed)) return said == computed;
  return std::abs(said - computed) <= 1e-9 * std::abs(computed);
}

Result<std::int64_t> count_of(const Json& reply, const char* key, std::int64_t most) {
  const auto at = reply.find(key);
  if (at == reply.end() || !at->is_number_integer()) return timing_lie("malformed", std::string(key) + " is no whole number");
  if (at->is_number_unsigned() && at->get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    return timing_lie("malformed", std::string(key) + " is too large");
  const auto value = at->get<std::int64_t>();
  if (value < 0) return timing_lie("malformed", std::string(key) + " is negative");
  return value;
}

// Absent fields claim nothing. Infinity travels as null.
Status check_claims(const Json& reply, const Timing& t) {
  const auto contradicts = [&reply](const char* key, double computed) {
    const auto at = reply.find(key);
    if (at == reply.end()) return false;
    return !at->is_number() || !agree(at->get<double>(), computed);
  };
  const auto refuse = [](const char* key) { return timing_lie("summary-contradicts-samples", std::string(key) + " is not that of its samples"); };
  if (contradicts("latency_us", t.latency_us)) return refuse("latency_us");
  if (contradicts("mad_us", t.mad_us)) return refuse("mad_us");
  if (contradicts("incumbent_latency_us", t.incumbent_latency_us)) return refuse("incumbent_latency_us");
  if (const auto said = reply.find("versus"); said != reply.end() && !said->is_null()) {
    if (!t.versus || !said->is_array() || said->size() != 3) return refuse("versus");
    const double computed[3] = {t.versus->ratio, t.versus->ci_low, t.versus->ci_high};
    for (std::size_t i = 0; i < 3; ++i) {
      const Json& v = (*said)[i];
      if (v.is_null() ? std::isfinite(computed[i]) : !v.is_number() || !agree(v.get<double>(), computed[i])) return refuse("versus");
    }
  }
  if (const auto said = reply.find("decision"); said != reply.end() && *said != static_cast<int>(t.decision)) return refuse("decision");
  return {};
}

}  // namespace

tl::unexpected<Error> timing_lie(const char* name, const std::string& what) {
  return fail(ErrorKind::Corrupt, "the worker's timing cannot be what it measured: " + what, {{"lie", name}});
}

Result<std::vector<double>> judged_samples(const Json& reply, const char* key) {
  const auto at = reply.find(key);
  if (at == reply.end() || !at->is_array()) return timing_lie("malformed", std::string(key) + " is no list");
  std::vector<double> samples;
  samples.reserve(at->size());
  for (const Json& value : *at) {
    if (!value.is_number()) return timing_lie("impossible-sample", std::string(key) + " holds " + value.dump().substr(0, 40));
    const double us = value.get<double>();
    if (!std::isfinite(us) || us <= 0) return timing_lie("impossible-sample", std::string(key) + " holds " + with_digits(us, 9) + " us");
    samples.push_back(us);
  }
  return samples;
}

Status within_the_wait(double total_us, std::chrono::microseconds waited) {
  // Device clocks and ours may run apart by a little; honest samples are a part of the wait only.
  constexpr double kClocksApart = 1.01;
  if (total_us <= kClocksApart * static_cast<double>(waited.count())) return {};
  return timing_lie("longer-than-the-wait", "samples of " + with_digits(total_us, 9) + " us came within " + std::to_string(waited.count()) + " us");
}

Result<Timing> judged_timing(const Json& reply, const TimingAsked& asked, double margin) {
  if (!reply.is_object()) return timing_lie("malformed", "it is no object");
  Timing t;
  AMK_TRY(candidate, judged_samples(reply, "candidate_us"));
  AMK_TRY(incumbent, judged_samples(reply, "incumbent_us"));
  t.candidate_us = std::move(candidate);
  t.incumbent_us = std::move(incumbent);
  constexpr std::int64_t kMostRounds = 10'000;
  AMK_TRY(rounds, count_of(reply, "rounds", kMostRounds));
  AMK_TRY(dropped, count_of(reply, "dropped_rounds", kMostRounds));
  AMK_TRY(reasons, count_of(reply, "throttle_reasons", std::numeric_limits<std::int64_t>::max()));
  t.rounds = static_cast<int>(rounds);
  t.dropped_rounds = static_cast<int>(dropped);
  t.throttle_reasons = static_cast<std::uint64_t>(reasons);
  const auto clock = reply.find("clock_mhz"), warmed = reply.find("warmed_up");
  if (clock == reply.end() || !clock->is_number() || !(clock->get<double>() >= 0) || !std::isfinite(clock->get<double>()))
    return timing_lie("malformed", "clock_mhz is no frequency");
  if (warmed == reply.end() || !warmed->is_boolean()) return timing_lie("malformed", "warmed_up is neither true nor false");
  t.clock_mhz = *clock;
  t.warmed_up = *warmed;

  if (t.candidate_us.size() < 2 * kFewestValidRounds ||
      t.candidate_us.size() != static_cast<std::size_t>(t.rounds) * static_cast<std::size_t>(asked.samples_per_round))
    return timing_lie("too-few-samples", std::to_string(t.candidate_us.size()) + " samples in " + std::to_string(t.rounds) + " rounds of " +
                                             std::to_string(asked.samples_per_round));
  if (t.incumbent_us.size() != (asked.incumbent ? t.candidate_us.size() : 0))
    return timing_lie("unpaired-samples", std::to_string(t.candidate_us.size()) + " samples of the candidate, " +
                                              std::to_string(t.incumbent_us.size()) + " of the incumbent" +
                                              (asked.incumbent ? "" : ", which was not asked for"));
  t.latency_us = median(t.candidate_us);
  t.mad_us = median_absolute_deviation(t.candidate_us);
  if (asked.incumbent) {
    t.incumbent_latency_us = median(t.incumbent_us);
    t.versus = paired_ratio(t.incumbent_us, t.candidate_us);
    t.decision = decide(*t.versus, margin);
  }
  AMK_CHECK(check_claims(reply, t));
  AMK_CHECK(within_the_wait(asked.units_per_sample * (std::accumulate(t.candidate_us.begin(), t.candidate_us.end(), 0.0) +
                                                      std::accumulate(t.incumbent_us.begin(), t.incumbent_us.end(), 0.0)),
                            asked.waited));
  return t;
}

}  // namespace amk
