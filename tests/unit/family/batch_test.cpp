// MODEL@b4 as a workload: its regime, its space, its judgement on the CPU.
#include <doctest/doctest.h>

#include <algorithm>

#include "core/base/random.h"
#include "core/schedule/random_config.h"
#include "core/target/cost_model.h"
#include "kernels/megakernel/family.h"
#include "kernels/megakernel/workload.h"
#include "tests/unit/family/opened.h"

using namespace amk;
using namespace amk::test;

namespace {

const MegakernelWorkload& whole(const std::shared_ptr<const Workload>& workload) { return dynamic_cast<const MegakernelWorkload&>(*workload); }

}  // namespace

TEST_CASE("a batch is judged like one sequence, in a regime of its own") {
  for (const char* name : {"toy@b3", "toy@b8"}) {
    CAPTURE(name);
    const auto workload = opened(name, "h200");
    CHECK(workload->id() == name);
    const Verdict v = judged(*workload, Json::object());
    const std::string text = to_json(v).dump();
    CAPTURE(text);
    CHECK(v.status == VerdictStatus::Ok);
    CHECK(v.correct);
    CHECK(v.regime == "bf16-b" + std::to_string(whole(workload).batch()));
    REQUIRE(v.correctness);
    CHECK(v.correctness->positions_checked >= 6 * whole(workload).batch());
    CHECK(v.correctness->bitwise_repeatable);
    REQUIRE(v.latency_us);
    CHECK(*v.latency_us >= *v.bound_us);
  }
}

TEST_CASE("random configs of a batch run, on every architecture") {
  Rng rng(8);
  for (const char* name : {"llama-gqa", "mistral-window8", "qwen3-qknorm", "llama-fp32-hd128"}) {
    CAPTURE(name);
    const auto workload = opened(fixture(name) + "@b4", "h100");
    for (int i = 0; i < 2; ++i) {
      const Json config = i == 0 ? Json::object() : runnable(*workload, [&] { return to_json(random_config(workload->space(), rng)); });
      const Verdict v = judged(*workload, config);
      const std::string text = to_json(v).dump();
      CAPTURE(text);
      CHECK(v.status == VerdictStatus::Ok);
    }
  }
}

TEST_CASE("weights are read once for all sequences: predicted dearer than one, far cheaper than eight") {
  const auto one = opened("llama-3.2-1b", "h200"), eight = opened("llama-3.2-1b@b8", "h200");
  const double us = one->predict_us(one->default_config()).value(), of_eight = eight->predict_us(eight->default_config()).value();
  CHECK(of_eight > us);
  CHECK(of_eight < 2 * us);
  const Roofline floor = decode_roofline(whole(one).model().spec, one->target(), 256),
                 all = decode_roofline(whole(one).model().spec, one->target(), 256, 2, 8);
  // Seven more caches of 256 rows: 16 layers, K and V, 8 heads of 64, two bytes each.
  CHECK(all.hbm_bytes - floor.hbm_bytes == std::int64_t{7} * 256 * 16 * 2 * 8 * 64 * 2);
  CHECK(all.flops == doctest::Approx(8 * floor.flops));
}

TEST_CASE("what a batch's kernel cannot do is refused here as it is on the device, and is no point of the space") {
  const auto workload = opened("small@b8", "h200");
  const auto rule = [&](const char* config) {
    const Verdict v = judged(*workload, Json::parse(config));
    return v.rejected ? v.rejected->rule : std::string("none");
  };
  CHECK(rule(R"({"kernel_knobs":{"gemv_path":"fma"}})") == "batch-needs-mma");
  CHECK(rule(R"({"threads_per_block":256})") == "batch-needs-warps");
  CHECK(rule(R"({"threads_per_block":288})") == "none");
  CHECK(rule(R"({"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})") == "none");
  for (const char* name : {"batch-needs-mma", "batch-needs-warps"}) {
    const auto& rules = workload->space().constraints;
    CHECK(std::any_of(rules.begin(), rules.end(), [&](const Constraint& c) { return c.name == name; }));
    const auto alone = opened("small", "h200");
    CHECK(std::none_of(alone->space().constraints.begin(), alone->space().constraints.end(), [&](const Constraint& c) { return c.name == name; }));
  }
  // A vector eight times too long for the card: named as what it is.
  const auto family = make_megakernel_family();
  const auto big = family->open("llama-3.1-8b@b8", opened("toy", "h200")->target());
  REQUIRE(!big);
  CHECK(big.error().message.find("shared memory") != std::string::npos);
  const auto alone = family->open("toy@b2#qkv", opened("toy", "h200")->target());
  REQUIRE(!alone);
  CHECK(alone.error().data["field"] == "model");
}
