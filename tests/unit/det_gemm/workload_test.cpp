#include "kernels/det_gemm/workload.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "core/base/random.h"
#include "core/base/stats.h"
#include "kernels/det_gemm/cost_model.h"
#include "kernels/det_gemm/defaults.h"
#include "kernels/det_gemm/family.h"
#include "kernels/det_gemm/simulate.h"
#include "kernels/det_gemm/workload_id.h"
#include "tests/unit/det_gemm/targets.h"

using namespace amk;
using namespace amk::det_gemm;

namespace {

std::shared_ptr<const Workload> opened(const std::string& name, const char* target = "h200") {
  static const auto family = make_det_gemm_family();
  REQUIRE(family->accepts(name));
  auto workload = family->open(name, gpu(target));
  REQUIRE_MESSAGE(workload, (workload ? "" : workload.error().message));
  return *workload;
}

}  // namespace

TEST_CASE("every target opens, its default runs, is correct and is not faster than the floor") {
  for (const std::string& target : gpu_target_names(std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus")) {
    for (const char* id : {"det_gemm:fwd:512x4096x4096", "det_gemm:db:1000x264x136:chunk512", "det_gemm:da:3x45x51:fp32", "det_gemm:fwd:1x8x0",
                           "det_gemm:fwd:0x8x8"}) {
      CAPTURE(target);
      CAPTURE(id);
      const auto workload = opened(id, target.c_str());
      const auto verdict = workload->judge_on_cpu(workload->default_config(), {});
      REQUIRE(verdict);
      CHECK(verdict->status == VerdictStatus::Ok);
      CHECK(verdict->correct);
      CHECK(verdict->latency_kind == LatencyKind::Predicted);
      CHECK(*verdict->latency_us >= *verdict->bound_us);
      double sum = 0;
      for (const auto& [region, us] : verdict->regions.items()) sum += us.get<double>();
      CHECK(verdict->regions.size() == 2);  // what binds, and the launch
      CHECK(sum == doctest::Approx(*verdict->latency_us));
      CHECK(workload->point_of(workload->default_config()));
      CHECK(workload->space().violated(*workload->point_of(workload->default_config())) == nullptr);
    }
  }
}

TEST_CASE("named shapes are the issue's; ids are canonical") {
  CHECK(opened("det_gemm:mlp_up")->id() == "det_gemm:fwd:4096x14336x4096");
  CHECK(opened("det_gemm:lm_head")->id() == "det_gemm:fwd:4096x32000x4096");
  CHECK(opened("det_gemm:db:64x64x64:chunk512")->regime() == "det-bf16-chunk512");
  const auto family = make_det_gemm_family();
  CHECK(family->known_workloads().size() == 5);
  CHECK_FALSE(family->accepts("llama-3.2-1b"));
  CHECK_FALSE(family->open("det_gemm:nothing", gpu("h200")));
}

TEST_CASE("rejections carry rule and numbers; unknown knobs are errors") {
  const auto workload = opened("det_gemm:fwd:4096x4096x4096");
  const auto config = workload->canonical({{"stages", 16}});
  REQUIRE(config);
  const auto verdict = workload->judge_on_cpu(*config, {});
  REQUIRE(verdict);
  CHECK(verdict->status == VerdictStatus::Rejected);
  CHECK(verdict->rejected->rule == "shared_memory");
  CHECK(verdict->rejected->witness["shared_bytes_limit"] == 232448);
  CHECK_FALSE(verdict->latency_us);
  CHECK(workload->predict_us(*config).error().kind == ErrorKind::Rejected);
  CHECK(workload->canonical({{"stage", 4}}).error().kind == ErrorKind::InvalidArgument);
  const auto huge = opened("det_gemm:fwd:2000000x2000000x64");
  CHECK(huge->judge_on_cpu(huge->default_config(), {})->rejected->rule == "memory");
}

TEST_CASE("equal configs have equal ids, different ones different ids") {
  const auto workload = opened("det_gemm:qkv");
  const auto a = workload->canonical({{"stages", 3}}), b = workload->canonical({{"stages", 3}, {"swap", false}}),
             c = workload->canonical({{"stages", 4}});
  CHECK(workload->schedule_id(*a) == workload->schedule_id(*b));
  CHECK(workload->schedule_id(*a) != workload->schedule_id(*c));
}

TEST_CASE("every config that the space admits is correct on the CPU") {
  Rng rng(19);
  for (const char* id :
       {"det_gemm:fwd:300x264x328", "det_gemm:db:520x136x264:chunk128", "det_gemm:fwd:17x1000x4096:nk:fp32", "det_gemm:da:33x77x51"}) {
    const auto workload = opened(id);
    int judged = 0;
    for (int i = 0; i < 20000 && judged < 12; ++i) {
      Point point;
      for (const Knob& knob : workload->space().knobs) point.push_back(static_cast<std::uint16_t>(rng.below(knob.choices.size())));
      if (workload->space().violated(point) != nullptr) continue;
      ++judged;
      const auto verdict = workload->judge_on_cpu(workload->config_at(point), {});
      REQUIRE(verdict);
      CAPTURE(verdict->notes);
      CHECK(verdict->correct);
    }
    CHECK(judged == 12);
  }
}

TEST_CASE("the simulation catches a plan that is wrong") {
  const Canonical shape{.m = 300, .n = 264, .k = 328};
  const auto right = make_plan(shape, dense_storage(shape), default_config(shape, dense_storage(shape), gpu("h200")), gpu("h200"));
  REQUIRE(right);
  CHECK(simulate(*right, 1, {})->failure == "");
  Plan short_walk = *right;
  short_walk.tiles_m -= 1;
  CHECK(simulate(short_walk, 1, {})->failure.find("is computed by no block") != std::string::npos);
  Plan long_walk = *right;
  long_walk.roles.m = 200;
  CHECK_FALSE(simulate(long_walk, 1, {})->failure.empty());
  Plan other_class = *right;
  other_class.shape.out = OutType::Fp32;  // bf16 would hide most differences
  other_class.numeric.chunk = 64;         // the executor cuts where the class says; a tile_k that does not divide it would cut elsewhere
  other_class.config.tile_k = 128;
  CHECK(simulate(other_class, 1, {})->different > 0);
  std::stop_source stop;
  stop.request_stop();
  CHECK(simulate(*right, 1, stop.get_token()).error().kind == ErrorKind::Cancelled);
}

TEST_CASE("long contractions are checked on fewer outputs; what no CPU could check is said") {
  const auto plan_of = [](std::int64_t k) {
    const Canonical shape{.m = 8, .n = 8, .k = k};
    return make_plan(shape, dense_storage(shape), default_config(shape, dense_storage(shape), gpu()), gpu());
  };
  const auto usual = plan_of(4096), long_one = plan_of(1 << 20), endless = plan_of(0x7FFFFFFF);
  REQUIRE(usual);
  REQUIRE(long_one);
  REQUIRE(endless);
  CHECK(simulate(*usual, 1, {})->checked >= 4 * 64);
  const auto checked = simulate(*long_one, 1, {});
  REQUIRE(checked);
  CHECK(checked->failure == "");
  CHECK(checked->checked >= 4);
  CHECK(checked->checked * (1 << 16) <= 2'000'000);  // k16 steps
  const auto refused = simulate(*endless, 1, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::Unsupported);
  CHECK(refused.error().data.at("value") == 0x7FFFFFFF);
}

TEST_CASE("the cost model: floor, direction of knobs, and order of magnitude on measured points") {
  // Floor by hand: 2·4096³ / 989.4e12 s; 1×4096×14336 reads 117.4 MB of weights, 62.9 MB of which L2 may hold.
  CHECK(floor_of({.m = 4096, .n = 4096, .k = 4096}, gpu("h200")).bound_us == doctest::Approx(2 * std::pow(4096.0, 3) / 989.4e12 * 1e6));
  const Canonical row{.m = 1, .n = 14336, .k = 4096};
  CHECK(floor_of(row, gpu("h200")).bound_us == doctest::Approx((2.0 * (4096 + 14336.0 * 4096 + 14336) - 62914560) / 4800e9 * 1e6));
  // Measured on H200 (docs/lab/gemm.md, run 1), µs.
  struct Point {
    const char* id;
    const char* config;
    double us;
  };
  const Point points[] = {
      {"det_gemm:fwd:4096x4096x4096", R"({"tile":{"m":128,"n":256},"consumers":2,"epilogue":"tma"})", 182.5},
      {"det_gemm:fwd:8192x8192x8192", R"({"tile":{"m":128,"n":256},"consumers":2,"epilogue":"tma"})", 1462},
      {"det_gemm:fwd:2048x4096x14336", R"({"tile":{"m":128,"n":256},"consumers":2,"epilogue":"tma"})", 306},
      {"det_gemm:fwd:4096x4096x4096", R"({"path":"mma","tile":{"m":128,"n":128,"k":32},"stages":4,"consumers":1,"epilogue":"direct"})", 570},
      {"det_gemm:fwd:512x4096x4096", R"({"tile":{"m":128,"n":128},"stages":6,"consumers":2,"epilogue":"tma"})", 24.9},
      {"det_gemm:fwd:128x14336x4096:nk", R"({"tile":{"m":128,"n":112},"stages":6,"consumers":2,"epilogue":"direct"})", 34.6},
      {"det_gemm:fwd:64x4096x4096:nk", R"({"tile":{"m":64,"n":32},"stages":12,"consumers":1,"epilogue":"direct"})", 15.0},
      {"det_gemm:fwd:16x14336x4096:nk", R"({"tile":{"m":64,"n":112},"stages":8,"consumers":1,"epilogue":"direct"})", 33.8},
      {"det_gemm:fwd:16x14336x4096:nk", R"({"tile":{"m":128,"n":16},"stages":10,"consumers":2,"swap":true,"epilogue":"direct"})", 31.6},
  };
  for (const Point& p : points) {
    const auto workload = opened(p.id);
    const auto config = workload->canonical(Json::parse(p.config));
    REQUIRE_MESSAGE(config, (config ? "" : config.error().message));
    const auto us = workload->predict_us(*config);
    REQUIRE_MESSAGE(us, (us ? "" : us.error().message));
    CAPTURE(p.id);
    CAPTURE(p.config);
    CAPTURE(*us);
    CHECK(*us > 0.75 * p.us);
    CHECK(*us < 1.35 * p.us);
  }
}

TEST_CASE("the cost model puts few tokens' schedules in the order that was measured") {
  // Measured on one H200 in one race each (docs/lab/gemm.md, runs 13 and 14), µs, fastest first.
  struct Race {
    const char* id;
    const char* common;
    std::vector<std::pair<const char*, double>> configs;
  };
  const Race races[] = {
      {"det_gemm:fwd:64x4096x4096",
       R"({"consumers":1,"epilogue":"staged","producer":"warp","overlap":true,"l2":{"x":"evict_last","y":"evict_first","fetch":0}})",
       {{R"({"tile":{"m":64,"n":64,"k":128},"stages":6})", 10.20},  // half of the SMs, fewer bytes of tokens
        {R"({"tile":{"m":64,"n":32,"k":128},"stages":8})", 11.18},
        {R"({"tile":{"m":64,"n":32,"k":64},"stages":16})", 12.42},
        {R"({"tile":{"m":64,"n":64,"k":128},"stages":4})", 13.47},
        {R"({"tile":{"m":64,"n":128,"k":128},"stages":4})", 14.88},
        {R"({"tile":{"m":64,"n":64,"k":128},"stages":3})", 18.02}}},
      {"det_gemm:fwd:64x4096x4096:nk",
       R"({"consumers":1,"epilogue":"staged","producer":"warp","l2":{"x":"evict_last","y":"evict_first","fetch":128}})",
       {{R"({"tile":{"m":64,"n":32,"k":128},"stages":8,"overlap":true})", 10.63},
        {R"({"tile":{"m":64,"n":32,"k":64},"stages":16,"overlap":true})", 11.63},
        {R"({"tile":{"m":64,"n":32,"k":128},"stages":8,"overlap":true,"cluster":{"n":2}})", 12.31},
        {R"({"tile":{"m":64,"n":32,"k":128},"stages":8,"cluster":{"n":2}})", 13.18}}},
      {"det_gemm:fwd:128x14336x4096:nk",
       R"({"consumers":2,"stages":6,"epilogue":"staged","producer":"warp","l2":{"x":"evict_last","y":"evict_first","fetch":256}})",
       {{R"({"tile":{"m":128,"n":112},"overlap":true})", 33.20},
        {R"({"tile":{"m":128,"n":112}})", 34.35},
        {R"({"tile":{"m":128,"n":128}})", 35.63},
        {R"({"tile":{"m":128,"n":128},"overlap":true})", 36.85}}},  // 112 of 132 SMs: the next launch finds no order
  };
  for (const Race& race : races) {
    const auto workload = opened(race.id);
    double last = 0;
    for (const auto& [knobs, us] : race.configs) {
      Json config = Json::parse(race.common);
      config.merge_patch(Json::parse(knobs));
      const auto canonical = workload->canonical(config);
      REQUIRE_MESSAGE(canonical, (canonical ? "" : canonical.error().message));
      const auto predicted = workload->predict_us(*canonical);
      REQUIRE_MESSAGE(predicted, (predicted ? "" : predicted.error().message));
      CAPTURE(race.id);
      CAPTURE(knobs);
      CHECK(*predicted > last);
      CHECK(*predicted > 0.85 * us);
      CHECK(*predicted < 1.15 * us);
      last = *predicted;
    }
  }
}

TEST_CASE("tuning 64 tokens on a miss is offered 64 columns on half of the SMs") {
  const Canonical shape{.m = 64, .n = 4096, .k = 4096, .y_k_contiguous = false};
  const auto list = candidate_configs(shape, dense_storage(shape), gpu("h200"), 8);
  CHECK(std::any_of(list.begin(), list.end(), [](const Config& c) {
    return c.tile_m == 64 && c.tile_n == 64 && c.tile_k == 128 && c.stages == 6 && c.producer == Producer::Warp && c.overlap && c.l2_fetch == 0;
  }));
}

TEST_CASE("tuning on a miss is offered deferred stores where SMs have several tiles, and not before others where they have one") {
  for (const std::int64_t m : {4096, 512}) {
    const Canonical shape{.m = m, .n = 4096, .k = 4096, .y_k_contiguous = false};
    const auto list = candidate_configs(shape, dense_storage(shape), gpu("h200"), 8);
    REQUIRE_FALSE(list.empty());
    CHECK(list.front().defer == (m == 4096));
  }
}

TEST_CASE("candidates run, come best estimate first, and are bounded") {
  const Canonical shape{.m = 512, .n = 4096, .k = 4096};
  const auto list = candidate_configs(shape, dense_storage(shape), gpu("h200"), 12);
  CHECK(list.size() == 12);
  double last = 0;
  for (const Config& c : list) {
    const auto plan = make_plan(shape, dense_storage(shape), c, gpu("h200"));
    REQUIRE(plan);
    CHECK(estimate(*plan, gpu("h200")).latency_us >= last);
    last = estimate(*plan, gpu("h200")).latency_us;
  }
}
