// The cost model against single configs and traced steps that were measured on an H200 (bench/cost_model has all of them).
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/target/cost_model.h"
#include "core/target/machine_rates.h"
#include "core/target/timeline.h"
#include "tests/unit/target/predicted.h"

using namespace amk;
using namespace amk::test;

namespace {

// Measured on an H200 (docs/lab/megakernel.md, 24): the best config, and one knob of it moved.
ScheduleConfig measured_best() {
  ScheduleConfig config;
  config.gemv_n_tile = 8;
  config.attention_kv_block = 128;
  config.fusion.combine_o = true;
  config.kernel.publish = Publish::Confirmed;
  return config;
}

ScheduleConfig slices_config(int threads, int ring) {
  ScheduleConfig config;
  config.gemv_n_tile = 8;
  config.attention_kv_block = 128;
  config.threads_per_block = threads;
  config.smem_bytes_per_block = ring;
  config.fusion.combine_o = true;
  config.kernel.publish = Publish::Flagged;
  config.kernel.gemv_path = GemvPath::Slices;
  if (ring > 0) config.kernel.chunk_bytes = 32768;
  return config;
}

struct Measured {
  double us;
  std::function<void(ScheduleConfig&)> change;
};

// Within 10%, and what is slower by a fifth is predicted to be slower by a tenth.
void check_measured(const ModelSpec& spec, double measured_base_us, const ScheduleConfig& best, const std::vector<Measured>& points) {
  const GpuTarget target = gpu("h200");
  const auto predicted_us = [&](const std::function<void(ScheduleConfig&)>& change) {
    ScheduleConfig config = best;
    change(config);
    return predict(lowered(spec, config, target, 512), config, target, 256).latency_us;
  };
  const double base = predicted_us([](ScheduleConfig&) {});
  CHECK(base == doctest::Approx(measured_base_us).epsilon(0.06));
  for (const Measured& point : points) {
    const double us = predicted_us(point.change);
    CAPTURE(point.us);
    CAPTURE(us);
    CHECK(us == doctest::Approx(point.us).epsilon(0.10));
    if (point.us > 1.2 * measured_base_us) CHECK(us > 1.1 * base);
  }
}

}  // namespace

TEST_CASE("measured configs of llama-3.2-1b within 10%") {
  check_measured(llama_1b(), 621.0, measured_best(),
                 {
                     {650.7, [](ScheduleConfig& c) { c.kernel.publish = Publish::Release; }},
                     {642.7, [](ScheduleConfig& c) { c.kernel.publish = Publish::Flagged; }},
                     {686.6, [](ScheduleConfig& c) { c.gemv_n_tile = 32; }},
                     {665.5, [](ScheduleConfig& c) { c.kernel.chunk_bytes = 32768; }},
                     {695.9, [](ScheduleConfig& c) { c.kernel.chunk_bytes = 8192; }},
                     {644.6, [](ScheduleConfig& c) { c.kernel.inflight_chunks = 1; }},
                     {683.0, [](ScheduleConfig& c) { c.kernel.inflight_chunks = 6; }},
                     {686.2, [](ScheduleConfig& c) { c.pipelining_depth = 0; }},
                     {646.7, [](ScheduleConfig& c) { c.threads_per_block = 320; }},
                     {765.1, [](ScheduleConfig& c) { c.threads_per_block = 128; }},
                     {984.3, [](ScheduleConfig& c) { c.threads_per_block = 544; }},
                     {759.4, [](ScheduleConfig& c) { c.smem_bytes_per_block = 65536; }},
                     {762.3, [](ScheduleConfig& c) { c.smem_bytes_per_block = 0; }},
                     {669.2, [](ScheduleConfig& c) { c.kernel.cols_per_warp = 1024; }},
                     {632.3, [](ScheduleConfig& c) { c.kernel.gemv_path = GemvPath::Fma; }},
                     {647.5, [](ScheduleConfig& c) { c.fusion.combine_o = false; }},
                     {1204.2, [](ScheduleConfig& c) { c.kernel.cpasync = true; }},
                 });
}

// Chunks of 32 KB, which the model liked and the card does not, and few columns more: what a search from an older prior lost its evaluations to.
TEST_CASE("measured configs of llama-3.1-8b within 10%, and none of what is slower is liked better than the best") {
  ScheduleConfig best = measured_best();
  best.smem_bytes_per_block = 163840;
  const std::vector<Measured> points = {
      {3530.9, [](ScheduleConfig& c) { c.smem_bytes_per_block = 180224; }},
      {3635.9, [](ScheduleConfig& c) { c.kernel.chunk_bytes = 32768; }},
      {3712.2, [](ScheduleConfig& c) { c.kernel.inflight_chunks = 1; }},
      {3600.5, [](ScheduleConfig& c) { c.kernel.inflight_chunks = 3; }},
      {3666.6, [](ScheduleConfig& c) { c.kernel.cols_per_warp = 512; }},
      {3674.6, [](ScheduleConfig& c) { c.attention_kv_block = 256; }},
      {3651.4, [](ScheduleConfig& c) { c.threads_per_block = 320; }},
      {3629.1, [](ScheduleConfig& c) { c.kernel.publish = Publish::Release; }},
      {3692.1, [](ScheduleConfig& c) { c.kernel.publish = Publish::Flagged; }},
      {3734.6, [](ScheduleConfig& c) { c.smem_bytes_per_block = 81920; }},
      {3596.0, [](ScheduleConfig& c) { c.fusion.combine_o = false; }},
      {3662.1, [](ScheduleConfig& c) { c.fusion.norm_qkv = false; }},
  };
  check_measured(llama_8b(), 3560.8, best, points);
  const GpuTarget target = gpu("h200");
  const double base = predict(lowered(llama_8b(), best, target, 512), best, target, 256).latency_us;
  for (const Measured& point : points) {
    if (point.us < 3560.8) continue;
    ScheduleConfig config = best;
    point.change(config);
    CAPTURE(point.us);
    CHECK(predict(lowered(llama_8b(), config, target, 512), config, target, 256).latency_us > base);
  }
}

// docs/lab/megakernel.md, 33.
TEST_CASE("attention_o: measured configs within 10%; against slices faster in a short context, slower in a long one") {
  const ModelSpec smollm2 = smollm2_135m();
  const GpuTarget target = gpu("h200");
  const auto predicted_us = [&](int threads, int ring, bool attention_o, int position) {
    ScheduleConfig config = slices_config(threads, ring);
    config.fusion.attention_combine = attention_o;
    return predict(lowered(smollm2, config, target, 2048), config, target, position).latency_us;
  };
  const struct {
    double measured_us;
    int threads, ring, position;
  } points[] = {{267.0, 352, 65536, 256}, {264.8, 416, 65536, 256},  {259.3, 352, 98304, 256}, {294.0, 352, 0, 256},
                {284.2, 512, 65536, 256}, {389.5, 352, 65536, 1032}, {539.7, 352, 65536, 1952}};
  for (const auto& point : points) {
    CAPTURE(point.measured_us);
    CHECK(predicted_us(point.threads, point.ring, true, point.position) == doctest::Approx(point.measured_us).epsilon(0.10));
  }
  CHECK(predicted_us(352, 65536, true, 256) < predicted_us(352, 163840, false, 256));
  CHECK(predicted_us(352, 65536, true, 1952) > predicted_us(352, 163840, false, 1952));
}

// docs/lab/megakernel.md, 33.
TEST_CASE("slices: measured configs of a small model within 10%, with and without a ring") {
  const ModelSpec smollm2 = smollm2_135m();
  const GpuTarget target = gpu("h200");
  const struct {
    double measured_us;
    int threads, kv_block, ring, n_tile;
  } points[] = {{332.2, 320, 128, 0, 8},     {328.4, 352, 128, 0, 8},      {330.4, 384, 128, 0, 8},     {350.0, 416, 128, 0, 8},
                {336.0, 352, 64, 0, 8},      {364.8, 352, 256, 0, 8},      {347.3, 352, 128, 0, 16},    {428.7, 352, 128, 0, 32},
                {305.4, 352, 128, 98304, 8}, {318.1, 384, 128, 163840, 8}, {314.7, 352, 64, 163840, 8}, {334.6, 352, 256, 163840, 8},
                {308.5, 352, 128, 65536, 8}, {370.6, 352, 128, 163840, 16}};
  double no_ring = 0;
  for (const auto& point : points) {
    ScheduleConfig config = slices_config(point.threads, point.ring);
    config.gemv_n_tile = point.n_tile;
    config.attention_kv_block = point.kv_block;
    const double us = predict(lowered(smollm2, config, target, 512), config, target, 256).latency_us;
    CAPTURE(point.measured_us);
    CAPTURE(us);
    CHECK(us == doctest::Approx(point.measured_us).epsilon(0.10));
    if (point.measured_us == 328.4) no_ring = us;
    if (point.measured_us == 305.4) CHECK(us < no_ring);
    if (point.n_tile > 8) continue;
    config.kernel.gemv_path = GemvPath::Fma;
    CHECK(us < 0.95 * predict(lowered(smollm2, config, target, 512), config, target, 256).latency_us);
  }
}

// Searches were lured to 544 threads, which the model took for the fastest (268 µs predicted where 356 to 378 were measured).
TEST_CASE("attention_o beyond 512 threads spills: slower than with 416, with a ring and without") {
  const ModelSpec smollm2 = smollm2_135m();
  const GpuTarget target = gpu("h200");
  const auto predicted_us = [&](int threads, int ring, int columns = 512) {
    ScheduleConfig config = slices_config(threads, ring);
    config.fusion.attention_combine = true;
    config.kernel.cols_per_warp = columns;
    return predict(lowered(smollm2, config, target, 512), config, target, 256).latency_us;
  };
  const struct {
    double measured_us;
    int threads, ring;
  } points[] = {{256.7, 416, 98304}, {276.9, 448, 98304}, {276.6, 512, 98304}, {318.8, 544, 98304}, {289.1, 416, 0}};
  for (const auto& point : points) {
    CAPTURE(point.threads);
    CHECK(predicted_us(point.threads, point.ring) == doctest::Approx(point.measured_us).epsilon(0.10));
  }
  for (const int ring : {0, 98304}) {
    CHECK(predicted_us(448, ring) > 1.03 * predicted_us(416, ring));
    CHECK(predicted_us(544, ring) > 1.1 * predicted_us(416, ring));
    CHECK(predicted_us(800, ring) > 1.5 * predicted_us(416, ring));
  }
  // Beside a ring of 128 KB there is room for 272 rows of the cache with 512 columns, for 256 with fewer, whose sums take more: 272 and 278.4, of
  // steps of 224 to 288.
  CHECK(predicted_us(416, 131072) == doctest::Approx(272.0).epsilon(0.10));
  CHECK(predicted_us(416, 131072, 256) == doctest::Approx(278.4).epsilon(0.10));
  CHECK(predicted_us(416, 131072, 256) > 1.03 * predicted_us(416, 131072));
}

// Of traced steps, medians over layers, µs (docs/lab/megakernel.md, 27, 30 and 33): how far each kind of instruction moves the end of the step, less
// the 0.1 that its marks take.
TEST_CASE("stages of traced steps within 10%") {
  const GpuTarget target = gpu("h200");
  using Stages = std::vector<std::pair<std::string, double>>;
  const auto check = [&](const ModelSpec& spec, const ScheduleConfig& config, int position, const Stages& traced) {
    const Program program = lowered(spec, config, target, position < 512 ? 512 : 8448);
    const double kv = kv_from_hbm(program, target, position, 0.0);
    const Timeline timeline = simulate(program, machine_rates(config, target, 0.0), position - 1, kv, true);
    for (const auto& [kind, us] : traced) {
      std::vector<double> moved;
      double reached = 0;
      for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const double end = std::max(reached, timeline.instruction_end_us[i]);
        if (program.instructions[i].name.ends_with(kind)) moved.push_back(end - reached);
        reached = end;
      }
      REQUIRE(!moved.empty());
      std::nth_element(moved.begin(), moved.begin() + static_cast<std::ptrdiff_t>(moved.size() / 2), moved.end());
      CAPTURE(spec.name);
      CAPTURE(kind);
      CHECK(moved[moved.size() / 2] == doctest::Approx(us - 0.1).epsilon(0.10));
    }
  };
  ScheduleConfig small = measured_best(), large = measured_best(), longer = measured_best();
  check(llama_1b(), small, 256, {{"qkv", 4.72}, {"attention", 2.67}, {"o_proj", 3.90}, {"gate_up", 13.2}, {"down", 7.70}, {"lm_head", 114.3}});
  large.smem_bytes_per_block = 163840;
  check(llama_8b(), large, 256, {{"qkv", 12.21}, {"attention", 4.45}, {"o_proj", 7.78}, {"gate_up", 55.07}, {"down", 27.14}, {"lm_head", 233.7}});
  longer.kernel.kv_path = KvPath::Ring;
  check(llama_1b(), longer, 8128, {{"qkv", 4.96}, {"attention", 4.75}, {"o_proj", 5.23}, {"gate_up", 13.39}, {"down", 7.98}, {"lm_head", 113.6}});
  longer.kernel.kv_path = KvPath::Direct;
  check(llama_1b(), longer, 8128, {{"qkv", 4.77}, {"attention", 8.13}, {"o_proj", 5.04}, {"gate_up", 13.55}, {"down", 7.66}, {"lm_head", 115.39}});
  ScheduleConfig small_o = slices_config(416, 98304), small_apart = slices_config(352, 98304);
  small_o.fusion.attention_combine = true;
  check(smollm2_135m(), small_o, 193, {{"qkv", 1.74}, {"attention_o", 2.74}, {"gate_up", 2.15}, {"down", 1.80}, {"lm_head", 13.60}});
  check(smollm2_135m(), small_apart, 193,
        {{"qkv", 1.73}, {"attention", 2.53}, {"o_proj", 1.95}, {"gate_up", 1.83}, {"down", 1.86}, {"lm_head", 13.26}});
}
