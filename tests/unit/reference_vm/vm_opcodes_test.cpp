// Every opcode, fused and not; and the regions that each is held to.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/support/decoded_fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

constexpr int kPositions = 140;

bool Fusion::*const kAtoms[] = {&Fusion::norm_qkv,     &Fusion::qkv_rope_append, &Fusion::combine_o,    &Fusion::o_add,         &Fusion::norm_gate_up,
                                &Fusion::gate_up_silu, &Fusion::down_add,        &Fusion::norm_lm_head, &Fusion::lm_head_argmax};

Program lowered(const DecodedFixture& fixture, const ScheduleConfig& config) {
  // SMs enough for three splits of every head.
  auto program = lower(fixture.spec(), config, {3 * fixture.spec().kv_heads + 1, 232448, kPositions, {}}, fixture.exact_format());
  REQUIRE_MESSAGE(program, (program ? "" : program.error().message));
  return *program;
}

// From an empty cache, and with KV behind it so that three splits are active.
void check_against_oracle(const DecodedFixture& fixture, const Program& program) {
  auto vm = ReferenceVm::create(program, fixture.weights, {3, true});
  REQUIRE_MESSAGE(vm, (vm ? "" : vm.error().message));
  for (int start : {0, 63, 130}) {
    REQUIRE(vm->seed_kv(start, fixture.max_seq, fixture.keys(), fixture.values()));
    for (int p = start; p < start + 3; ++p) {
      const auto step = vm->step(fixture.tokens[static_cast<std::size_t>(p)]);
      REQUIRE_MESSAGE(step, (step ? "" : step.error().message));
      CHECK(fixture.max_abs_error(p, step->logits) <= fixture.bound());
      CHECK(step->next_token == argmax(step->logits));
    }
  }
}

}  // namespace

TEST_CASE("each fusion on its own and all together, on every architecture") {
  for (const std::string& name : fixture_names()) {
    CAPTURE(name);
    const DecodedFixture fixture = decode_fixture(name, kPositions);
    std::set<Opcode> seen;
    for (int variant = -2; variant < static_cast<int>(std::size(kAtoms)); ++variant) {
      CAPTURE(variant);
      ScheduleConfig config;
      for (auto atom : kAtoms) config.fusion.*atom = variant == -1;
      if (variant >= 0) config.fusion.*kAtoms[variant] = true;
      const Program program = lowered(fixture, config);
      for (const Task& task : program.tasks) seen.insert(task.op);
      check_against_oracle(fixture, program);
    }
    ScheduleConfig attention_o;
    attention_o.fusion.attention_combine = attention_o.fusion.combine_o = true;
    attention_o.kernel.publish = Publish::Flagged;
    attention_o.kernel.gemv_path = GemvPath::Slices;
    const Program program = lowered(fixture, attention_o);
    for (const Task& task : program.tasks) seen.insert(task.op);
    check_against_oracle(fixture, program);
    CHECK(seen.size() == 12);  // every opcode
  }
}

TEST_CASE("a region that is not what its opcode takes is refused, naming the task") {
  const DecodedFixture fixture = decode_fixture("llama-mha-bias", 1);
  ScheduleConfig unfused;
  for (auto atom : kAtoms) unfused.fusion.*atom = false;
  ScheduleConfig fused_combine;
  fused_combine.fusion.combine_o = true;
  int damaged = 0;
  ScheduleConfig attention_o = fused_combine;
  attention_o.fusion.attention_combine = true;
  attention_o.kernel.publish = Publish::Flagged;
  attention_o.kernel.gemv_path = GemvPath::Slices;
  for (const ScheduleConfig& config : {ScheduleConfig{}, unfused, fused_combine, attention_o}) {
    const Program good = lowered(fixture, config);
    std::set<std::pair<int, std::uint32_t>> forms;
    for (TaskId id = 0; id < static_cast<TaskId>(good.tasks.size()); ++id) {
      const Task& task = good.tasks[static_cast<std::size_t>(id)];
      if (!forms.insert({static_cast<int>(task.op) * 16 + static_cast<int>(task.matrix), task.fused}).second) continue;
      CAPTURE(to_string(task.op));
      const auto expect_refused = [&](const std::function<void(Task&)>& damage) {
        Program bad = good;
        damage(bad.tasks[static_cast<std::size_t>(id)]);
        const auto vm = ReferenceVm::create(bad, fixture.weights);
        REQUIRE_FALSE(vm);
        CHECK(vm.error().kind == ErrorKind::InvalidArgument);
        CHECK(vm.error().message.find(task_name(good, id)) != std::string::npos);
        CHECK_FALSE(dry_run(bad));
        ++damaged;
      };
      for (std::size_t r = 0; r < task.reads.size(); ++r) {
        CAPTURE(r);
        const int bytes = dtype_bytes(good.buffers[static_cast<std::size_t>(task.reads[r].buffer)].dtype);
        expect_refused([&](Task& t) { t.reads[r].end -= bytes; });
        expect_refused([&](Task& t) { t.reads[r].end = good.buffers[static_cast<std::size_t>(t.reads[r].buffer)].bytes + bytes; });
        expect_refused([&](Task& t) { t.reads.erase(t.reads.begin() + static_cast<std::ptrdiff_t>(r)); });
      }
      for (std::size_t r = 0; r < task.writes.size(); ++r) {
        CAPTURE(r);
        const int bytes = dtype_bytes(good.buffers[static_cast<std::size_t>(task.writes[r].buffer)].dtype);
        expect_refused([&](Task& t) { t.writes[r].end -= bytes; });
        expect_refused([&](Task& t) { t.writes[r].begin -= bytes; });
        expect_refused([&](Task& t) { t.writes.push_back(t.writes[r]); });
      }
      expect_refused([&](Task& t) { t.reads.push_back(t.reads[0]); });
      expect_refused([&](Task& t) { t.reads[0].buffer = 100000; });
    }
  }
  CHECK(damaged > 200);
}

TEST_CASE("a program whose queues or streams make no sense is refused") {
  const DecodedFixture fixture = decode_fixture("llama-gqa", 1);
  const Program good = lowered(fixture, {});
  const std::function<void(Program&)> damages[] = {
      [](Program& p) { p.queues[0].push_back(p.queues[1][0]); },
      [](Program& p) { p.queues[0].pop_back(); },
      [](Program& p) { p.queues[0][0] = -1; },
      [](Program& p) { p.queues.pop_back(); },
      [](Program& p) { p.streams[0].push_back(1000000); },
      [](Program& p) { p.tasks[0].signal = 1000000; },
      [](Program& p) {
        p.tasks.back().waits.push_back({-1, 1});
      },
      [](Program& p) { p.sm_count = 0; },
      [](Program& p) { p.buffers[0].storage = -1; },
      [](Program& p) { p.buffers[0].offset = std::int64_t{1} << 62; },
      [](Program& p) { p.storages[0].bytes = -1; },
      [](Program& p) { p.max_seq = 0; },
  };
  int index = 0;
  for (const auto& damage : damages) {
    CAPTURE(index++);
    Program bad = good;
    damage(bad);
    CHECK_FALSE(ReferenceVm::create(bad, fixture.weights));
  }
}

TEST_CASE("dry_run takes a program of any size") {
  ModelSpec spec;
  spec.name = "eight-billion";
  spec.hidden = 4096;
  spec.intermediate = 14336;
  spec.layers = 32;
  spec.heads = 32;
  spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.vocab = 128256;
  spec.max_position = 131072;
  const auto program = lower(spec, {}, {132, 232448, 4096, {}}, {DType::BF16, DType::BF16, DType::BF16});
  REQUIRE(program);
  CHECK(dry_run(*program));
}
