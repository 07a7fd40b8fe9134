// What goes through the ring on older devices, and the cache where it goes through it.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/unit/megakernel_device/plan_cases.h"

using namespace amk;
using namespace amk::test;

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

TEST_CASE("plan: the cache through the ring: attention's entries in the stream, chunks of whole rows, and what is refused") {
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
