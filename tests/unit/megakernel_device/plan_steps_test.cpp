// Several steps a launch.
#include <doctest/doctest.h>

#include <set>

#include "tests/unit/megakernel_device/plan_cases.h"

using namespace amk;
using namespace amk::test;

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
