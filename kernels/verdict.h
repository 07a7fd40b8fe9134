// What the evaluator says of one candidate. Field names and their meaning are fixed (schemas/verdict.schema.json).
// Only the evaluator makes verdicts; a verdict_id is the sole evidence that can make a best. Value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/stats.h"

namespace amk {

enum class VerdictStatus { Ok, Rejected, Incorrect, Crash, Timeout, Unavailable };
enum class LatencyKind { None, MeasuredGpu, Predicted };  // JSON: null, "measured-gpu", "predicted"
enum class Decision { Faster, Slower, Inconclusive };
std::string_view to_string(VerdictStatus status);
std::string_view to_string(Decision decision);
Json to_json(LatencyKind kind);
Decision decision_of(Comparison outcome);

struct Correctness {
  double max_abs_err = 0, mean_abs_err = 0, kl = 0, top1_agreement = 0, bound = 0;
  bool bitwise_repeatable = false;
  std::int64_t positions_checked = 0;
};

struct Noise {
  double mad_us = 0;
  std::int64_t samples = 0, rounds = 0;
  double clock_mhz = 0;
  bool throttled = false;
};

// Candidate against the incumbent, in turn, same process and device. ratio = incumbent time / candidate time (> 1: candidate faster).
struct Versus {
  std::string incumbent;  // schedule_id
  double ratio = 1;
  double ci_low = 1, ci_high = 1;  // 95%
  Decision decision = Decision::Inconclusive;
};

struct RejectedBy {
  std::string rule, message;
  Json witness = Json::object();
};

struct Verdict {
  std::string verdict_id;  // unguessable; issued by the evaluator
  std::string schedule_id;
  std::string workload;
  std::string gpu;               // target name
  std::string device;            // "cpu", or the GPU's UUID
  std::string regime;            // "bf16-b1", "int8-b1", "det-bf16" …: only equal regimes are compared
  Json config = Json::object();  // canonical
  VerdictStatus status = VerdictStatus::Unavailable;
  bool valid = false;
  std::optional<RejectedBy> rejected;  // status == Rejected
  bool correct = false;
  std::optional<Correctness> correctness;
  std::optional<double> latency_us;  // only when correct
  LatencyKind latency_kind = LatencyKind::None;
  std::optional<Noise> noise;
  std::optional<double> bound_us, pct_of_roofline, read_bandwidth_gbs;
  std::string withheld;  // empty: nothing withheld
  std::optional<Versus> versus;
  std::optional<std::int64_t> tasks, weight_bytes, registers, smem_bytes;
  std::optional<double> build_ms;
  Json regions = nullptr;  // where the time goes: {"attention","mlp","lm_head","sync","other"} in µs, when known
  std::string notes;
};

// Of a candidate that `error` keeps from running. The rule and its witness are error.data's; `stage`: the rule when the error names none.
void reject(Verdict& verdict, const Error& error, std::string_view stage);

Json to_json(const Verdict& verdict);
Result<Verdict> verdict_from_json(const Json& json);

}  // namespace amk
