#include "orchestrator/campaign/policy.h"

#include <cmath>

namespace amk {
namespace {

// A candidate that the evaluator called ok; what remains is whether its time can be believed and whether it is better.
Judgement judge_ok(const Verdict& v, const std::optional<Incumbent>& incumbent) {
  if (!v.valid || !v.correct) return {Outcome::Failed, "not-correct", false};
  if (v.withheld == "below-floor") return {Outcome::Failed, "below-floor", true};
  if (!v.withheld.empty()) return {Outcome::Lost, v.withheld, false};  // no valid samples, throttled: the machine's doing
  if (!v.latency_us || !std::isfinite(*v.latency_us) || *v.latency_us <= 0) return {Outcome::Lost, "no-latency", false};
  // The evaluator withholds such figures; that none slips through does not rest on it alone.
  if (v.bound_us && *v.latency_us < *v.bound_us) return {Outcome::Failed, "below-floor", true};
  if (!incumbent) return {Outcome::Kept, "baseline", false};
  if (v.latency_kind == LatencyKind::Predicted) {
    // The model is deterministic: its ratio has no interval.
    const double ratio = incumbent->latency_us / *v.latency_us;
    return ratio >= kMinSpeedup ? Judgement{Outcome::Kept, "faster", false} : Judgement{Outcome::Revert, "not-faster", false};
  }
  if (!v.versus) return {Outcome::Inconclusive, "not-compared", false};
  if (v.versus->incumbent != incumbent->schedule_id) return {Outcome::Inconclusive, "stale-incumbent", false};
  const Versus& versus = *v.versus;
  if (versus.decision == Decision::Faster && versus.ci_low >= kMinSpeedup) return {Outcome::Kept, "faster", false};
  if (versus.decision == Decision::Slower || versus.ci_high < kMinSpeedup) return {Outcome::Revert, "not-faster", false};
  return {Outcome::Inconclusive, "interval-too-wide", false};
}

}  // namespace

Json to_json(const CampaignPolicy& policy) {
  Json out = {{"plateau", policy.plateau}, {"within_floor", policy.within_floor}, {"budget_s", nullptr}, {"speedup_target", nullptr}};
  if (policy.budget_us) out["budget_s"] = static_cast<double>(*policy.budget_us) / 1e6;
  if (policy.speedup_target) out["speedup_target"] = *policy.speedup_target;
  return out;
}

Result<CampaignPolicy> policy_from_json(const Json& json, const CampaignPolicy& base) {
  if (!json.is_object()) return bad_field("policy", json, "an object with plateau, within_floor, budget_s, speedup_target");
  CampaignPolicy out = base;
  for (const auto& [key, value] : json.items()) {
    if (key == "plateau") {
      if (!value.is_number_integer() || value < 0 || value > 1'000'000)
        return bad_field("policy.plateau", value, "an integer from 0 (never) to 1000000");
      out.plateau = value;
    } else if (key == "within_floor") {
      if (!value.is_number() || value > 10 || value < -1) return bad_field("policy.within_floor", value, "a number up to 10; negative: never");
      out.within_floor = value;
    } else if (key == "budget_s") {
      if (value.is_null())
        out.budget_us.reset();
      else if (!value.is_number() || value < 0 || value > 1e9)
        return bad_field("policy.budget_s", value, "seconds from 0 (no more than was spent) to 1e9, or null");
      else
        out.budget_us = std::llround(value.get<double>() * 1e6);
    } else if (key == "speedup_target") {
      if (value.is_null())
        out.speedup_target.reset();
      else if (!value.is_number() || value < 1 || value > 1e6)
        return bad_field("policy.speedup_target", value, "a number from 1 to 1e6, or null");
      else
        out.speedup_target = value;
    } else {
      return bad_field("policy", key, "plateau, within_floor, budget_s, speedup_target");
    }
  }
  return out;
}

Result<Judgement> judge(const Verdict& verdict, const std::string& device_kind, const std::optional<Incumbent>& incumbent) {
  switch (verdict.status) {
    case VerdictStatus::Rejected:
      return Judgement{Outcome::Rejected, verdict.rejected ? verdict.rejected->rule : "rejected", false};
    case VerdictStatus::Incorrect:
      return Judgement{Outcome::Failed, "incorrect", false};
    case VerdictStatus::Crash:
      return Judgement{Outcome::Crash, "crash", false};
    case VerdictStatus::Timeout:
      return Judgement{Outcome::Timeout, "timeout", false};
    case VerdictStatus::Unavailable:
      return Judgement{Outcome::Lost, verdict.withheld.empty() ? "unavailable" : verdict.withheld, false};
    case VerdictStatus::Ok:
      break;
  }
  const LatencyKind wanted = device_kind == "cuda" ? LatencyKind::MeasuredGpu : LatencyKind::Predicted;
  if (verdict.latency_us && verdict.latency_kind != wanted)
    return bad_field("verdict.latency_kind", to_json(verdict.latency_kind),
                     device_kind == "cuda" ? "measured-gpu in a cuda campaign" : "predicted in a cpu campaign");
  return judge_ok(verdict, incumbent);
}

std::optional<std::string> stop_reason(const CampaignPolicy& policy, const Standing& s) {
  if (s.has_best) {
    if (policy.within_floor >= 0 && s.bound_us > 0 && s.best_us <= s.bound_us * (1 + policy.within_floor)) return "near-floor";
    if (policy.speedup_target && s.speedup >= *policy.speedup_target) return "speedup-target";
  }
  if (policy.budget_us && s.spent_us >= *policy.budget_us) return "budget";
  if (policy.plateau > 0 && s.non_keeps >= policy.plateau) return s.has_best ? "plateau" : "no-correct-baseline";
  return std::nullopt;
}

}  // namespace amk
