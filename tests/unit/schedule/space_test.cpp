#include <doctest/doctest.h>

#include <set>

#include "core/model/model_spec.h"
#include "core/schedule/config.h"
#include "core/schedule/random_config.h"
#include "core/schedule/rules.h"
#include "core/target/gpu_target.h"
#include "tests/support/misread.h"

using namespace amk;

namespace {

ModelSpec model() {
  ModelSpec spec;
  spec.hidden = 2048;
  spec.intermediate = 8192;
  spec.layers = 16;
  spec.heads = 32;
  spec.kv_heads = 8;
  spec.head_dim = 64;
  spec.vocab = 128256;
  spec.max_position = 131072;
  return spec;
}

GpuTarget gpu(int sm_major, int sm_count, std::int64_t smem) {
  GpuTarget target;
  target.sm_major = sm_major;
  target.sm_count = sm_count;
  target.smem_optin_bytes = smem;
  return target;
}

const GpuTarget kH100 = gpu(9, 132, 232448);

}  // namespace

TEST_CASE("points and configs translate both ways over the whole space") {
  const SearchSpace space = megakernel_space(model(), kH100);
  CHECK(space.index_of("tiling.gemv.N_tile") == 0);
  CHECK(space.index_of("fusion_grouping[norm+qkv]") < space.knobs.size());
  CHECK(space.index_of("no such knob") == space.knobs.size());
  CHECK(config_at(space, space.default_point()) == ScheduleConfig{});
  CHECK(space.violated(space.default_point()) == nullptr);
  Rng rng(3);
  for (int i = 0; i < 500; ++i) {
    const Point point = random_point(space, rng);
    REQUIRE(space.in_range(point));
    const ScheduleConfig config = config_at(space, point);
    CHECK(violated_rule(config) == nullptr);
    const auto back = point_of(space, config);
    REQUIRE(back);
    CHECK(*back == point);
    CHECK(parse_schedule_config(to_json(config)).value() == config);
  }
}

TEST_CASE("constraints on points are the static rules on configs") {
  const SearchSpace space = megakernel_space(model(), kH100);
  CHECK(space.constraints.size() == config_rules().size());
  Rng rng(5);
  std::set<std::string> broken;
  for (int i = 0; i < 3000; ++i) {
    Point point(space.knobs.size());
    for (std::size_t k = 0; k < point.size(); ++k) point[k] = static_cast<std::uint16_t>(rng.below(space.knobs[k].choices.size()));
    const Constraint* constraint = space.violated(point);
    const ConfigRule* rule = violated_rule(config_at(space, point));
    REQUIRE((constraint == nullptr) == (rule == nullptr));
    if (rule == nullptr) continue;
    CHECK(constraint->name == rule->name);
    broken.insert(constraint->name);
  }
  CHECK(broken.size() >= 2);
}

TEST_CASE("constraints say which knobs they read") {
  ModelSpec plain = model();
  plain.qk_norm = true;
  for (const ModelSpec& spec : {model(), plain}) {
    for (const int batch : {1, 4}) {
      const SearchSpace space = megakernel_space(spec, kH100, batch, Choices::All);
      for (const Constraint& rule : space.constraints) CHECK(rule.reads);
      CHECK(misread(space, 1500) == "");
    }
  }
}

TEST_CASE("static rules, each by hand at its edge") {
  const auto verdict = [](int smem, int chunk, int inflight) {
    ScheduleConfig config;
    config.smem_bytes_per_block = smem;
    config.kernel.chunk_bytes = chunk;
    config.kernel.inflight_chunks = inflight;
    const ConfigRule* rule = violated_rule(config);
    return rule == nullptr ? std::string() : std::string(rule->name);
  };
  CHECK(verdict(65536, 32768, 2) == "");
  CHECK(verdict(64512, 32768, 1) == "ring-holds-two-chunks");
  CHECK(verdict(65536, 32768, 3) == "window-fits-ring");
  CHECK(verdict(66560, 32768, 3) == "window-fits-ring");
  CHECK(verdict(98304, 32768, 3) == "");
  CHECK(verdict(0, 32768, 8) == "");
  ScheduleConfig config;
  config.kernel.weight_layout = WeightLayout::Row;
  REQUIRE(violated_rule(config) != nullptr);
  CHECK(violated_rule(config)->name == "mma-needs-packed");
  config.kernel.gemv_path = GemvPath::Fma;
  CHECK(violated_rule(config) == nullptr);

  // Slices: every one of its conditions alone.
  ScheduleConfig slices;
  slices.kernel.gemv_path = GemvPath::Slices;
  slices.kernel.publish = Publish::Flagged;
  slices.smem_bytes_per_block = 0;
  CHECK(violated_rule(slices) == nullptr);
  const auto with = [&](auto change) {
    ScheduleConfig changed = slices;
    change(changed);
    const ConfigRule* rule = violated_rule(changed);
    return rule == nullptr ? std::string() : std::string(rule->name);
  };
  CHECK(with([](ScheduleConfig& c) { c.kernel.publish = Publish::Confirmed; }) == "slices-needs-flagged");
  CHECK(with([](ScheduleConfig& c) { c.smem_bytes_per_block = 65536; }) == "");
  CHECK(with([](ScheduleConfig& c) {
          c.smem_bytes_per_block = 65536;
          c.kernel.kv_path = KvPath::Ring;
        }) == "slices-needs-flagged");
  CHECK(with([](ScheduleConfig& c) { c.kernel.weight_layout = WeightLayout::Row; }) == "slices-needs-flagged");
  CHECK(with([](ScheduleConfig& c) { c.kernel.tokens_per_launch = 2; }) == "slices-needs-flagged");

  // Attention and O in one instruction: likewise.
  slices.fusion.attention_combine = true;
  CHECK(violated_rule(slices) == nullptr);  // nothing is split, that is all
  slices.fusion.combine_o = true;
  CHECK(violated_rule(slices) == nullptr);
  for (const auto atom : {&Fusion::o_add, &Fusion::norm_gate_up, &Fusion::down_add})
    CHECK(with([atom](ScheduleConfig& c) { c.fusion.*atom = false; }) == "attention-o-needs-slices");
  CHECK(with([](ScheduleConfig& c) { c.kernel.gemv_path = GemvPath::Mma; }) == "attention-o-needs-slices");
}

TEST_CASE("the space follows the device and the model") {
  // 99 KB of shared memory, sm_89: the default ring shrinks, bulk copies are not offered.
  const SearchSpace ada = megakernel_space(model(), gpu(8, 58, 101376));
  const ScheduleConfig config = config_at(ada, ada.default_point());
  CHECK(config.smem_bytes_per_block == 65536);
  CHECK(config.kernel.cpasync);
  CHECK(ada.violated(ada.default_point()) == nullptr);
  for (const Json& choice : ada.knobs[ada.index_of("smem_bytes_per_block")].choices) CHECK(choice.get<int>() <= 101376);
  CHECK(point_of(ada, config).value() == ada.default_point());
  ScheduleConfig bulk = config;
  bulk.kernel.cpasync = false;
  CHECK(point_of(ada, bulk).error().message == "kernel_knobs.cpasync is false; accepted: a choice of the search space: [true]");

  // One kv head, a short context: no per-head counters; 512 positions are one block of 512.
  ModelSpec tiny = model();
  tiny.hidden = tiny.intermediate = 64;
  tiny.heads = tiny.kv_heads = 1;
  tiny.max_position = 64;
  const SearchSpace small = megakernel_space(tiny, kH100);
  CHECK(small.index_of("kernel_knobs.counters") == small.knobs.size());
  CHECK(small.index_of("fusion_grouping[combine+o_proj]") == small.knobs.size());
  CHECK(small.index_of("tiling.attention.kv_block") == small.knobs.size());
  CHECK(small.knobs[small.index_of("tiling.gemv.N_tile")].choices.back() == 256);  // covers all 192 qkv rows
  ScheduleConfig outside;
  outside.fusion.combine_o = true;
  CHECK(point_of(small, outside).error().message == "fusion_grouping[combine+o_proj] is true; accepted: false (not a knob of this search space)");
  outside = {};
  outside.kernel.counters = CounterGranularity::KvHead;
  CHECK(point_of(small, outside).error().message == "kernel_knobs.counters is \"kv_head\"; accepted: \"vector\" (not a knob of this search space)");
}

TEST_CASE("what makes no difference is accepted and not searched: its point is that of what is") {
  const SearchSpace space = megakernel_space(model(), kH100), all = megakernel_space(model(), kH100, 1, Choices::All);
  for (const char* idle : {"page_allocation", "kernel_knobs.cpasync", "kernel_knobs.cpa_stages", "kernel_knobs.cpa_cols"}) {
    CHECK(space.index_of(idle) == space.knobs.size());
    CHECK(all.index_of(idle) < all.knobs.size());
  }
  CHECK(space.knobs[space.index_of("pipelining_depth")].choices == std::vector<Json>{0, 1, 2, 4});
  CHECK(all.knobs[all.index_of("pipelining_depth")].choices.size() == 9);
  const auto depth_of = [&](int depth) {
    ScheduleConfig config;
    config.pipelining_depth = depth;
    const auto point = point_of(space, config);
    REQUIRE(point);
    return config_at(space, *point).pipelining_depth;
  };
  CHECK(depth_of(1) == 1);
  CHECK(depth_of(3) == 2);
  CHECK(depth_of(8) == 4);
  ScheduleConfig config;
  config.page_allocation = PageAllocation::None;
  config.kernel.cpa_stages = 2;
  config.kernel.cpa_cols = 1024;
  CHECK(point_of(space, config).value() == space.default_point());
  CHECK(config_at(all, point_of(all, config).value()) == config);  // an ablation tells them apart
  config.kernel.cpasync = true;                                    // which does make a difference, for the worse
  CHECK(point_of(space, config).error().message == "kernel_knobs.cpasync is true; accepted: false (not a knob of this search space)");
  // Below sm_90 there is nothing else, and its knobs are searched.
  const SearchSpace ada = megakernel_space(model(), gpu(8, 58, 101376));
  CHECK(ada.index_of("kernel_knobs.cpa_stages") < ada.knobs.size());
}

TEST_CASE("a config outside the space has no point, and says which knob") {
  const SearchSpace space = megakernel_space(model(), kH100);
  ScheduleConfig config;
  config.gemv_n_tile = 24;
  CHECK(point_of(space, config).error().message == "tiling.gemv.N_tile is 24; accepted: a choice of the search space: [8,16,32,64,128,256,512]");
  config = {};
  config.sm_assignment = SmAssignment::Explicit;
  config.explicit_sm = {{"embed.0", 1}};
  CHECK(point_of(space, config).error().data["field"] == "sm_assignment");
  config = {};
  config.kernel.tokens_per_launch = 8;  // an option that no search chooses
  CHECK(space.index_of("kernel_knobs.tokens_per_launch") == space.knobs.size());
  CHECK(point_of(space, config).error().message == "kernel_knobs.tokens_per_launch is 8; accepted: 1 (not a knob of this search space)");
}

TEST_CASE("neighbours differ in one knob and satisfy the constraints; draws repeat with the seed") {
  const SearchSpace space = megakernel_space(model(), kH100);
  Rng a(11), b(11);
  const Point point = random_point(space, a);
  CHECK(point == random_point(space, b));
  const auto all = neighbours(space, point);
  const auto near = neighbours(space, point, true);
  CHECK(near.size() < all.size());
  std::set<Point> distinct;
  for (const Point& other : all) {
    std::size_t differ = 0;
    for (std::size_t k = 0; k < point.size(); ++k) differ += other[k] != point[k];
    CHECK(differ == 1);
    CHECK(space.violated(other) == nullptr);
    CHECK(distinct.insert(other).second);
  }
  for (const Point& other : near) CHECK(distinct.count(other) == 1);
}

TEST_CASE("hash tells points apart and is the same everywhere; to_json lists every knob with its default") {
  const SearchSpace space = megakernel_space(model(), kH100);
  std::set<std::uint64_t> hashes{space.hash(space.default_point())};
  for (const Point& other : neighbours(space, space.default_point())) CHECK(hashes.insert(space.hash(other)).second);
  const Json json = to_json(space);
  CHECK(json["knobs"].size() == space.knobs.size());
  double size = 1;
  for (const Json& knob : json["knobs"]) {
    size *= static_cast<double>(knob["choices"].size());
    CHECK(knob["meaning"].get<std::string>().size() > 10);
    CHECK(std::find(knob["choices"].begin(), knob["choices"].end(), knob["default"]) != knob["choices"].end());
  }
  CHECK(json["size"] == size);
  for (const Json& constraint : json["constraints"]) CHECK(constraint["reason"].get<std::string>().size() > 20);
}
