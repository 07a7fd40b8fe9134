// What a plan refuses, and that asking for no more than that has the same answer.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <set>

#include "core/base/random.h"
#include "core/schedule/random_config.h"
#include "core/target/gpu_target.h"
#include "kernels/megakernel/gpu_layout.h"
#include "tests/unit/megakernel_device/plan_cases.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("plan: what the virtual machine or the device cannot do is rejected by rule") {
  const ModelSpec spec = spec_named("llama-3.2-1b");
  const auto plan_of = [&](const ScheduleConfig& config, const ModelSpec& model, const DeviceLimits& limits) -> Result<DevicePlan> {
    AMK_TRY(program, lowered(model, config, limits));
    return plan_device(program, config, limits);
  };
  ScheduleConfig config;
  CHECK(rule_of(plan_of(config, spec, kHopper)).empty());

  ScheduleConfig flagged;
  flagged.kernel.publish = Publish::Flagged;
  CHECK(rule_of(plan_of(flagged, spec, kHopper)) == "flagged-needs-fused");  // the combine is an instruction of its own
  flagged.fusion.combine_o = true;
  CHECK(rule_of(plan_of(flagged, spec, kHopper)).empty());
  flagged.fusion.down_add = false;
  CHECK(rule_of(plan_of(flagged, spec, kHopper)) == "flagged-needs-fused");
  flagged.fusion.down_add = true;
  ModelSpec half_packet = spec;
  half_packet.intermediate = 8196;
  CHECK(rule_of(plan_of(flagged, half_packet, kHopper)) == "flagged-needs-whole-packets");
  ModelSpec wide_heads = spec;
  wide_heads.head_dim = 160;
  CHECK(rule_of(plan_of(flagged, wide_heads, kHopper)) == "flagged-needs-mma-attention");

  // Slices: a warp holds four blocks of 64 columns, so llama-3.2-1b's 8,192 need 32 consumer warps, one more than there are; smollm2's 1,536 six.
  ScheduleConfig slices = flagged;
  slices.kernel.gemv_path = GemvPath::Slices;
  slices.smem_bytes_per_block = 0;
  slices.threads_per_block = 1024;
  CHECK(rule_of(plan_of(slices, spec, kHopper)) == "slices-too-wide");
  const ModelSpec narrow = spec_named("smollm2-135m");
  CHECK(rule_of(plan_of(slices, narrow, kHopper)).empty());
  slices.threads_per_block = 7 * 32;
  CHECK(rule_of(plan_of(slices, narrow, kHopper)).empty());
  slices.threads_per_block = 6 * 32;
  CHECK(rule_of(plan_of(slices, narrow, kHopper)) == "slices-too-wide");
  // With a ring a chunk holds whole units: 8 rows of 1,536 columns are 24 KB, of 576 9 KB, so that gate and up's chunks are three units.
  slices.threads_per_block = 384;
  slices.smem_bytes_per_block = 196608;
  CHECK(rule_of(plan_of(slices, narrow, kHopper)) == "slices-needs-whole-units");
  slices.kernel.chunk_bytes = 32768;
  const auto ringed = plan_of(slices, narrow, kHopper);
  REQUIRE(rule_of(ringed).empty());
  std::set<std::uint32_t> chunks;
  std::uint64_t streamed = 0;
  for (const auto& stream : ringed->streams) {
    chunks.insert(stream.chunk_bytes);
    streamed += stream.bytes;
  }
  CHECK(chunks == std::set<std::uint32_t>{24 * 1024, 27 * 1024});
  CHECK(streamed == std::uint64_t{2} * (30 * (960 * 576 + 576 * 576 + 3072 * 576 + 576 * 1536) + 49152 * 576));
  slices.smem_bytes_per_block = 0;
  ModelSpec normed = narrow;
  normed.qk_norm = true;
  CHECK(rule_of(plan_of(slices, normed, kHopper)) == "slices-needs-plain-heads");

  // Attention and O in one instruction: its weights do not come through the ring, those of the others do.
  ScheduleConfig fused = slices;
  fused.fusion.attention_combine = true;
  fused.smem_bytes_per_block = 65536;
  const auto attention_o = plan_of(fused, narrow, kHopper);
  REQUIRE(rule_of(attention_o).empty());
  streamed = 0;
  for (const auto& stream : attention_o->streams) streamed += stream.bytes;
  CHECK(streamed == std::uint64_t{2} * (30 * (960 * 576 + 3072 * 576 + 576 * 1536) + 49152 * 576));
  // A head's columns are three blocks of 64; a unit of rows has nine: where each task's weights begin, in pieces of 16 bytes.
  const GpuLayout layout(narrow, WeightLayout::Packed);
  std::set<std::uint64_t> begins;
  for (const auto& task : attention_o->tasks) {
    if (task.op != static_cast<int>(Opcode::AttentionO) || task.layer != 3) continue;
    begins.insert(task.weight);
    CHECK(std::uint64_t{task.weight} * 16 ==
          static_cast<std::uint64_t>(layout.matrix_offset(Matrix::O, 3)) + task.row_begin / 8 * (9 * 1024) + task.head * (3 * 1024));
    CHECK((task.residual != amk_vm::kNoOffset) == (task.head == 0));
  }
  CHECK(begins.size() == 108);  // 36 tiles of 16 rows for each of three heads: one an SM at most
  ModelSpec many = narrow;
  many.kv_heads = 9;
  CHECK(rule_of(plan_of(fused, many, kHopper)) == "attention-o-few-heads");
  ModelSpec halves = narrow;
  halves.heads = halves.kv_heads = 3;
  halves.head_dim = 96;
  CHECK(rule_of(plan_of(fused, halves, kHopper)) == "attention-o-whole-blocks");
  fused.smem_bytes_per_block = 196608;
  CHECK(rule_of(plan_of(fused, narrow, kHopper)) == "attention-o-rows");

  ScheduleConfig large;
  large.smem_bytes_per_block = 225280;
  const auto too_large = plan_of(large, spec, kHopper);
  REQUIRE(rule_of(too_large) == "shared-memory");
  // The message's advice works.
  ScheduleConfig advised = large;
  advised.smem_bytes_per_block = too_large.error().data.at("witness").at("largest_ring").get<int>();
  CHECK(rule_of(plan_of(advised, spec, kHopper)).empty());

  ScheduleConfig short_ring;
  short_ring.smem_bytes_per_block = 32768;
  CHECK(rule_of(plan_of(short_ring, spec, kHopper)) == "ring-turn");

  ModelSpec fp32 = spec;
  fp32.dtype = DType::F32;
  CHECK(rule_of(plan_of(config, fp32, kHopper)) == "fp32-needs-fma");
  ScheduleConfig fma;
  fma.kernel.gemv_path = GemvPath::Fma;
  fma.kernel.weight_layout = WeightLayout::Row;
  fma.smem_bytes_per_block = 131072;
  CHECK(rule_of(plan_of(fma, fp32, kHopper)).empty());

  // A program for another number of multiprocessors.
  const auto program = lowered(spec, config, kHopper);
  REQUIRE(program);
  DeviceLimits fewer = kHopper;
  fewer.sm_count = 114;
  CHECK(rule_of(plan_device(*program, config, fewer)) == "sm-count");
}

TEST_CASE("whether a program fits the device is what its plan says, in the same words") {
  std::map<std::string, int> refused;
  Rng rng(3);
  for (const char* name : {"small", "smollm2-135m", "toy-2L"}) {
    const ModelSpec spec = spec_named(name);
    GpuTarget target = load_gpu_target("h200", std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus").value();
    const SearchSpace space = megakernel_space(spec, target, 1);
    DeviceLimits smaller = kHopper;
    smaller.smem_optin_bytes = 120'000;
    for (int i = 0; i < 60; ++i) {
      ScheduleConfig config = random_config(space, rng);
      if (i % 10 == 0) config.kernel.tokens_per_launch = 4;
      const auto program = lowered(spec, config, kHopper);
      if (!program) continue;
      for (const DeviceLimits& limits : {kHopper, smaller}) {
        const auto plan = plan_device(*program, config, limits);
        const Status fit = check_device_fit(*program, config, limits);
        REQUIRE(fit.has_value() == plan.has_value());
        if (plan) continue;
        CHECK(fit.error().message == plan.error().message);
        CHECK(fit.error().data == plan.error().data);
        ++refused[rule_of(plan)];
      }
    }
  }
  CHECK(refused["shared-memory"] > 0);
  CHECK(refused["ring-turn"] > 0);
}
