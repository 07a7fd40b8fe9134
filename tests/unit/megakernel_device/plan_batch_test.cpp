// Several sequences a launch: whose vectors lie where.
#include <doctest/doctest.h>

#include <set>

#include "tests/unit/megakernel_device/plan_cases.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("plan: a batch names its sequences, and lends ring slots to down's vectors where that leaves enough") {
  const ModelSpec spec = spec_named("llama-3.2-1b");
  ScheduleConfig config;
  config.gemv_n_tile = 8;
  const DeviceLimits device{"sm_100", 10, 132, 232448, 1024};  // Hopper has another way, below
  const auto planned = [&](int ring, int batch) -> Result<DevicePlan> {
    config.smem_bytes_per_block = ring;
    const auto program = lowered(spec, config, device, batch);
    REQUIRE(program);
    return plan_device(*program, config, device);
  };
  const auto lent = planned(163840, 8);
  REQUIRE_MESSAGE(lent, lent.error().message);
  // Eight vectors of 16 KB take the place of eight of 4 KB and of six slots of 16 KB.
  CHECK(defined(*lent, "BATCH") == 8);
  CHECK(defined(*lent, "RING_SLOTS") == 10);
  CHECK(defined(*lent, "WIDE_SLOTS") == 4);
  CHECK(defined(*lent, "WIDE_STRIDE") == 16384);
  CHECK(defined(*lent, "ACT_STRIDE") == 4096);
  CHECK(lent->shared_bytes <= device.smem_optin_bytes);
  std::set<int> sequences;
  for (const auto& t : lent->tasks)
    if (t.op == static_cast<int>(Opcode::AttentionTile)) sequences.insert(t.matrix);
  CHECK(sequences == std::set<int>{0, 1, 2, 3, 4, 5, 6, 7});
  std::size_t wide = 0, tasks = 0;
  for (const auto& s : lent->streams) wide += s.kind == amk_vm::kStreamWide ? 1 : 0;
  for (const auto& t : lent->tasks) tasks += t.op == static_cast<int>(Opcode::Gemv) && t.matrix == static_cast<int>(Matrix::Down) ? 1 : 0;
  CHECK(wide == tasks);
  // Too few would be left: the vectors have room of their own.
  const auto apart = planned(65536, 8);
  REQUIRE_MESSAGE(apart, apart.error().message);
  CHECK(defined(*apart, "WIDE_SLOTS") == 0);
  CHECK(defined(*apart, "ACT_STRIDE") == 16384);
  const auto large = planned(196608, 8);
  REQUIRE(!large);
  CHECK(rule_of(large) == "shared-memory");
  CHECK(large.error().message.find("input vectors of 8 sequences") != std::string::npos);
  // One sequence has nothing to lend to.
  const auto one = planned(163840, 1);
  REQUIRE(one);
  CHECK(defined(*one, "WIDE_SLOTS") == 0);
}

TEST_CASE("plan: on Hopper a batch's vectors of O and down go straight to registers, where a warp's part of them fits") {
  const auto planned = [](const char* model, int batch, const ScheduleConfig& config, const DeviceLimits& device = kHopper) {
    const ModelSpec spec = spec_named(model);
    const auto program = lowered(spec, config, device, batch);
    REQUIRE_MESSAGE(program, program.error().message);
    const auto plan = plan_device(*program, config, device);
    REQUIRE_MESSAGE(plan, plan.error().message);
    return *plan;
  };
  ScheduleConfig config;
  config.gemv_n_tile = 8;
  config.smem_bytes_per_block = 163840;
  const DevicePlan eight = planned("llama-3.2-1b", 8, config);
  // 8,192 columns are 32 segments of 256, four for each of eight warps; 2,048 are eight.
  CHECK(defined(eight, "DOWN_SEGS") == 4);
  CHECK(defined(eight, "O_SEGS") == 1);
  CHECK(defined(eight, "WIDE_SLOTS") == 0);
  CHECK(defined(eight, "RING_SLOTS") == 10);
  CHECK(defined(eight, "ACT_STRIDE") == 4096);
  // Three more warps, which bring their registers: 384 threads of 168 are 256 of 224 and 128 of 56.
  CHECK(eight.threads == 384);
  CHECK(defined(eight, "CONSUMER_REGISTERS") == 224);
  CHECK(256 * 224 + 128 * 56 == 384 * 168);
  // Two of them finish rows, and a warp has the norms of its own columns: nothing is staged, and what was the vectors' room holds attention's records
  // alone, of eight warps four heads of 64 values, a maximum and a total, and two words that are not used.
  CHECK(defined(eight, "FINISHERS") == 1);
  CHECK(defined(eight, "NORM_DIRECT") == 1);
  CHECK(defined(eight, "ACT_BYTES") == 8 * 4 * (64 + 4) * 4);
  // Confirmed publishing has a word a thread of the launch, or of the consumers where these finish their rows.
  const auto words = [&](const ScheduleConfig& of, int batch) {
    ScheduleConfig release = of;
    release.smem_bytes_per_block = 98304;  // room for either
    ScheduleConfig confirmed = release;
    confirmed.kernel.publish = Publish::Confirmed;
    return (planned("llama-3.2-1b", batch, confirmed).shared_bytes - planned("llama-3.2-1b", batch, release).shared_bytes) / 4;
  };
  CHECK(words(config, 8) == 384);
  CHECK(words(config, 1) == 256);
  ScheduleConfig apart = config;
  apart.fusion.norm_gate_up = false;
  CHECK(defined(planned("llama-3.2-1b", 8, apart), "FINISHERS") == 1);
  CHECK(defined(planned("llama-3.2-1b", 8, apart), "NORM_DIRECT") == 0);
  CHECK(defined(planned("llama-3.2-1b", 8, apart), "ACT_BYTES") == 8 * 2048 * 2);
  apart.fusion.down_add = false;
  const DevicePlan by_consumers = planned("llama-3.2-1b", 8, apart);
  CHECK(defined(by_consumers, "FINISHERS") == 0);
  CHECK(words(apart, 8) == 256);
  CHECK(defined(by_consumers, "CONSUMER_REGISTERS") == 232);
  CHECK(256 * 232 + 128 * 40 == 384 * 168);
  // 14,336 columns are seven segments a warp: of four sequences 112 registers, of eight too many. Norms of 4,096 columns are staged.
  ScheduleConfig large = config;
  large.smem_bytes_per_block = 98304;
  const DevicePlan four = planned("llama-3.1-8b", 4, large);
  CHECK(defined(four, "DOWN_SEGS") == 7);
  CHECK(defined(four, "FINISHERS") == 1);
  CHECK(defined(four, "NORM_DIRECT") == 0);
  // Who cannot: other numbers of warps, packets with tags, another architecture, one sequence.
  const auto none = [&](const DevicePlan& plan) {
    CHECK(defined(plan, "DOWN_SEGS") == 0);
    CHECK(defined(plan, "O_SEGS") == 0);
    CHECK(defined(plan, "CONSUMER_REGISTERS") == 0);
    CHECK(defined(plan, "FINISHERS") == 0);
    CHECK(defined(plan, "NORM_DIRECT") == 0);
  };
  ScheduleConfig warps = config;
  warps.threads_per_block = 416;
  none(planned("llama-3.2-1b", 2, warps));
  ScheduleConfig flagged = config;
  flagged.kernel.publish = Publish::Flagged;
  flagged.fusion.combine_o = true;
  none(planned("llama-3.2-1b", 2, flagged));
  none(planned("llama-3.2-1b", 2, config, {"sm_100", 10, 132, 232448, 1024}));
  const DevicePlan one = planned("llama-3.2-1b", 1, config);
  none(one);
  CHECK(one.threads == 288);
}
