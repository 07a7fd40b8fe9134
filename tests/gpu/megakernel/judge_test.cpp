// Verdicts of good, rejected and faulty candidates through a worker process.
#include "core/base/json.h"
#include "tests/gpu/megakernel/checks.h"

namespace amk::gpu_test {

void test_judge(const Bench& bench, Checks& checks) {
  const auto workload = bench.workload("small");
  if (!checks.check(workload, "small workload")) return;
  std::string requested;  // of the worker
  const auto link = bench.process_link();
  const auto judge = bench.judge(*link, &requested);
  const Json good = (*workload)->default_config();
  const auto canonical = [&](const char* text) { return (*workload)->canonical(json_of(text)).value_or(Json(nullptr)); };

  const auto first = judge->judge(**workload, good, std::nullopt, {});
  if (!checks.check(first, "judged")) return;
  checks.check(first->status == VerdictStatus::Ok && first->correct, "default is ok: " + first->notes);
  checks.check(first->latency_us && *first->latency_us > 0 && first->latency_kind == LatencyKind::MeasuredGpu, "it has a measured latency");
  checks.check(first->correctness && first->correctness->bitwise_repeatable, "and is repeatable");
  checks.check(first->device == bench.device.uuid, "on this GPU");

  const auto against = judge->judge(**workload, canonical(R"({"threads_per_block":160})"), good, {});
  if (checks.check(against, "judged against an incumbent")) {
    checks.check(against->status == VerdictStatus::Ok && against->versus.has_value(), "it is compared: " + against->notes);
  }
  const auto itself = judge->judge(**workload, good, good, {});
  checks.check(itself && itself->status == VerdictStatus::Ok && !itself->versus, "a candidate is not compared with itself");

  const auto rejected = judge->judge(**workload, canonical(R"({"smem_bytes_per_block":32768})"), std::nullopt, {});
  if (checks.check(rejected, "too small a ring is judged")) {
    checks.check(
        rejected->status == VerdictStatus::Rejected && rejected->rejected && rejected->rejected->rule == "ring-turn" && !rejected->latency_us,
        "rejected by rule");
  }
  // Faults that only a worker started for tests makes.
  for (const auto& [fault, expected] : {std::pair{"hang", VerdictStatus::Timeout}, {"crash", VerdictStatus::Crash}, {"exit", VerdictStatus::Crash}}) {
    requested = fault;
    const auto bad = judge->judge(**workload, canonical(R"({"pipelining_depth":2})"), good, {});
    requested.clear();
    if (checks.check(bad, std::string(fault) + " is judged"))
      checks.check(bad->status == expected && !bad->correct && !bad->latency_us, std::string(fault) + " has its status: " + bad->notes);
    const auto next = judge->judge(**workload, good, std::nullopt, {});
    checks.check(next && next->status == VerdictStatus::Ok, std::string("the candidate after a ") + fault + " is unharmed");
  }
}

}  // namespace amk::gpu_test
