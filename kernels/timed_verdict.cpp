#include "kernels/timed_verdict.h"

#include <cmath>
#include <utility>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "kernels/evaluator/nvml.h"

namespace amk {
namespace {

Result<Timing> believe(const Json& reply, const TimingAsked& asked) {
  const auto wall = reply.find("wall_ratio");
  if (wall == reply.end() || !wall->is_number() || !std::isfinite(wall->get<double>()) || wall->get<double>() < 0) {
    return fail(ErrorKind::Corrupt, "the worker's timing cannot be what it measured: it was not held against the wall clock",
                {{"lie", "no-wall-clock"}});
  }
  const auto timing = reply.find("timing");
  return judged_timing(timing == reply.end() ? Json(nullptr) : *timing, asked);
}

void clear_time(Verdict& verdict) {
  verdict.latency_us.reset();
  verdict.latency_kind = LatencyKind::None;
  verdict.pct_of_roofline.reset();
  verdict.read_bandwidth_gbs.reset();
  verdict.versus.reset();
  verdict.withheld.clear();
}

}  // namespace

void append_note(Verdict& verdict, const std::string& note) {
  if (note.empty() || verdict.notes.find(note) != std::string::npos) return;
  verdict.notes += (verdict.notes.empty() ? "" : " ") + note;
}

void withhold(Verdict& verdict, std::string reason, const std::string& note) {
  clear_time(verdict);
  verdict.noise.reset();
  verdict.withheld = std::move(reason);
  append_note(verdict, note);
}

void fill_timed(Verdict& verdict, const Timing& t, const TimedFloor& floor, const std::string& incumbent) {
  clear_time(verdict);
  const std::uint64_t unfair = t.throttle_reasons & kThrottleUnfair;
  verdict.noise = Noise{t.mad_us, static_cast<std::int64_t>(t.candidate_us.size()), t.rounds, t.clock_mhz, unfair != 0};
  verdict.bound_us = floor.bound_us;
  if (!t.warmed_up) append_note(verdict, "Warm-up windows did not settle within 2%.");
  if (t.dropped_rounds > 0)
    append_note(verdict, std::to_string(t.dropped_rounds) + " rounds dropped: the card throttled (" + throttle_text(unfair) + ").");
  else if (unfair != 0)
    append_note(verdict, "Timed while the card throttled (" + throttle_text(unfair) + ").");
  if (t.latency_us < floor.bound_us) {
    verdict.withheld = "below-floor";
    append_note(verdict, "Measured below the physical floor of " + with_digits(floor.bound_us, 6) + " us: withheld.");
    return;
  }
  verdict.latency_us = t.latency_us;
  verdict.latency_kind = LatencyKind::MeasuredGpu;
  if (floor.bound_us > 0) verdict.pct_of_roofline = 100.0 * floor.bound_us / t.latency_us;
  verdict.read_bandwidth_gbs = static_cast<double>(floor.bytes_read) / t.latency_us * 1e-3;
  if (t.versus && !incumbent.empty())
    verdict.versus = Versus{incumbent, t.versus->ratio, t.versus->ci_low, t.versus->ci_high, decision_of(t.decision)};
}

Json timed_reply(const Timing& timing, double wall_ratio, int other_processes) {
  return {{"timing", to_json(timing)}, {"wall_ratio", wall_ratio}, {"other_processes", other_processes}};
}

bool judge_timed_reply(Verdict& verdict, const Json& reply, const TimingAsked& asked, const TimedFloor& floor, const std::string& incumbent) {
  if (const auto others = reply.find("other_processes"); others != reply.end() && others->is_number_integer() && *others > 0)
    append_note(verdict, std::to_string(others->get<std::int64_t>()) + " other processes were computing on the GPU.");
  const auto timing = believe(reply, asked);
  if (!timing) {
    withhold(verdict, kImplausibleTiming, timing.error().message + ": withheld.");
    return false;
  }
  if (reply.at("wall_ratio").get<double>() < 1.0)
    withhold(verdict, "events-exceed-wall-clock", "Device events report more time than the wall clock: withheld.");
  else
    fill_timed(verdict, *timing, floor, incumbent);
  return true;
}

}  // namespace amk
