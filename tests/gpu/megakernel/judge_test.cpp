// Verdicts of good, rejected and faulty candidates through a worker process.
#include "core/base/json.h"
#include "tests/gpu/megakernel/checks.h"
#include "tests/gpu/megakernel/crowd.h"

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

namespace {

// Everything on one multiprocessor, by few threads that load without a ring: tens of milliseconds where the default takes half of one.
Json on_one_multiprocessor(const MegakernelWorkload& workload) {
  Json config = json_of(R"({"threads_per_block":128,"smem_bytes_per_block":0,"tiling":{"gemv":{"N_tile":512}},
                            "kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})");
  const ModelSpec& spec = workload.model().spec;
  Json& placed = config["sm_assignment"];
  const auto place = [&placed](const std::string& instruction, int rows) {
    for (int tile = 0; tile < (rows + 511) / 512; ++tile) placed[instruction + "." + std::to_string(tile)] = 0;
  };
  for (int l = 0; l < spec.layers; ++l) {
    const std::string layer = "L" + std::to_string(l) + ".";
    place(layer + "qkv", (spec.heads + 2 * spec.kv_heads) * spec.head_dim);
    place(layer + "o_proj", spec.hidden);
    place(layer + "gate_up", 2 * spec.intermediate);
    place(layer + "down", spec.hidden);
  }
  place("lm_head", spec.vocab);
  return config;
}

}  // namespace

void test_judge_crowded(const Bench& bench, Checks& checks) {
  const auto workload = bench.workload("smollm2-135m");
  if (!checks.check(workload, "smollm2-135m workload")) return;
  const auto link = bench.process_link();
  const auto judge = bench.judge(*link);
  const auto canonical = [&](const Json& config) { return (*workload)->canonical(config).value_or(Json(nullptr)); };
  const Json incumbent = (*workload)->default_config(), slow = canonical(on_one_multiprocessor(**workload));
  // As good as the default, and of its kernel: nothing to build.
  const char* good[] = {R"({"sm_assignment":"round_robin"})", R"({"page_allocation":"linear"})",
                        R"({"sm_assignment":"round_robin","page_allocation":"linear"})", R"({"sm_assignment":"measured","page_allocation":"none"})"};
  const auto seen = [&](const char* what, const char* where, const Json& config) {
    auto verdict = judge->judge(**workload, config, incumbent, {});
    if (!checks.check(verdict, std::string(what) + " is judged " + where)) return Verdict{};
    std::printf("judge_crowded: %s %s: %s, %.1f us; %s\n", what, where, to_json(*verdict).value("status", "").c_str(),
                verdict->latency_us.value_or(0), verdict->notes.c_str());
    return *verdict;
  };
  const auto is_given_up = [&](const char* where) {
    const Verdict v = seen("a hopeless candidate", where, slow);
    checks.check(v.status == VerdictStatus::Timeout && !v.latency_us && v.notes.find("Given up") != std::string::npos,
                 std::string("and is given up ") + where + ": " + v.notes);
  };
  const auto is_ok = [&](const char* where, const char* config) {
    const Verdict v = seen("a good candidate", where, canonical(json_of(config)));
    checks.check(v.status == VerdictStatus::Ok && v.correct && v.latency_us && v.versus, std::string("and is ok ") + where + ": " + v.notes);
  };
  is_given_up("before anything was timed");
  is_ok("alone", good[0]);
  is_given_up("alone");
  const auto crowd = Crowd::gather(bench, 6);
  if (!checks.check(crowd, "six other programs keep the card busy")) return;
  for (int i = 1; i < 4; ++i) is_ok("beside other programs", good[i]);  // the incumbent's time is that of the quiet card at first
  is_given_up("beside other programs");
}

}  // namespace amk::gpu_test
