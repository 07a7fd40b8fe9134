#include "core/target/cost_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/program/lower.h"
#include "core/schedule/random_config.h"
#include "core/target/machine_rates.h"
#include "tests/unit/target/predicted.h"

using namespace amk;
using namespace amk::test;

namespace {

Prediction predicted(const ScheduleConfig& config, const GpuTarget& target = gpu("h200"), int position = 256, const ModelSpec& spec = llama_1b()) {
  return predict(lowered(spec, config, target), config, target, position);
}

double latency(const std::function<void(ScheduleConfig&)>& change) {
  ScheduleConfig config;
  change(config);
  return predicted(config).latency_us;
}

double sum(const Breakdown& b) { return b.attention + b.mlp + b.lm_head + b.sync + b.other; }

}  // namespace

TEST_CASE("roofline: bytes beyond L2 over the vendor's peak, worked by hand") {
  const ModelSpec spec = llama_1b();
  const GpuTarget target = gpu("h200");
  // 16 layers of (q 2048·2048, k and v 512·2048 each, o 2048·2048, gate, up, down 8192·2048 each, two norms of 2048), the tied head
  // 128256·2048, a norm and one embedding row; bf16. KV: 16 layers · K and V · 8 heads · 64 · 256 positions, bf16.
  const std::int64_t layer = 2048 * 2048 + 2 * 512 * 2048 + 2048 * 2048 + 3 * 8192 * 2048 + 2 * 2048;
  const std::int64_t weights = 2 * (16 * layer + std::int64_t{128256} * 2048 + 2048 + 2048);
  const std::int64_t kv = 16 * 2 * 8 * 64 * 256 * 2;
  const Roofline roofline = decode_roofline(spec, target, 256);
  CHECK(roofline.hbm_bytes == weights + kv - 60 * 1024 * 1024);
  CHECK(roofline.bound_us == doctest::Approx(static_cast<double>(roofline.hbm_bytes) / 4.8e6));
  const double matrices = 16.0 * (layer - 2 * 2048) + 128256.0 * 2048;
  CHECK(roofline.flops == doctest::Approx(2 * matrices + 16.0 * 4 * 2048 * 256));
  // int8 KV halves the KV bytes.
  CHECK(decode_roofline(spec, target, 256, 1).hbm_bytes == roofline.hbm_bytes - kv / 2);
}

TEST_CASE("roofline: the window hides old keys, small models live in L2, arithmetic can be the limit") {
  ModelSpec spec = llama_1b();
  GpuTarget target = gpu("h200");
  spec.sliding_window = 100;
  CHECK(decode_roofline(spec, target, 4000).hbm_bytes == decode_roofline(spec, target, 100).hbm_bytes);
  CHECK(decode_roofline(spec, target, 99).hbm_bytes < decode_roofline(spec, target, 100).hbm_bytes);
  target.l2_bytes = std::int64_t{4} << 30;
  CHECK(decode_roofline(spec, target, 256).hbm_bytes == 0);
  CHECK(decode_roofline(spec, target, 256).bound_us > 0);
  CHECK(decode_roofline(spec, target, 256).bound_us == doctest::Approx(decode_roofline(spec, target, 256).flops / 989.4e6));
}

TEST_CASE("the default schedule of llama-3.2-1b on h200 is what a careful implementation is expected to reach") {
  const double us = predicted({}).latency_us;
  CHECK(us > 650.0 / 1.5);
  CHECK(us < 700.0 * 1.5);
}

TEST_CASE("a prediction is never below the bound, and its regions add up") {
  Rng rng(11);
  ModelSpec small = llama_1b();
  small.layers = 3;
  small.vocab = 2000;
  ModelSpec windowed = small;
  windowed.sliding_window = 64;
  for (const char* name : {"h200", "h100", "l4", "rtx5090", "b200", "a100"}) {
    const GpuTarget target = gpu(name);
    for (int i = 0; i < 12; ++i) {
      const ModelSpec& spec = i % 3 == 0 ? windowed : small;
      const ScheduleConfig config = random_accepted_config(target.smem_optin_bytes, rng);
      const Program program = lowered(spec, config, target, 2048);
      for (int position : {0, 1, 255, 2048, 100000}) {
        const Prediction p = predict(program, config, target, position);
        const std::string text = to_json(config).dump();
        CAPTURE(text);
        CHECK(std::isfinite(p.latency_us));
        CHECK(p.latency_us >= p.bound_us);
        CHECK(p.bound_us == decode_roofline(spec, target, std::clamp(position, 1, 2048)).bound_us);
        CHECK(sum(p.regions) == doctest::Approx(p.latency_us));
        for (double part : {p.regions.attention, p.regions.mlp, p.regions.lm_head, p.regions.sync, p.regions.other}) CHECK(part >= 0);
      }
    }
  }
}

TEST_CASE("bulk-copy sizes: the measured efficiencies, and no dip between them") {
  CHECK(chunk_efficiency(4096) == doctest::Approx(2.4 / 4.58));
  CHECK(chunk_efficiency(8192) == doctest::Approx(4.3 / 4.58));
  CHECK(chunk_efficiency(16384) == doctest::Approx(4.55 / 4.58));
  CHECK(chunk_efficiency(32768) == 1.0);
  double last = 0;
  for (int bytes = 256; bytes <= 131072; bytes += 256) {
    CHECK(chunk_efficiency(bytes) >= last);
    last = chunk_efficiency(bytes);
  }
}

TEST_CASE("a cache that is a fifth of L2 does not come from HBM; a long one does") {
  const GpuTarget target = gpu("h200");  // 60 MB of L2
  ScheduleConfig config;
  const Program program = lowered(llama_1b(), config, target, 16384);
  // 16 layers, K and V, 512 elements, 2 bytes: 32 KB a position. Eight MB at 256; 268 at 8,192; 34 at 1,024, which llama-3.1-8b has at 256 and whose
  // attention takes what memory takes (docs/lab/megakernel.md, 30).
  CHECK(kv_from_hbm(program, target, 256, 0.0) == 0.0);
  CHECK(kv_from_hbm(program, target, 8192, 0.0) == 1.0);
  CHECK(kv_from_hbm(program, target, 1024, 0.0) == doctest::Approx((1024 * 32768.0 / (60 * 1048576.0) - 0.2) / 0.4));
  CHECK(kv_from_hbm(program, target, 8192, 0.25) == 0.75);
}

// The assembler's own numbers at these threads, NVRTC 13.0, sm_90a (docs/lab/megakernel.md, 30): a quarter of the file a scheduler.
TEST_CASE("registers of a thread go down where a scheduler gets one warp more, and not in between") {
  const GpuTarget target = gpu("h200");
  const struct {
    int threads, registers;
  } most[] = {{128, 255}, {256, 255}, {288, 168}, {384, 168}, {416, 128}, {448, 128},
              {512, 128}, {544, 96},  {576, 96},  {640, 96},  {800, 72},  {1024, 64}};
  for (const auto& [threads, registers] : most) {
    CAPTURE(threads);
    CHECK(registers_of(threads, target) == registers);
  }
}

TEST_CASE("every knob moves the prediction the way the measurements say") {
  const double base = latency([](ScheduleConfig&) {});
  SUBCASE("the window: too narrow starves the memory, too wide delays every hop") {
    CHECK(latency([](ScheduleConfig& c) { c.kernel.chunk_bytes = 8192; }) > base);
    CHECK(latency([](ScheduleConfig& c) { c.kernel.inflight_chunks = 3; }) > base);
    CHECK(latency([](ScheduleConfig& c) { c.kernel.inflight_chunks = 8; }) > latency([](ScheduleConfig& c) { c.kernel.inflight_chunks = 3; }));
  }
  SUBCASE("chunks: small copies do not fill the memory") {
    CHECK(latency([](ScheduleConfig& c) { c.kernel.chunk_bytes = 4096; }) > 1.7 * base);
  }
  SUBCASE("publish: confirmed beats release; flagged lies between") {
    const double confirmed = latency([](ScheduleConfig& c) { c.kernel.publish = Publish::Confirmed; });
    const double flagged = latency([](ScheduleConfig& c) { c.kernel.publish = Publish::Flagged; });
    CHECK(confirmed < base);
    CHECK(confirmed < flagged);
  }
  SUBCASE("a larger ring hides more of a hop; none hides nothing") {
    double last = latency([](ScheduleConfig& c) { c.smem_bytes_per_block = 0; });
    CHECK(last > 1.1 * base);
    for (int bytes : {81920, 131072, 196608, 229376}) {  // four slots of 16 KB are no better than none (lab/megakernel.md, 24)
      const double us = latency([&](ScheduleConfig& c) { c.smem_bytes_per_block = bytes; });
      CHECK(us < last);
      last = us;
    }
  }
  SUBCASE("running ahead across no boundary costs") {
    CHECK(latency([](ScheduleConfig& c) { c.pipelining_depth = 0; }) > base);
  }
  SUBCASE("tiles: 64 rows leave SMs idle") {
    CHECK(latency([](ScheduleConfig& c) { c.gemv_n_tile = 8; }) < 1.05 * base);
    CHECK(latency([](ScheduleConfig& c) { c.gemv_n_tile = 64; }) > 1.2 * base);
    CHECK(latency([](ScheduleConfig& c) { c.gemv_n_tile = 512; }) > latency([](ScheduleConfig& c) { c.gemv_n_tile = 64; }));
  }
  SUBCASE("attention: one SM a head is worse than a split context, and more so the longer it is") {
    ScheduleConfig split, whole;
    whole.attention_kv_block = 512;
    const double at_256 = predicted(whole).latency_us - predicted(split).latency_us;
    const double at_2048 = predicted(whole, gpu("h200"), 2048).latency_us - predicted(split, gpu("h200"), 2048).latency_us;
    CHECK(at_256 > 0);
    CHECK(at_2048 > at_256);
  }
  SUBCASE("fusion: every unfused operator is an instruction more") {
    ScheduleConfig none;
    for (auto atom : {&Fusion::norm_qkv, &Fusion::qkv_rope_append, &Fusion::o_add, &Fusion::norm_gate_up, &Fusion::gate_up_silu, &Fusion::down_add,
                      &Fusion::norm_lm_head, &Fusion::lm_head_argmax}) {
      none.fusion.*atom = false;
      CHECK(latency([&](ScheduleConfig& c) { c.fusion.*atom = false; }) > base);
    }
    CHECK(predicted(none).latency_us > 1.25 * base);
    CHECK(predicted(none).regions.sync > 2 * predicted({}).regions.sync);
  }
  SUBCASE("placement: round robin scatters neighbouring tiles into many tasks") {
    CHECK(latency([](ScheduleConfig& c) { c.sm_assignment = SmAssignment::RoundRobin; }) > base);
  }
  SUBCASE("consumers: few warps are slow, 1,024 threads spill") {
    const auto threads = [](int n) { return latency([n](ScheduleConfig& c) { c.threads_per_block = n; }); };
    CHECK(threads(128) > base);
    CHECK(threads(160) < threads(128));
    CHECK(threads(1024) > threads(544));
    CHECK(latency([](ScheduleConfig& c) { c.kernel.gemv_path = GemvPath::Fma; }) > base);
    const auto row = [](int columns) {
      return latency([columns](ScheduleConfig& c) {
        c.kernel.gemv_path = GemvPath::Fma;
        c.kernel.weight_layout = WeightLayout::Row;
        c.kernel.cols_per_warp = columns;
      });
    };
    CHECK(row(256) > latency([](ScheduleConfig& c) { c.kernel.gemv_path = GemvPath::Fma; }));
    CHECK(row(64) > row(256));
  }
  SUBCASE("cp.async: a little behind bulk copies; small groups and few stages cost") {
    const auto cpasync = [](int stages, int columns) {
      return latency([=](ScheduleConfig& c) {
        c.kernel.cpasync = true;
        c.kernel.cpa_stages = stages;
        c.kernel.cpa_cols = columns;
      });
    };
    CHECK(cpasync(3, 512) > base);
    CHECK(cpasync(3, 128) > cpasync(3, 512));
  }
  SUBCASE("page allocation hardly matters") {
    const double none = latency([](ScheduleConfig& c) { c.page_allocation = PageAllocation::None; });
    CHECK(none > base);
    CHECK(none < 1.01 * base);
  }
  SUBCASE("counters per head can only start attention earlier") {
    CHECK(latency([](ScheduleConfig& c) { c.kernel.counters = CounterGranularity::KvHead; }) < 1.01 * base);
  }
}

TEST_CASE("kv_path ring: nothing at 256 positions, and most of what the cache costs at 8,192") {
  const GpuTarget target = gpu("h200");
  const ModelSpec spec = llama_1b();
  const auto at = [&](bool apart, KvPath path, int position) {
    ScheduleConfig config;
    if (apart) {
      config.gemv_n_tile = 8;
      config.attention_kv_block = 128;
      config.kernel.publish = Publish::Confirmed;
    }
    config.kernel.kv_path = path;
    return predict(lowered(spec, config, target, 8448), config, target, position).latency_us;
  };
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    const double direct = at(apart, KvPath::Direct, 256), ring = at(apart, KvPath::Ring, 256);
    CHECK(ring == doctest::Approx(direct).epsilon(0.005));
    const double direct_long = at(apart, KvPath::Direct, 8192) - direct, ring_long = at(apart, KvPath::Ring, 8192) - ring;
    MESSAGE("direct +" << direct_long << ", ring +" << ring_long);
    CHECK(ring_long < 0.75 * direct_long);
  }
}

TEST_CASE("longer contexts take longer, and equal inputs give equal predictions") {
  const GpuTarget target = gpu("h200");
  const Program program = lowered(llama_1b(), {}, target);
  double last = 0;
  for (int position : {1, 64, 256, 1024, 4096}) {
    const Prediction p = predict(program, {}, target, position);
    CHECK(p.latency_us >= last);
    last = p.latency_us;
    CHECK(predict(program, {}, target, position).latency_us == p.latency_us);
  }
}

TEST_CASE("a few layers tell what all of them take") {
  const GpuTarget target = gpu("h200");
  ModelSpec few = llama_1b();
  REQUIRE(few.layers == 16);
  few.layers = kFewLayers;
  std::vector<double> all_us, told_us;
  const auto compare = [&](const std::function<void(ScheduleConfig&)>& change) {
    ScheduleConfig config;
    change(config);
    const Program all = lowered(llama_1b(), config, target, 512);
    const double us = predict_us(all, config, target, 256);
    CHECK(us == predict(all, config, target, 256).latency_us);
    const double told = predict_deeper_us(lowered(few, config, target, 512), 16, config, target, 256);
    CHECK(told == doctest::Approx(us).epsilon(0.02));
    all_us.push_back(us);
    told_us.push_back(told);
  };
  compare([](ScheduleConfig&) {});
  compare([](ScheduleConfig& c) { c.smem_bytes_per_block = 0; });
  compare([](ScheduleConfig& c) { c.page_allocation = PageAllocation::None; });
  compare([](ScheduleConfig& c) { c.sm_assignment = SmAssignment::RoundRobin; });
  compare([](ScheduleConfig& c) { c.kernel.publish = Publish::Flagged; });
  compare([](ScheduleConfig& c) { c.kernel.gemv_path = GemvPath::Fma; });
  compare([](ScheduleConfig& c) { c.gemv_n_tile = 64; });
  for (std::size_t i = 0; i < all_us.size(); ++i)
    for (std::size_t j = 0; j < all_us.size(); ++j)
      if (all_us[i] < 0.98 * all_us[j]) CHECK(told_us[i] < told_us[j]);
}

TEST_CASE("bandwidth ranks the cards") {
  const ScheduleConfig config = [] {
    ScheduleConfig c;
    c.smem_bytes_per_block = 98304;
    return c;
  }();
  double last = 0;
  for (const char* name : {"b200", "h200", "h100", "rtx5090", "rtx4090", "l4"}) {
    const double us = predicted(config, gpu(name)).latency_us;
    CAPTURE(name);
    CHECK(us > last);
    last = us;
  }
}
