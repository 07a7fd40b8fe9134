#include "kernels/det_gemm/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "core/base/random.h"
#include "core/schedule/valid_points.h"
#include "kernels/det_gemm/defaults.h"
#include "kernels/det_gemm/rules.h"
#include "tests/support/misread.h"

using namespace amk;
using namespace amk::det_gemm;

namespace {

GpuTarget hopper() {
  GpuTarget t;
  t.name = "h200";
  t.sm_major = 9;
  t.sm_minor = 0;
  t.sm_count = 132;
  t.smem_optin_bytes = 232448;
  t.l2_bytes = 62914560;
  t.peak_bandwidth_gbs = 4800;
  t.peak_bf16_tflops = 989.4;
  return t;
}

// The rule that refuses, or "" when a plan is made.
std::string refusal(const Canonical& shape, const Config& config, const Storage* storage = nullptr, const GpuTarget& target = hopper()) {
  const auto plan = make_plan(shape, storage != nullptr ? *storage : dense_storage(shape), config, target);
  if (plan) return "";
  CHECK(plan.error().kind == ErrorKind::Rejected);
  return plan.error().data.at("rule").get<std::string>();
}

Config mma_config() {
  Config c;
  c.path = Path::Mma;
  c.tile_m = c.tile_n = 128;
  c.tile_k = 32;
  c.stages = 4;
  c.consumers = c.cluster_m = c.cluster_n = 1;
  c.epilogue = Epilogue::Direct;
  return c;
}

}  // namespace

TEST_CASE("rules name what is wrong") {
  const Canonical big{.m = 4096, .n = 4096, .k = 4096};
  CHECK(refusal(big, {}) == "");
  CHECK(refusal(big, mma_config()) == "");
  const auto with = [](auto change) {
    Config c;
    change(c);
    return c;
  };
  CHECK(refusal(big, with([](Config& c) { c.stages = 5; })) == "shared_memory");
  CHECK(refusal(big, with([](Config& c) { c.tile_m = 64; })) == "wgmma_tile");
  CHECK(refusal(big, with([](Config& c) { c.tile_m = 256; })) == "registers");
  // What ptxas spills, or refuses: 208 accumulators without running totals; 104 in one instruction where a thread has 128 registers.
  CHECK(refusal(big, with([](Config& c) { c.tile_m = 256, c.tile_n = 208, c.stages = 2, c.epilogue = Epilogue::Staged; })) == "registers");
  CHECK(refusal(big, with([](Config& c) { c.tile_m = 256, c.tile_n = 192, c.stages = 2, c.epilogue = Epilogue::Staged; })) == "");
  CHECK(refusal(big, with([](Config& c) { c.tile_m = 192, c.consumers = 3, c.tile_n = 208, c.stages = 2, c.epilogue = Epilogue::Staged; })) ==
        "three_consumers");
  CHECK(refusal(big, with([](Config& c) { c.tile_n = 112; })) == "tma_epilogue");
  CHECK(refusal(big, with([](Config& c) { c.swap = true; })) == "tma_epilogue");
  CHECK(refusal(big, with([](Config& c) { c.cluster_m = c.cluster_n = 4; })) == "cluster_size");
  CHECK(refusal({.m = 100, .n = 4096, .k = 4096}, {}) == "cluster_cover");
  CHECK(refusal({.m = 4096, .n = 4096, .k = 51}, {}) == "tma_alignment");
  CHECK(refusal({.m = 4096, .n = 4096, .k = 0}, {}) == "empty_contraction");
  CHECK(refusal({.m = 4096, .n = 4096, .k = 4096, .out = OutType::Fp32}, {}) == "tma_epilogue");
  CHECK(refusal({.m = 4096, .n = 4096, .k = 4096, .chunk = 96}, with([](Config& c) { c.tile_n = 128; })) == "chunk_blocks");
  CHECK(refusal({.m = 4096, .n = 4096, .k = 4096, .chunk = 512}, {}) == "registers");  // running totals double the accumulators
  CHECK(refusal(big, with([](Config& c) {
                  c.epilogue = Epilogue::Direct;
                  c.store_buffers = 4;
                })) == "unused_knob");
  GpuTarget ampere = hopper();
  ampere.sm_major = 8;
  ampere.smem_optin_bytes = 166912;
  CHECK(refusal(big, {}, nullptr, ampere) == "architecture");
  CHECK(refusal(big, mma_config(), nullptr, ampere) == "");
  Storage shifted = dense_storage(big);
  shifted.align_x = 2;
  CHECK(refusal(big, {}, &shifted) == "tma_alignment");
  CHECK(refusal(big, mma_config(), &shifted) == "");
}

TEST_CASE("one producer warp: fewer threads, and only where accumulators leave it registers") {
  const Canonical few{.m = 16, .n = 14336, .k = 4096};
  Config c;
  c.tile_m = 128, c.tile_n = 16, c.stages = 6, c.cluster_m = 1, c.swap = true;
  c.epilogue = Epilogue::Staged;
  const auto threads = [&](Producer producer) {
    c.producer = producer;
    const auto plan = make_plan(few, dense_storage(few), c, hopper());
    REQUIRE_MESSAGE(plan, (plan ? "" : plan.error().message));
    return plan->block_threads;
  };
  CHECK(threads(Producer::Warpgroup) == 3 * 128);
  CHECK(threads(Producer::Warp) == 2 * 128 + 32);
  const Canonical big{.m = 4096, .n = 4096, .k = 4096}, chunks{.m = 4096, .n = 4096, .k = 4096, .chunk = 512};
  const auto refused = [&](const Canonical& shape, int tile_m, int tile_n, int consumers) {
    Config many;
    many.producer = Producer::Warp;
    many.tile_m = tile_m, many.tile_n = tile_n, many.consumers = consumers, many.stages = 2, many.cluster_m = 1;
    return refusal(shape, many);
  };
  CHECK(refused(big, 128, 192, 1) == "");  // 192 accumulators a thread
  CHECK(refused(big, 128, 256, 2) == "");  // 128
  CHECK(refused(big, 256, 192, 2) == "producer_warp");
  CHECK(refused(big, 192, 128, 3) == "");  // 64
  CHECK(refused(big, 192, 192, 3) == "producer_warp");
  CHECK(refused(chunks, 128, 128, 2) == "");  // 64, and as many running totals
  CHECK(refused(chunks, 128, 192, 2) == "producer_warp");
  Config mma = mma_config();
  mma.producer = Producer::Warp;
  CHECK(refusal(few, mma) == "unused_knob");
}

TEST_CASE("a resumed chain's sums are read in pairs where pairs are aligned in every row") {
  const auto pairs = [](std::int64_t n, std::int64_t align_total, bool swap, bool resumed) {
    const Canonical shape{.m = 256, .n = n, .k = 256, .x_k_contiguous = false, .y_k_contiguous = false, .out = OutType::Fp32, .resumed = resumed};
    Config c;
    c.tile_n = 128, c.cluster_m = 1, c.swap = swap, c.epilogue = Epilogue::Direct;
    Storage storage{.stride_x = 256, .stride_y = 512, .stride_out = n};  // rows of y are padded: n may be odd
    storage.align_total = align_total;
    const auto plan = make_plan(shape, storage, c, hopper());
    REQUIRE_MESSAGE(plan, (plan ? "" : plan.error().message));
    return std::find_if(plan->defines.begin(), plan->defines.end(), [](const auto& d) { return d.first == "DG_SUM_PAIRS"; })->second;
  };
  CHECK(pairs(264, 256, false, true) == "1");
  CHECK(pairs(264, 8, false, true) == "1");
  CHECK(pairs(264, 4, false, true) == "0");
  CHECK(pairs(263, 256, false, true) == "0");
  CHECK(pairs(264, 256, true, true) == "0");
  CHECK(pairs(264, 256, false, false) == "0");
}

TEST_CASE("a rejection carries the numbers") {
  Config c;
  c.stages = 8;
  const auto plan = make_plan({.m = 4096, .n = 4096, .k = 4096}, {4096, 4096, 4096}, c, hopper());
  REQUIRE_FALSE(plan);
  // 8 stages of (128 + 256) · 64 · 2 bytes, 2 · 4 · 2 buffers of 2048 bytes, 8 · 16 bytes of barriers, 1024 of alignment.
  CHECK(plan.error().data["witness"]["shared_bytes"] == 8 * 49152 + 32768 + 128 + 1024);
  CHECK(plan.error().data["witness"]["shared_bytes_limit"] == 232448);
}

TEST_CASE("every plan's tiles cover the output exactly once, whatever the grid") {
  Rng rng(7);
  const SearchSpace spaces[] = {space_of({.m = 64, .n = 64, .k = 64}, {64, 64, 64}, hopper(), {}),
                                space_of({.m = 64, .n = 64, .k = 64}, {64, 64, 64}, hopper(), mma_config())};
  int plans = 0;
  for (int attempt = 0; attempt < 200000 && plans < 300; ++attempt) {
    const Canonical shape{.m = 1 + static_cast<std::int64_t>(rng.below(600)), .n = 8 * (1 + static_cast<std::int64_t>(rng.below(80))), .k = 64};
    const SearchSpace& space = spaces[rng.below(4) == 0];
    Point point;
    for (const Knob& knob : space.knobs) point.push_back(static_cast<std::uint16_t>(rng.below(knob.choices.size())));
    const Config config = config_of(space, point);
    if (attempt < 200) REQUIRE(*point_of(space, config) == point);  // also of choices that not every space has
    const auto plan = make_plan(shape, dense_storage(shape), config, hopper());
    if (!plan) continue;
    ++plans;
    const std::int64_t blocks = plan->cluster * (1 + static_cast<std::int64_t>(rng.below(20)));
    std::vector<char> seen(static_cast<std::size_t>(shape.m * shape.n), 0);
    for (const auto& list : replay(*plan, blocks)) {
      for (const Block& b : list) {
        REQUIRE(b.row >= 0);
        REQUIRE(b.col >= 0);
        REQUIRE(b.row + b.rows <= shape.m);
        REQUIRE(b.col + b.cols <= shape.n);
        for (std::int64_t r = b.row; r < b.row + b.rows; ++r)
          for (std::int64_t c = b.col; c < b.col + b.cols; ++c) ++seen[static_cast<std::size_t>(r * shape.n + c)];
      }
    }
    REQUIRE(std::count(seen.begin(), seen.end(), 1) == shape.m * shape.n);
  }
  CHECK(plans == 300);
}

namespace {

// Bands of `group` tiles, each swept across the other dimension, in 64 bits.
std::pair<std::int64_t, std::int64_t> tile_in_order(std::int64_t index, std::int64_t banded, std::int64_t swept, std::int64_t group) {
  std::int64_t first = 0;
  while (index >= std::min(group, banded - first) * swept) {
    index -= std::min(group, banded - first) * swept;
    first += group;
  }
  const std::int64_t width = std::min(group, banded - first);
  return {first + index % width, index / width};
}

}  // namespace

TEST_CASE("whatever the extents: plans keep the hardware's limits, and their walk counts right") {
  Rng rng(11);
  const auto extent = [&]() -> std::int64_t {
    const std::int64_t power = std::int64_t{1} << rng.below(32);
    return std::clamp<std::int64_t>(power + static_cast<std::int64_t>(rng.below(3)) - 1, 1, 0x7FFFFFFF);
  };
  int plans = 0, large = 0;
  for (int attempt = 0; attempt < 400000 && plans < 3000; ++attempt) {
    const Canonical shape{.m = extent(), .n = extent(), .k = extent(), .x_k_contiguous = rng.below(2) == 0, .y_k_contiguous = rng.below(2) == 0};
    static const SearchSpace spaces[] = {knob_space({}), knob_space(mma_config())};
    const SearchSpace& space = spaces[rng.below(2)];
    Point point;
    for (const Knob& knob : space.knobs) point.push_back(static_cast<std::uint16_t>(rng.below(knob.choices.size())));
    Config c = config_of(space, point);
    if (rng.below(2) == 0) {  // otherwise hardly one in a hundred leaves the neutral values alone
      const Config walk = c;
      c = mma_config();
      c.tile_m = walk.tile_m;
      c.tile_n = walk.tile_n;
      c.group = walk.group;
      c.raster = walk.raster;
    }
    const auto plan = make_plan(shape, dense_storage(shape), c, hopper());
    if (!plan) continue;
    ++plans;
    CHECK(plan->block_threads <= 1024);
    CHECK(plan->smem_bytes <= 232448);
    CHECK(plan->grid_limit <= 0x7FFFFFFF);
    for (const auto* map : {&plan->map_x, &plan->map_y, &plan->map_y_tail, &plan->map_out}) {
      if (!*map) continue;
      // CUDA driver API, cuTensorMapEncodeTiled.
      CHECK((*map)->box_outer >= 1);
      CHECK((*map)->box_outer <= 256);
      CHECK((*map)->box_inner * 2 <= (*map)->swizzle_bytes);
      CHECK((*map)->box_inner * 2 % 16 == 0);
      CHECK((*map)->stride_bytes % 16 == 0);
      CHECK((*map)->stride_bytes < std::int64_t{1} << 40);
    }
    if (c.path == Path::Plain) continue;
    const std::int64_t tiles = plan->tiles_m * plan->tiles_n;
    if (tiles > 1 << 20) ++large;
    const bool along_n = c.raster == RasterAlong::N;
    for (int i = 0; i < 4; ++i) {
      const std::int64_t index = i == 0 ? tiles - 1 : static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(tiles)));
      if ((along_n ? plan->tiles_n : plan->tiles_m) / c.group > 100000) continue;  // the plain way of counting is slow
      auto [in_band, across] = tile_in_order(index, along_n ? plan->tiles_n : plan->tiles_m, along_n ? plan->tiles_m : plan->tiles_n, c.group);
      Block block = tile_of(*plan, index, 0);
      if (c.swap) std::swap(block.row, block.col);
      CHECK(block.row == (along_n ? across : in_band) * c.cluster_m * c.tile_m);
      CHECK(block.col == (along_n ? in_band : across) * c.cluster_n * c.tile_n);
    }
  }
  CHECK(plans == 3000);
  CHECK(large > 20);
}

TEST_CASE("a walk that 32 bits cannot count is refused") {
  // 2^26 tiles across a band of 64: the product is 2^32, and the first tile's band was a division by zero.
  const Canonical shape{.m = std::int64_t{1} << 30, .n = 16, .k = 16};
  Config c = mma_config();
  c.tile_m = c.tile_n = 16;
  c.raster = RasterAlong::N;
  c.group = 64;
  CHECK(refusal(shape, c) == "raster_range");
  c.group = 32;
  CHECK(refusal(shape, c) == "");
  c.raster = RasterAlong::M;
  c.group = 64;
  CHECK(refusal(shape, c) == "");
}

TEST_CASE("raster groups tiles: the first band is swept before the second begins") {
  const Canonical shape{.m = 16 * 128, .n = 6 * 256, .k = 64};
  Config c;
  c.cluster_m = 1;
  c.group = 4;
  const auto plan = make_plan(shape, dense_storage(shape), c, hopper());
  REQUIRE(plan);
  const auto order = replay(*plan, 1);
  for (std::size_t i = 0; i < 24; ++i) CHECK(order[0][i].row < 4 * 128);
  CHECK(order[0][0] == Block{0, 0, 128, 256});
  CHECK(order[0][1] == Block{128, 0, 128, 256});
  CHECK(order[0][4] == Block{0, 256, 128, 256});
  CHECK(order[0][24] == Block{512, 0, 128, 256});
}

TEST_CASE("tensor maps describe the operands in the kernel's roles") {
  const Canonical shape{.m = 17, .n = 4096, .k = 1024, .y_k_contiguous = false};
  Config c;
  c.tile_m = 64;
  c.tile_n = 24;
  c.consumers = 1;
  c.cluster_m = 1;
  c.swap = true;
  c.epilogue = Epilogue::Direct;
  const auto plan = make_plan(shape, dense_storage(shape), c, hopper());
  REQUIRE(plan);
  CHECK(plan->map_x == MapSpec{4096, 1024, 8192, 64, 64});  // the weights: N contiguous, 64 of k a box
  CHECK(plan->map_y == MapSpec{1024, 17, 2048, 64, 24});    // 17 tokens: boxes of 24 rows
  CHECK_FALSE(plan->map_out);
  const auto load = [&](const std::string& name) {
    return std::find_if(plan->defines.begin(), plan->defines.end(), [&](const auto& d) { return d.first == name; })->second;
  };
  CHECK(load("DG_Y_LOAD") == "24");
  CHECK(load("DG_TRANSPOSED") == "1");
}

TEST_CASE("n contiguous: a column tile is whole rows of 64 or 32 columns") {
  Config c;
  c.tile_m = 64, c.consumers = 1, c.cluster_m = 1, c.tile_k = 128, c.stages = 4;
  c.epilogue = Epilogue::Staged;
  const auto planned = [&](int tile_n, std::int64_t n, int cluster_m = 1) {
    const Canonical shape{.m = 128, .n = n, .k = 4096, .y_k_contiguous = false};
    c.tile_n = tile_n;
    c.cluster_m = cluster_m;
    const auto plan = make_plan(shape, dense_storage(shape), c, hopper());
    REQUIRE_MESSAGE(plan, (plan ? "" : plan.error().message));
    return *plan;
  };
  const auto define = [](const Plan& plan, const std::string& name) {
    return std::find_if(plan.defines.begin(), plan.defines.end(), [&](const auto& d) { return d.first == name; })->second;
  };
  // 32 columns: 64-byte rows, nothing padded. A stage is (64 + 32) · 128 · 2 bytes; 4 warps stage 16 rows of 144 bytes each.
  const Plan narrow = planned(32, 4096);
  CHECK(narrow.map_y == MapSpec{4096, 4096, 8192, 32, 128, 64, 256});
  CHECK(narrow.smem_bytes == 4 * 96 * 128 * 2 + 4 * 16 * 144 + 4 * 16 + 1024);
  CHECK(define(narrow, "DG_Y_LINES") == "32");
  CHECK(define(narrow, "DG_Y_ATOM") == "32");
  CHECK(planned(24, 4096).map_y == narrow.map_y);
  CHECK(planned(96, 4096).map_y == MapSpec{4096, 4096, 8192, 64, 128, 128, 256});
  CHECK(planned(112, 14336).map_y == MapSpec{14336, 4096, 28672, 64, 128, 128, 256});    // 112 columns lie in 128
  CHECK(planned(112, 14336, 2).map_y == MapSpec{14336, 4096, 28672, 64, 64, 128, 256});  // shared by two blocks: each reads half the k
  // What is over at the end of whole rows comes in a box of its own width: nothing beside the tile is read.
  CHECK(define(planned(112, 14336), "DG_Y_LINES") == "128");
  CHECK(define(planned(112, 14336), "DG_Y_LOAD") == "112");
  CHECK(planned(112, 14336).map_y_tail == MapSpec{14336, 4096, 28672, 48, 128, 128, 256});
  CHECK(planned(112, 14336, 2).map_y_tail == MapSpec{14336, 4096, 28672, 48, 64, 128, 256});
  CHECK(planned(96, 4096).map_y_tail == MapSpec{4096, 4096, 8192, 32, 128, 128, 256});
  CHECK(planned(24, 4096).map_y_tail == MapSpec{4096, 4096, 8192, 24, 128, 64, 256});
  CHECK_FALSE(planned(32, 4096).map_y_tail);
  CHECK_FALSE(planned(128, 4096).map_y_tail);
  c.l2_fetch = 0;
  CHECK(planned(32, 4096).map_y == MapSpec{4096, 4096, 8192, 32, 128, 64, 0});
  CHECK(planned(32, 4096).map_x->fetch_bytes == 0);
  c.l2_fetch = 256;
  CHECK(planned(128, 4096).map_y == MapSpec{4096, 4096, 8192, 64, 128, 128, 256});
}

TEST_CASE("running totals double the accumulators: 208 columns with two consumers, 128 with three") {
  const Canonical chunked{.m = 4096, .n = 4096, .k = 4096, .x_k_contiguous = false, .y_k_contiguous = false, .chunk = 512};
  Config c;
  c.cluster_m = 1, c.epilogue = Epilogue::Staged;
  c.tile_n = 208;
  const auto plan = make_plan(chunked, dense_storage(chunked), c, hopper());
  REQUIRE(plan);
  std::string parts;  // added one after the other, each whole rows of 64 columns but the last
  for (const auto& [name, value] : plan->defines)
    if (name == "DG_LOW_N" || name == "DG_HIGH_N") parts += " " + value;
  CHECK(parts == " 128 80");
  CHECK(first_added_columns(c, {.m = 4096, .n = 4096, .k = 4096}) == 0);
  c.tile_n = 224;
  CHECK(refusal(chunked, c) == "registers");
  c.tile_m = 192, c.consumers = 3, c.tile_n = 128;
  CHECK(refusal(chunked, c) == "");
  c.tile_n = 144;
  CHECK(refusal(chunked, c) == "registers");
}

TEST_CASE("config: JSON round trip, defaults, errors by name") {
  CHECK(*parse_config(Json::object()) == Config{});
  const SearchSpace space = knob_space({});
  Rng rng(3);
  std::set<std::uint64_t> hashes;
  for (int i = 0; i < 200; ++i) {
    Point point;
    for (const Knob& knob : space.knobs) point.push_back(static_cast<std::uint16_t>(rng.below(knob.choices.size())));
    const Config config = config_of(space, point);
    CHECK(*parse_config(to_json(config)) == config);
    CHECK(*point_of(space, config) == point);
  }
  CHECK(config_of(space, *point_of(space, Config{})) == Config{});
  CHECK(parse_config({{"tile", {{"m", 100}}}}).error().message == "config.tile.m is 100; accepted: 16, 32, 64, 128, 192, 256");
  CHECK(parse_config({{"path", "cuda"}}).error().message == "config.path is \"cuda\"; accepted: wgmma, mma, plain");
  CHECK(parse_config({{"swap", 1}}).error().message == "config.swap is 1; accepted: true, false");
  CHECK(parse_config({{"tile", {{"m", 128.0}}}}).error().message.rfind("config.tile.m is 128.0; accepted: ", 0) == 0);
  CHECK(parse_config({{"tlie", 3}}).error().message.rfind("config.tlie is 3; accepted: a knob of this family: path, ", 0) == 0);
  CHECK(parse_config(Json::array()).error().kind == ErrorKind::InvalidArgument);
}

TEST_CASE("the space's constraints are make_plan's rules") {
  const Canonical shape{.m = 512, .n = 1000, .k = 4096, .y_k_contiguous = false};
  const Storage storage = dense_storage(shape);
  const SearchSpace space = space_of(shape, storage, hopper(), {});
  Rng rng(11);
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    Point point;
    for (const Knob& knob : space.knobs) point.push_back(static_cast<std::uint16_t>(rng.below(knob.choices.size())));
    const auto plan = make_plan(shape, storage, config_of(space, point), hopper());
    const auto first = std::find_if(space.constraints.begin(), space.constraints.end(), [&](const Constraint& c) { return !c.holds(point); });
    CHECK((first == space.constraints.end()) == plan.has_value());
    if (!plan) CHECK(plan.error().data["rule"] == first->name);
    if (plan) {  // what the compiler is told of a config: numbers under names of ours
      for (const auto& [name, value] : plan->defines) {
        CHECK(name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == std::string::npos);
        CHECK(value.find_first_not_of("-0123456789") == std::string::npos);
      }
    }
    accepted += plan.has_value();
  }
  CHECK(accepted > 40);  // strategies sample: what can run (2% of the points) must not be rare
}

namespace {

std::vector<SearchSpace> spaces_of_many_shapes() {
  std::vector<SearchSpace> out;
  for (const Canonical& shape : {Canonical{.m = 4096, .n = 4096, .k = 4096}, Canonical{.m = 16, .n = 14336, .k = 4096, .y_k_contiguous = false},
                                 Canonical{.m = 512, .n = 1000, .k = 4096, .out = OutType::Fp32},
                                 Canonical{.m = 4096, .n = 4096, .k = 4096, .x_k_contiguous = false, .chunk = 512}})
    out.push_back(space_of(shape, dense_storage(shape), hopper(), default_config(shape, dense_storage(shape), hopper())));
  const Canonical odd{.m = 100, .n = 1001, .k = 333};
  out.push_back(space_of(odd, dense_storage(odd), hopper(), default_config(odd, dense_storage(odd), hopper())));  // by mma.sync
  out.push_back(space_of(odd, dense_storage(odd), hopper(), plain_kernel_config()));
  return out;
}

}  // namespace

TEST_CASE("rules say which knobs they read") {
  for (const SearchSpace& space : spaces_of_many_shapes()) {
    for (const Constraint& rule : space.constraints) CHECK(rule.reads);
    CHECK(misread(space, 1500) == "");
  }
}

TEST_CASE("draws are from all that can run, and from nothing else") {
  for (const SearchSpace& space : spaces_of_many_shapes()) {
    Rng rng(3);
    for (int i = 0; i < 300; ++i) {
      const auto point = space.valid->draw(rng, 1);  // nothing is left to trial
      REQUIRE(point);
      CHECK(space.violated(*point) == nullptr);
    }
  }
  // Every combination of what rules tie together, by walking; what they do not read has the first choice alone.
  const Canonical shape{.m = 512, .n = 1000, .k = 4096, .out = OutType::Fp32};
  SearchSpace space = space_of(shape, dense_storage(shape), hopper(), default_config(shape, dense_storage(shape), hopper()));
  std::set<std::uint16_t> read;
  for (const Constraint& rule : space.constraints)
    if (rule.name != "raster_range") read.insert(rule.reads->begin(), rule.reads->end());  // of larger outputs
  std::uint64_t free = 1, tied = 0;
  for (std::uint16_t k = 0; k < space.knobs.size(); ++k)
    if (read.count(k) == 0) free *= space.knobs[k].choices.size();
  Point point = space.default_point();
  for (const std::uint16_t k : read) point[k] = 0;
  for (bool more = true; more;) {
    tied += space.violated(point) == nullptr;
    auto k = read.begin();
    while (k != read.end() && ++point[*k] == space.knobs[*k].choices.size()) point[*k++] = 0;
    more = k != read.end();
  }
  CHECK(tied > 1000);
  CHECK(space.valid->places() == tied * free);
}
