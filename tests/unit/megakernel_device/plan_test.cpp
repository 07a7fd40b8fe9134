// From programs to device tables: what is covered, what is rejected and why.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/model/load.h"
#include "core/program/lower.h"
#include "core/program/packing.h"
#include "core/schedule/random_config.h"
#include "core/target/gpu_target.h"
#include "kernels/megakernel/device_plan.h"

using namespace amk;

namespace {

const DeviceLimits kHopper{"sm_90a", 9, 132, 232448, 1024};

ModelSpec spec_named(const char* name) {
  ModelSources sources;
  sources.catalogue_dir = std::string(AMK_SOURCE_DIR) + "/config/models";
  const auto ref = resolve_model(name, sources);
  REQUIRE(ref);
  return ref->spec;
}

Result<Program> lowered(const ModelSpec& spec, const ScheduleConfig& config, const DeviceLimits& limits, int batch = 1) {
  LoweringTarget target;
  target.batch = batch;
  target.sm_count = limits.sm_count;
  target.smem_optin_bytes = limits.smem_optin_bytes;
  target.max_seq = 512;
  return lower(spec, config, target, gpu_format(spec.dtype));
}

std::string rule_of(const Result<DevicePlan>& plan) { return plan ? "" : plan.error().data.value("rule", "?"); }

}  // namespace

TEST_CASE("plan: tables hold every task once, in queue order, and streams hold every weight byte once") {
  for (const char* name : {"small", "llama-3.2-1b", "smollm2-135m", "qwen3-0.6b"}) {
    CAPTURE(name);
    const ModelSpec spec = spec_named(name);
    for (const bool row : {false, true}) {
      ScheduleConfig config;
      config.gemv_n_tile = 8;
      config.smem_bytes_per_block = 131072;
      if (row) {
        config.kernel.gemv_path = GemvPath::Fma;
        config.kernel.weight_layout = WeightLayout::Row;
      }
      const auto program = lowered(spec, config, kHopper);
      REQUIRE(program);
      const auto plan = plan_device(*program, config, kHopper);
      REQUIRE_MESSAGE(plan, plan.error().message);
      // What the compiler is told of model and config: numbers under names of ours.
      for (const std::string& option : plan->request.options) {
        CAPTURE(option);
        const auto equals = option.find('=');
        if (option == "-std=c++17" || option == "-default-device" || option == "--ptxas-options=-v") continue;
        REQUIRE((option.rfind("-DAMK_", 0) == 0 && equals != std::string::npos));
        CHECK(option.substr(2, equals - 2).find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == std::string::npos);
        CHECK(option.substr(equals + 1).find_first_not_of("-+.ef0123456789") == std::string::npos);
      }
      CHECK(plan->grid == 132);
      CHECK(plan->tasks.size() == program->tasks.size());
      CHECK(plan->shared_bytes <= kHopper.smem_optin_bytes);
      const GpuLayout layout(spec, config.kernel.weight_layout);
      std::map<std::uint64_t, std::uint64_t> pieces;  // begin -> end, bytes
      for (std::size_t sm = 0; sm < plan->queues.size(); ++sm) {
        const auto& queue = plan->queues[sm];
        REQUIRE(queue.task_count == program->queues[sm].size());
        for (std::uint32_t i = 0; i < queue.task_count; ++i) {
          const Task& task = program->tasks[static_cast<std::size_t>(program->queues[sm][i])];
          const auto& desc = plan->tasks[queue.task_first + i];
          CHECK(desc.op == static_cast<int>(task.op));
          CHECK(desc.row_begin == static_cast<std::uint32_t>(task.row_begin));
          REQUIRE(desc.wait_count == task.waits.size());
          for (std::size_t w = 0; w < task.waits.size(); ++w) {
            const auto& wait = plan->waits[queue.wait_first + desc.wait_first + w];
            CHECK(wait.counter == static_cast<std::uint32_t>(task.waits[w].counter));
            CHECK(wait.fan_in == static_cast<std::uint32_t>(program->counters[wait.counter].fan_in));
          }
        }
        for (std::uint32_t i = 0; i < queue.stream_count; ++i) {
          const auto& stream = plan->streams[queue.stream_first + i];
          CHECK(stream.chunk_bytes % 16 == 0);
          CHECK(stream.chunk_bytes <= static_cast<std::uint32_t>(config.kernel.chunk_bytes));
          const auto added = pieces.emplace(std::uint64_t{stream.weight} * 16, std::uint64_t{stream.weight} * 16 + stream.bytes);
          CHECK(added.second);
        }
      }
      std::uint64_t total = 0, end = 0;
      for (const auto& [begin, stop] : pieces) {
        CHECK(begin >= end);
        end = stop;
        total += stop - begin;
      }
      std::uint64_t expected = 0;
      const auto bytes = [&](Matrix m) {
        const std::int64_t rows = row ? packed_rows(spec, m) : (packed_rows(spec, m) + 7) / 8 * 8;
        return static_cast<std::uint64_t>(rows * layout.row_bytes(m));
      };
      for (int l = 0; l < spec.layers; ++l) expected += bytes(Matrix::Qkv) + bytes(Matrix::O) + bytes(Matrix::GateUp) + bytes(Matrix::Down);
      expected += bytes(Matrix::LmHead);
      CHECK(total == expected);
      CHECK(end <= static_cast<std::uint64_t>(layout.matrix_bytes()));
    }
  }
}

TEST_CASE("plan: flagged doubles activation storage, and tags name the producing instructions") {
  const ModelSpec spec = spec_named("llama-3.2-1b");
  ScheduleConfig config;
  config.fusion.combine_o = true;
  const auto program = lowered(spec, config, kHopper);
  REQUIRE(program);
  const auto plain = plan_device(*program, config, kHopper);
  ScheduleConfig flagged_config = config;
  flagged_config.kernel.publish = Publish::Flagged;
  const auto flagged = plan_device(*program, flagged_config, kHopper);
  REQUIRE(plain);
  REQUIRE(flagged);
  REQUIRE(flagged->storages.size() == plain->storages.size() + 1);  // this step's k and v rows
  for (std::size_t i = 0; i < plain->storages.size(); ++i) CHECK(flagged->storages[i].bytes == 2 * plain->storages[i].bytes);
  CHECK(flagged->storages.back().bytes == 2 * 2 * spec.kv_rows() * 2);
  std::map<BufferId, InstructionId> writer;
  for (const Task& t : program->tasks)
    for (const Region& r : t.writes) writer[r.buffer] = t.instruction;
  for (std::size_t sm = 0; sm < flagged->queues.size(); ++sm) {
    for (std::uint32_t i = 0; i < flagged->queues[sm].task_count; ++i) {
      const Task& task = program->tasks[static_cast<std::size_t>(program->queues[sm][i])];
      const auto& desc = flagged->tasks[flagged->queues[sm].task_first + i];
      CHECK(desc.tag == task.instruction + 1);
      if (task.op == Opcode::Embed) continue;
      CHECK(desc.input_tag == writer.at(task.reads[0].buffer) + 1);
      if ((task.fused & kFusedResidualAdd) != 0) CHECK(desc.residual_tag == writer.at(task.reads.back().buffer) + 1);
    }
  }
}

TEST_CASE("plan: activation storages lie apart, with guard zones between, and offsets stay inside") {
  const ModelSpec spec = spec_named("small");
  const ScheduleConfig config;
  const auto program = lowered(spec, config, kHopper);
  REQUIRE(program);
  const auto plan = plan_device(*program, config, kHopper);
  REQUIRE(plan);
  std::int64_t end = 0;
  for (std::size_t i = 0; i < plan->storages.size(); ++i) {
    if (program->storages[i].space != Space::Activation) continue;
    CHECK(plan->storages[i].offset >= end + kGuardBytes);
    CHECK(plan->storages[i].offset % 16 == 0);
    end = plan->storages[i].offset + plan->storages[i].bytes;
  }
  CHECK(plan->activation_bytes >= end + kGuardBytes);
  for (const auto& task : plan->tasks) {
    for (const std::uint32_t offset : {task.input, task.residual, task.output}) {
      if (offset != amk_vm::kNoOffset) CHECK(offset < plan->activation_bytes);
    }
  }
}

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

TEST_CASE("plan: below compute capability 9.0 there are no bulk copies, and cp.async knobs shape the chunks") {
  const ModelSpec spec = spec_named("llama-3.2-1b");
  ScheduleConfig config;
  config.smem_bytes_per_block = 98304;
  config.kernel.cpa_cols = 256;
  config.kernel.cpa_stages = 3;
  DeviceLimits ampere{"sm_80", 8, 108, 166912, 1024};
  const auto program = lowered(spec, config, ampere);
  REQUIRE(program);
  const auto plan = plan_device(*program, config, ampere);
  REQUIRE_MESSAGE(plan, plan.error().message);
  const auto has = [&](const std::string& option) {
    return std::find(plan->request.options.begin(), plan->request.options.end(), option) != plan->request.options.end();
  };
  CHECK(has("-DAMK_BULK=0"));
  CHECK(has("-DAMK_WINDOW=3"));
  CHECK(has("-DAMK_SLOT_BYTES=4096"));  // 256 columns of 8 rows of 2 bytes
  CHECK(plan->request.architecture == "sm_80");
}

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
  const auto defined = [](const DevicePlan& plan, const std::string& name) {
    for (const std::string& o : plan.request.options)
      if (o.rfind("-DAMK_" + name + "=", 0) == 0) return std::stoi(o.substr(name.size() + 7));
    return -1;
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
  const auto defined = [](const DevicePlan& plan, const std::string& name) {
    for (const std::string& o : plan.request.options)
      if (o.rfind("-DAMK_" + name + "=", 0) == 0) return std::stoi(o.substr(name.size() + 7));
    return -1;
  };
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

TEST_CASE("plan: the cache through the ring: attention's entries in the stream, chunks of whole rows, and what is refused") {
  const auto defined = [](const DevicePlan& plan, const std::string& name) {
    for (const std::string& o : plan.request.options)
      if (o.rfind("-DAMK_" + name + "=", 0) == 0) return std::stoi(o.substr(name.size() + 7));
    return -1;
  };
  const auto planned = [](const char* name, int chunk, int batch = 1) -> Result<DevicePlan> {
    const ModelSpec spec = spec_named(name);
    ScheduleConfig config;
    config.smem_bytes_per_block = 131072;
    config.attention_kv_block = 128;
    config.kernel.chunk_bytes = chunk;
    config.kernel.cols_per_warp = 128;
    config.kernel.kv_path = KvPath::Ring;
    const auto program = lowered(spec, config, kHopper, batch);
    REQUIRE_MESSAGE(program, program.error().message);
    return plan_device(*program, config, kHopper);
  };
  const auto plan = planned("llama-3.2-1b", 16384);
  REQUIRE_MESSAGE(plan, plan.error().message);
  CHECK(defined(*plan, "CACHE_GROUP") == 64);   // 2 * 64 rows of 128 bytes
  CHECK(defined(*plan, "SLOT_ARRIVALS") == 8);  // 16 KB are eight segments of 128 columns, or four tiles
  std::size_t entries = 0;
  for (const auto& queue : plan->queues) {
    std::uint32_t next = queue.stream_first;
    for (std::uint32_t i = 0; i < queue.task_count; ++i) {
      const auto& task = plan->tasks[queue.task_first + i];
      if (task.op == static_cast<int>(Opcode::Gemv)) CHECK(plan->streams[next++].kind == amk_vm::kStreamWeights);
      if (task.op != static_cast<int>(Opcode::AttentionTile)) continue;
      const auto& s = plan->streams[next++];
      ++entries;
      CHECK(s.kind == amk_vm::kStreamCache);
      CHECK(s.weight == task.layer);
      CHECK(s.bytes == task.head);
      CHECK(s.chunk_bytes == task.split);
    }
    CHECK(next == queue.stream_first + queue.stream_count);
  }
  CHECK(entries == 16 * 8 * 4);  // layers, kv heads, splits of 512 positions
  CHECK(defined(*planned("llama-3.2-1b", 8192), "CACHE_GROUP") == 32);
  CHECK(defined(*planned("llama-3.2-1b", 32768), "CACHE_GROUP") == 128);
  CHECK(defined(*planned("small", 16384), "CACHE_GROUP") == 128);  // rows of 64 bytes: a whole block of positions
  const auto batch = planned("small", 16384, 3);
  REQUIRE_MESSAGE(batch, batch.error().message);
  std::set<std::uint32_t> sequences;
  for (const auto& s : batch->streams)
    if (s.kind % amk_vm::kStreamKinds == amk_vm::kStreamCache) sequences.insert(s.kind / amk_vm::kStreamKinds);
  CHECK(sequences == std::set<std::uint32_t>{0, 1, 2});
  CHECK(rule_of(planned("toy", 16384)) == "kv-ring-needs-mma-attention");
  CHECK(rule_of(planned("llama-3.1-8b", 4096)) == "kv-ring-chunk");  // 16 rows of keys and of values are 8 KB
}

TEST_CASE("plan: several steps a launch: the edges between steps are the SM's own, and the kernel is the same for any number") {
  const ModelSpec spec = spec_named("llama-3.2-1b");
  std::string options;
  for (const int steps : {2, 32}) {
    ScheduleConfig config;
    config.smem_bytes_per_block = 180224;
    config.kernel.tokens_per_launch = steps;
    const auto program = lowered(spec, config, kHopper);
    REQUIRE(program);
    const auto plan = plan_device(*program, config, kHopper);
    REQUIRE_MESSAGE(plan, plan.error().message);
    CHECK(plan->steps == steps);
    const Task& argmax = program->tasks.back();
    REQUIRE(argmax.op == Opcode::Argmax);
    for (std::size_t sm = 0; sm < plan->queues.size(); ++sm) {
      const auto& queue = plan->queues[sm];
      REQUIRE(queue.step_count == 1);
      CHECK(queue.step_first + 1 == queue.wait_count);
      const auto& gate = plan->waits[queue.wait_first + queue.step_first];
      CHECK(gate.counter == static_cast<std::uint32_t>(argmax.signal));
      CHECK(gate.fan_in == 1);
      CHECK(gate.target == 0);
      for (std::uint32_t w = 0; w < queue.step_first; ++w)
        CHECK(plan->waits[queue.wait_first + w].target == plan->waits[queue.wait_first + w].fan_in);
      const TaskId first = program->queues[sm].front();
      CHECK(plan->tasks[queue.task_first].wait_count + 1u == program->tasks[static_cast<std::size_t>(first)].waits.size());
    }
    for (const auto& task : plan->tasks) CHECK((task.fused & amk_vm::kSignalsStep) == 0);
    std::string mine;
    for (const std::string& option : plan->request.options) mine += option + " ";
    CHECK(mine.find("-DAMK_PERSISTENT=1 ") != std::string::npos);
    if (options.empty()) options = mine;
    CHECK(mine == options);
    // The record of the step, a second row of the RoPE table.
    ScheduleConfig one = config;
    one.kernel.tokens_per_launch = 1;
    const auto single_program = lowered(spec, one, kHopper);
    const auto single = plan_device(*single_program, one, kHopper);
    REQUIRE(single);
    CHECK(plan->shared_bytes - single->shared_bytes >= 32 + spec.head_dim * 4 + 16);
    CHECK(plan->shared_bytes - single->shared_bytes <= 32 + spec.head_dim * 4 + 16 + 64);
    for (const auto& queue : single->queues) CHECK(queue.step_count == 0);
    // A program of the other kind than the config's.
    CHECK(rule_of(plan_device(*single_program, config, kHopper)) == "step-sync");
    CHECK(rule_of(plan_device(*program, one, kHopper)) == "step-sync");
  }
}

TEST_CASE("plan: several steps a launch, refused where the order between them is not one that this machine makes") {
  ScheduleConfig config;
  config.kernel.tokens_per_launch = 4;
  config.smem_bytes_per_block = 131072;
  const auto good = lowered(spec_named("small"), config, kHopper);
  REQUIRE(good);
  REQUIRE(plan_device(*good, config, kHopper));
  Program late = *good;  // an edge of its own in the midst of a queue
  Task& second = late.tasks[static_cast<std::size_t>(late.queues[0][1])];
  second.waits.push_back({late.tasks.back().signal, 0});
  CHECK(rule_of(plan_device(late, config, kHopper)) == "step-gate");
  Program early = *good;  // an SM that begins when it likes
  early.tasks[static_cast<std::size_t>(early.queues[0][0])].waits.clear();
  CHECK(rule_of(plan_device(early, config, kHopper)) == "step-gate");

  // Flagged: the cache has no tags. Signals of the LM head, or where an SM has no rows of it those of the appends, are releases; then all wait for
  // them.
  config.kernel.publish = Publish::Flagged;
  config.fusion.combine_o = true;
  for (const char* name : {"smollm2-135m", "small"}) {
    CAPTURE(name);
    const auto program = lowered(spec_named(name), config, kHopper);
    REQUIRE(program);
    const auto plan = plan_device(*program, config, kHopper);
    REQUIRE_MESSAGE(plan, plan.error().message);
    std::set<CounterId> appended_without;
    for (std::size_t sm = 0; sm < plan->queues.size(); ++sm) {
      bool scores = false;
      for (const TaskId id : program->queues[sm]) scores = scores || program->tasks[static_cast<std::size_t>(id)].matrix == Matrix::LmHead;
      for (std::uint32_t i = 0; i < plan->queues[sm].task_count; ++i) {
        const Task& task = program->tasks[static_cast<std::size_t>(program->queues[sm][i])];
        bool appends = false;
        for (const Region& r : task.writes) appends = appends || program->buffers[static_cast<std::size_t>(r.buffer)].space == Space::Kv;
        if (appends && !scores) appended_without.insert(task.signal);
        const bool releases = task.matrix == Matrix::LmHead || task.op == Opcode::Argmax || (appends && !scores);
        CHECK(((plan->tasks[plan->queues[sm].task_first + i].fused & amk_vm::kSignalsStep) != 0) == releases);
      }
    }
    CHECK(appended_without.empty() == (name != std::string("small")));
    for (const auto& queue : plan->queues) CHECK(queue.step_count == 1 + appended_without.size());
  }
  Program unseen = *lowered(spec_named("small"), config, kHopper);  // an append that nobody waits for
  for (Task& t : unseen.tasks) std::erase_if(t.waits, [&](const Wait& w) { return w.target == 0 && w.counter != unseen.tasks.back().signal; });
  CHECK(rule_of(plan_device(unseen, config, kHopper)) == "step-gate");
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
