// When a campaign moves on, and what makes a candidate the new best. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "kernels/verdict.h"
#include "orchestrator/store/types.h"

namespace amk {

// Kept means at least this much faster than the incumbent (contract, honesty rule 5); not a setting.
inline constexpr double kMinSpeedup = 1.01;

// Each rule can be switched off: 0, or absent.
struct CampaignPolicy {
  int plateau = 8;                        // consecutive non-keeps; 0: a plateau never ends the campaign
  double within_floor = 0.10;             // done when best <= floor · (1 + this); negative: never
  std::optional<std::int64_t> budget_us;  // time spent in this campaign (boot clock, across restarts)
  std::optional<double> speedup_target;   // over the baseline: the product of the kept steps' ratios, each measured in turn
  bool operator==(const CampaignPolicy&) const = default;
};
Json to_json(const CampaignPolicy& policy);  // {"plateau", "within_floor", "budget_s", "speedup_target"}
// Missing keys keep the value of `base`; unknown keys and impossible values are refused by name.
Result<CampaignPolicy> policy_from_json(const Json& json, const CampaignPolicy& base = {});

// The incumbent that a candidate is judged against.
struct Incumbent {
  std::string schedule_id;
  double latency_us = 0;
};

struct Judgement {
  Outcome outcome = Outcome::Lost;
  std::string reason;        // one short machine word: "baseline", "faster", "not-faster", "below-floor", rejection rule …
  bool quarantined = false;  // faster than physics allows: this config is not evaluated again
};

// The outcome of a verdict. No incumbent: a correct candidate becomes the baseline. InvalidArgument when the verdict's latency kind is not
// the device kind's (a prediction can not enter a GPU campaign).
Result<Judgement> judge(const Verdict& verdict, const std::string& device_kind, const std::optional<Incumbent>& incumbent);

// The rule that ends a campaign, if one does: "plateau", "near-floor", "budget", "speedup-target".
struct Standing {
  bool has_best = false;
  double best_us = 0, bound_us = 0;  // bound 0: unknown
  double speedup = 0;                // of the best over the baseline, measured in turn step by step; asked for only where there is a target
  std::int64_t non_keeps = 0;        // since the last kept or reopening
  std::int64_t spent_us = 0;
};
std::optional<std::string> stop_reason(const CampaignPolicy& policy, const Standing& standing);

}  // namespace amk
