#include "kernels/verdict.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>

#include "core/base/parse_json.h"

using namespace amk;

namespace {

Verdict full_verdict() {
  Verdict v;
  v.verdict_id = "v1";
  v.schedule_id = "s1";
  v.workload = "toy";
  v.gpu = "h100";
  v.device = "GPU-1";
  v.regime = "bf16-b1";
  v.config = {{"a", 1}};
  v.status = VerdictStatus::Ok;
  v.valid = v.correct = true;
  v.correctness = Correctness{1e-5, 1e-6, 1e-9, 0.75, 1e-4, true, 12};
  v.latency_us = 12.5;
  v.latency_kind = LatencyKind::MeasuredGpu;
  v.noise = Noise{0.1, 100, 9, 1980, false};
  v.bound_us = 10;
  v.pct_of_roofline = 80;
  v.read_bandwidth_gbs = 3000;
  v.versus = Versus{"s0", 1.25, 1.2, 1.3, Decision::Faster};
  v.tasks = 17;
  v.weight_bytes = 1 << 20;
  v.registers = 96;
  v.smem_bytes = 196608;
  v.build_ms = 1500;
  v.regions = {{"attention", 5.0}, {"mlp", 7.5}};
  v.notes = "n";
  return v;
}

Verdict rejected_verdict() {
  Verdict v;
  v.status = VerdictStatus::Rejected;
  v.rejected = RejectedBy{"cycle", "a cycle", {{"task", "t"}}};
  return v;
}

Json schema() {
  std::ifstream in(std::string(AMK_SOURCE_DIR) + "/schemas/verdict.schema.json");
  return parse_json(std::string(std::istreambuf_iterator<char>(in), {}), "verdict schema").value();
}

std::set<std::string> keys(const Json& object) {
  std::set<std::string> out;
  for (const auto& [key, value] : object.items()) out.insert(key);
  return out;
}

}  // namespace

TEST_CASE("the JSON has exactly the fields that the contract lists") {
  // The list of the published contract, written out by hand, with the three that identify the candidate.
  const std::set<std::string> contract = {"verdict_id",
                                          "schedule_id",
                                          "workload",
                                          "gpu",
                                          "device",
                                          "status",
                                          "valid",
                                          "rejected_reason",
                                          "rejected",
                                          "correct",
                                          "correctness",
                                          "latency_us",
                                          "latency_kind",
                                          "noise",
                                          "bound_us",
                                          "pct_of_roofline",
                                          "read_bandwidth_gbs",
                                          "withheld",
                                          "versus",
                                          "tasks",
                                          "weight_bytes",
                                          "registers",
                                          "smem_bytes",
                                          "build_ms",
                                          "notes",
                                          "regime",
                                          "config",
                                          "regions"};
  const Json json = to_json(full_verdict());
  CHECK(keys(json) == contract);
  CHECK(keys(to_json(Verdict{})) == contract);
  CHECK(keys(json["correctness"]) ==
        std::set<std::string>{"max_abs_err", "mean_abs_err", "kl", "top1_agreement", "bound", "bitwise_repeatable", "positions_checked"});
  CHECK(keys(json["noise"]) == std::set<std::string>{"mad_us", "samples", "rounds", "clock_mhz", "throttled"});
  CHECK(keys(json["versus"]) == std::set<std::string>{"incumbent", "ratio", "ci95", "decision"});
  CHECK(keys(to_json(rejected_verdict())["rejected"]) == std::set<std::string>{"rule", "message", "witness"});
}

TEST_CASE("the schema and the code agree on every key, nested ones too") {
  const Json s = schema();
  Json json = to_json(full_verdict());
  json["rejected"] = to_json(rejected_verdict())["rejected"];
  CHECK(keys(s["properties"]) == keys(json));
  CHECK(std::set<std::string>(s["required"].begin(), s["required"].end()) == keys(json));
  for (const char* nested : {"correctness", "noise", "versus", "rejected"}) {
    CAPTURE(nested);
    CHECK(keys(s["properties"][nested]["properties"]) == keys(json[nested]));
  }
  for (VerdictStatus each : {VerdictStatus::Ok, VerdictStatus::Rejected, VerdictStatus::Incorrect, VerdictStatus::Crash, VerdictStatus::Timeout,
                             VerdictStatus::Unavailable}) {
    const Json& choices = s["properties"]["status"]["enum"];
    CHECK(std::find(choices.begin(), choices.end(), Json(to_string(each))) != choices.end());
  }
}

TEST_CASE("values, and null where there is none") {
  const Json json = to_json(full_verdict());
  CHECK(json["status"] == "ok");
  CHECK(json["latency_kind"] == "measured-gpu");
  CHECK(json["versus"]["ci95"] == Json::array({1.2, 1.3}));
  CHECK(json["versus"]["decision"] == "faster");
  CHECK(json["rejected"].is_null());
  CHECK(json["withheld"].is_null());
  const Json empty = to_json(Verdict{});
  CHECK(empty["status"] == "unavailable");
  for (const char* key : {"latency_us", "latency_kind", "correctness", "noise", "versus", "tasks", "build_ms", "regions", "rejected_reason"}) {
    CAPTURE(key);
    CHECK(empty[key].is_null());
  }
  CHECK(to_json(rejected_verdict())["rejected_reason"] == "a cycle");
}

TEST_CASE("JSON and back is the identity") {
  Verdict nan = full_verdict();
  nan.status = VerdictStatus::Incorrect;
  nan.correct = false;
  nan.latency_us.reset();
  nan.latency_kind = LatencyKind::None;
  nan.correctness->max_abs_err = std::numeric_limits<double>::quiet_NaN();
  CHECK(to_json(nan)["correctness"]["max_abs_err"].is_null());
  for (const Verdict& v : {full_verdict(), rejected_verdict(), Verdict{}, nan}) {
    const Json json = to_json(v);
    const auto text = parse_json(canonical_dump(json), "verdict");
    REQUIRE(text);
    const auto back = verdict_from_json(*text);
    REQUIRE(back);
    CHECK(to_json(*back) == json);
  }
  CHECK(std::isinf(verdict_from_json(to_json(nan))->correctness->max_abs_err));
}

TEST_CASE("a wrong verdict is refused by field") {
  const auto field_of = [](const Verdict& v, const char* pointer, Json value) {
    Json json = to_json(v);
    json[Json::json_pointer(pointer)] = std::move(value);
    const auto read = verdict_from_json(json);
    REQUIRE_FALSE(read);
    return read.error().data["field"].get<std::string>();
  };
  CHECK(field_of(full_verdict(), "/status", "fine") == "status");
  CHECK(field_of(full_verdict(), "/latency_us", "12") == "latency_us");
  CHECK(field_of(full_verdict(), "/correctness/kl", "x") == "correctness.kl");
  CHECK(field_of(full_verdict(), "/versus/ci95", Json::array({1})) == "versus.ci95");
  CHECK(field_of(full_verdict(), "/noise", 3) == "noise.");
  CHECK(field_of(full_verdict(), "/latency_kind", "guessed") == "latency_kind");
  CHECK(field_of(full_verdict(), "/extra", 1) == "extra");
  CHECK(field_of(full_verdict(), "/tasks", 1.5) == "tasks");
  CHECK_FALSE(verdict_from_json(Json::array()));
  Json missing = to_json(full_verdict());
  missing.erase("valid");
  CHECK(verdict_from_json(missing).error().data["field"] == "valid");
  SUBCASE("and so is one that breaks a rule of honesty") {
    CHECK(field_of(full_verdict(), "/correct", false) == "latency_us");
    CHECK(field_of(full_verdict(), "/latency_kind", nullptr) == "latency_kind");
    CHECK(field_of(rejected_verdict(), "/rejected", nullptr) == "rejected");
    CHECK(field_of(full_verdict(), "/status", "rejected") == "rejected");
  }
}
