// Configs and verdicts as an evaluator would make them, for tests of what comes after it.
#pragma once

#include <string>

#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "kernels/family.h"
#include "kernels/verdict.h"

namespace amk::test {

inline std::string id_of(const Json& config) { return "s" + hash128_hex(canonical_dump(config)); }

// Correct, with a predicted latency.
inline Verdict verdict_of(const Json& config, double latency_us, double bound_us = 50) {
  Verdict v;
  v.schedule_id = id_of(config);
  v.workload = "toy";
  v.gpu = "h100";
  v.device = "cpu";
  v.regime = "bf16-b1";
  v.config = config;
  v.status = VerdictStatus::Ok;
  v.valid = v.correct = true;
  v.latency_us = latency_us;
  v.latency_kind = LatencyKind::Predicted;
  v.bound_us = bound_us;
  v.pct_of_roofline = 100 * bound_us / latency_us;
  v.regions = {{"attention", 0.2 * latency_us}, {"mlp", 0.6 * latency_us}, {"lm_head", 0.1 * latency_us}, {"sync", 0.1 * latency_us}};
  return v;
}

// What a judge says first: whose verdict it is.
inline Verdict verdict_on(const Workload& workload, const Json& canonical, const std::string& device) {
  Verdict v;
  v.workload = workload.id();
  v.gpu = workload.target().name;
  v.device = device;
  v.regime = workload.regime();
  v.config = canonical;
  v.schedule_id = workload.schedule_id(canonical);
  return v;
}

// Valid, correct, with a predicted latency.
inline Verdict predicted(const Workload& workload, const Json& canonical, double latency_us) {
  Verdict v = verdict_on(workload, canonical, "cpu");
  v.status = VerdictStatus::Ok;
  v.valid = v.correct = true;
  v.correctness = Correctness{};
  v.latency_kind = LatencyKind::Predicted;
  v.latency_us = latency_us;
  return v;
}

// Not correct, in one of the ways that carry no latency.
inline Verdict bad(const Json& config, VerdictStatus status) {
  Verdict v = verdict_of(config, 1);
  v.latency_us.reset();
  v.pct_of_roofline.reset();
  v.latency_kind = LatencyKind::None;
  v.correct = false;
  v.valid = status != VerdictStatus::Rejected;
  v.status = status;
  if (status == VerdictStatus::Rejected) v.rejected = RejectedBy{"missing-wait", "task 1 reads what task 2 may still write", Json::object()};
  return v;
}

}  // namespace amk::test
