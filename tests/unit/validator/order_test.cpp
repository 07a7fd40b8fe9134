// Order, counters and streams: one broken rule a test, in the smallest program that breaks it.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "core/base/json.h"
#include "core/program/lower.h"
#include "core/program/validator.h"
#include "tests/support/programs/program_builder.h"
#include "tests/unit/program/specs.h"
#include "tests/unit/validator/rules.h"

using namespace amk;
using amk::testing::ProgramBuilder;
using test::rule_of;

namespace {

// SM 0 writes x (two tasks, one counter), SM 1 reads all of x and writes the output. Valid.
struct Pair {
  ProgramBuilder b{2, 8};
  BufferId x = b.buffer("x", Space::Activation, 8);
  BufferId out = b.buffer("out", Space::Output, 8);
  CounterId ready = b.counter("ready");
  TaskId first = b.task(0, {{}, {b.part(x, 0, 4)}, {}, ready});
  TaskId second = b.task(0, {{}, {b.part(x, 4, 4)}, {}, ready});
  TaskId reader = b.task(1, {{b.all(x)}, {b.all(out)}, {ready}});
  Program program = b.finish();
  Task& task(TaskId id) { return program.tasks[static_cast<std::size_t>(id)]; }
};

}  // namespace

TEST_CASE("a program whose reader waits for both producers is valid") {
  const Pair pair;
  const Validation v = validate(pair.program, Footprints::Trust);
  CHECK(v.valid());
  CHECK(v.tasks == 3);
  CHECK(v.edges == 1);
}

TEST_CASE("an empty program is valid and a step without output buffers has nothing to write") {
  CHECK(rule_of(ProgramBuilder(3, 8).finish()) == "valid");
}

TEST_CASE("a reader that does not wait is a raw hazard, and the witness names both tasks, the bytes and the edge") {
  Pair pair;
  pair.task(pair.reader).waits.clear();
  const Validation v = validate(pair.program, Footprints::Trust);
  REQUIRE(!v.valid());
  CHECK(v.rejection->rule == "raw");
  const Json& w = v.rejection->witness;
  CHECK(w.at("buffer") == "x");
  CHECK(w.at("task_place").at("id") == pair.reader);
  CHECK((w.at("other_place").at("id") == pair.first || w.at("other_place").at("id") == pair.second));
  CHECK(w.at("missing").get<std::string>().find("->") != std::string::npos);
  CHECK(w.at("bytes").size() == 2);
  CHECK(to_json(*v.rejection).at("rule") == "raw");
}

TEST_CASE("targets other than the fan-in") {
  for (const auto& [target, rule] : std::vector<std::pair<int, std::string>>{
           {-1, "stale-epoch"}, {0, "stale-epoch"}, {1, "partial-wait"}, {2, "valid"}, {3, "unmet-wait"}, {1 << 30, "unmet-wait"}}) {
    Pair pair;
    pair.task(pair.reader).waits[0].target = target;
    CAPTURE(target);
    CHECK(rule_of(pair.program) == rule);
  }
}

TEST_CASE("fan-ins that the program does not have") {
  for (const auto& [fan_in, rule] : std::vector<std::pair<int, std::string>>{{-1, "malformed"}, {1, "stale-epoch"}, {3, "unmet-wait"}}) {
    Pair pair;
    pair.program.counters[0].fan_in = fan_in;
    pair.task(pair.reader).waits[0].target = fan_in;
    CAPTURE(fan_in);
    CHECK(rule_of(pair.program) == rule);
  }
}

TEST_CASE("a counter that passes 31 bits within max_steps overflows; one step less does not") {
  // fan-in 2: value after e steps is 2e; (max_steps + 1) * 2 <= 2^31 - 1.
  Pair pair;
  pair.program.max_steps = (std::int64_t{1} << 30) - 2;
  CHECK(rule_of(pair.program) == "valid");
  pair.program.max_steps = (std::int64_t{1} << 30) - 1;
  CHECK(rule_of(pair.program) == "counter-overflow");
  pair.program.max_steps = std::numeric_limits<std::int64_t>::max();
  CHECK(rule_of(pair.program) == "counter-overflow");
  pair.program.max_steps = 0;
  CHECK(rule_of(pair.program) == "malformed");
}

TEST_CASE("cycles: a task that waits for itself, a queue in the wrong order, two SMs across") {
  SUBCASE("itself") {
    ProgramBuilder b(1, 8);
    const CounterId c = b.counter("c");
    b.task(0, {{}, {}, {c}, c});
    const Validation v = validate(b.finish(), Footprints::Trust);
    REQUIRE(!v.valid());
    CHECK(v.rejection->rule == "cycle");
    CHECK(v.rejection->witness.at("cycle").size() == 1);
  }
  SUBCASE("queue order") {
    ProgramBuilder b(1, 8);
    const CounterId c = b.counter("c");
    b.task(0, {{}, {}, {c}});
    b.task(0, {{}, {}, {}, c});
    const Validation v = validate(b.finish(), Footprints::Trust);
    REQUIRE(!v.valid());
    CHECK(v.rejection->rule == "cycle");
    // The waiter waits for the second task; the second is queued behind the waiter.
    CHECK(v.rejection->witness.at("cycle").size() == 2);
  }
  SUBCASE("across") {
    ProgramBuilder b(3, 8);
    const CounterId c = b.counter("c"), d = b.counter("d"), e = b.counter("e");
    b.task(0, {{}, {}, {d}, c});
    b.task(1, {{}, {}, {c}, d});
    b.task(2, {{}, {}, {d}, e});  // a bystander that can never run is not part of the circle
    const Validation v = validate(b.finish(), Footprints::Trust);
    REQUIRE(!v.valid());
    CHECK(v.rejection->rule == "cycle");
    CHECK(v.rejection->witness.at("cycle").size() == 2);
  }
}

TEST_CASE("order reaches through chains of counters and queues") {
  // writer -> c1 -> relay on SM 1 -> queue -> signaller on SM 1 -> c2 -> reader on SM 2
  ProgramBuilder b(3, 8);
  const BufferId x = b.buffer("x", Space::Activation, 4), out = b.buffer("out", Space::Output, 4);
  const CounterId c1 = b.counter("c1"), c2 = b.counter("c2");
  b.task(0, {{}, {b.all(x)}, {}, c1});
  b.task(1, {{}, {}, {c1}});
  b.task(1, {{}, {}, {}, c2});
  b.task(2, {{b.all(x)}, {b.all(out)}, {c2}});
  Program p = b.finish();
  CHECK(rule_of(p) == "valid");
  std::swap(p.queues[1][0], p.queues[1][1]);  // now the signal comes before the relay
  std::swap(p.tasks[1].queue_pos, p.tasks[2].queue_pos);
  CHECK(rule_of(p) == "raw");
}

TEST_CASE("weight streams") {
  const auto make = [](const std::function<void(Program&)>& change) {
    ProgramBuilder b(1, 8);
    const BufferId w = b.weight("w", Matrix::O, 64, 64);
    const BufferId out = b.buffer("out", Space::Output, 64);
    for (int i = 0; i < 2; ++i) b.task(0, {{b.part(w, i * 2048, 2048)}, {b.part(out, i * 32, 32)}, {}, kNone, Opcode::Gemv, 0, 0, true});
    Program p = b.finish();
    change(p);
    return rule_of(p);
  };
  CHECK(make([](Program&) {}) == "valid");
  CHECK(make([](Program& p) { std::swap(p.streams[0][0], p.streams[0][1]); }) == "ring-deadlock");
  CHECK(make([](Program& p) { p.streams[0].pop_back(); }) == "ring-deadlock");
  CHECK(make([](Program& p) { p.streams[0].clear(); }) == "ring-deadlock");
  CHECK(make([](Program& p) { p.streams[0].push_back(0); }) == "malformed");
  CHECK(make([](Program& p) { p.streams[0].push_back(99); }) == "malformed");
  CHECK(make([](Program& p) { p.streams[0][1] = -7; }) == "ring-deadlock");
  CHECK(make([](Program& p) { p.ring.ring_bytes = p.ring.chunk_bytes; }) == "valid");
  CHECK(make([](Program& p) { p.ring.ring_bytes = p.ring.chunk_bytes - 1; }) == "ring-deadlock");
  CHECK(make([](Program& p) { p.ring.ring_bytes = 0; }) == "ring-deadlock");
  CHECK(make([](Program& p) { p.ring.inflight_chunks = 0; }) == "ring-deadlock");
  CHECK(make([](Program& p) { p.ring.depth = 0; }) == "valid");
  CHECK(make([](Program& p) { p.ring.depth = -1; }) == "malformed");
  CHECK(make([](Program& p) { p.ring.chunk_bytes = 24; }) == "misaligned");
  CHECK(make([](Program& p) { p.tasks[0].ring_bytes -= 16; }) == "malformed");
  CHECK(make([](Program& p) { p.tasks[0].reads[0].begin += 4, p.tasks[0].ring_bytes -= 4; }) == "misaligned");
  CHECK(make([](Program& p) {
          for (Task& t : p.tasks) t.ring_bytes = 0;
          p.streams[0].clear();
          p.ring = Ring{};
        }) == "valid");
}

TEST_CASE("cache rows in the stream: all of a task's splits, at the task's place") {
  const ModelSpec spec = test::fixture_shapes()[2];  // llama-gqa: two layers, two kv heads
  ScheduleConfig config;
  config.kernel.kv_path = KvPath::Ring;
  config.smem_bytes_per_block = 65536;
  LoweringTarget target{5, 232448, 256, {}};
  for (const int batch : {1, 3}) {
    target.batch = batch;
    const auto whole = lower(spec, config, target, {});
    REQUIRE(whole);
    const auto with = [&](const std::function<void(Program&, Task&)>& change) {
      Program p = *whole;
      for (Task& t : p.tasks) {
        if (t.op != Opcode::AttentionTile) continue;
        change(p, t);
        break;
      }
      const Validation v = validate(p);
      return v.valid() ? std::string("valid") : v.rejection->rule;
    };
    CHECK(with([](Program&, Task&) {}) == "valid");
    CHECK(with([](Program&, Task& t) { t.ring_bytes += 16; }) == "malformed");
    CHECK(with([](Program&, Task& t) { t.ring_bytes -= 16; }) == "malformed");
    CHECK(with([](Program&, Task& t) { t.ring_bytes = 0; }) != "valid");
    CHECK(with([](Program& p, Task& t) {
            std::erase(p.streams[static_cast<std::size_t>(t.sm)], p.queues[static_cast<std::size_t>(t.sm)][static_cast<std::size_t>(t.queue_pos)]);
          }) == "ring-deadlock");
    CHECK(with([](Program& p, Task& t) {
            auto& stream = p.streams[static_cast<std::size_t>(t.sm)];
            const auto at = std::find(stream.begin(), stream.end(), p.queues[static_cast<std::size_t>(t.sm)][static_cast<std::size_t>(t.queue_pos)]);
            REQUIRE(at + 1 < stream.end());
            std::iter_swap(at, at + 1);
          }) == "ring-deadlock");
  }
}

TEST_CASE("the witness of a stream in the wrong order is a circle of four") {
  ProgramBuilder b(1, 8);
  const BufferId w = b.weight("w", Matrix::O, 64, 64);
  for (int i = 0; i < 2; ++i) b.task(0, {{b.part(w, i * 2048, 2048)}, {}, {}, kNone, Opcode::Gemv, 0, 0, true});
  Program p = b.finish();
  std::swap(p.streams[0][0], p.streams[0][1]);
  const Validation v = validate(p, Footprints::Trust);
  REQUIRE(!v.valid());
  CHECK(v.rejection->witness.at("cycle").size() == 4);
  CHECK(v.rejection->witness.at("task_place").at("id") == 0);
  CHECK(v.rejection->witness.at("other_place").at("id") == 1);
}
