// From programs to device tables: what is covered, and where it lies.
#include <doctest/doctest.h>

#include <map>

#include "core/program/packing.h"
#include "kernels/megakernel/gpu_layout.h"
#include "tests/unit/megakernel_device/plan_cases.h"

using namespace amk;
using namespace amk::test;

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
