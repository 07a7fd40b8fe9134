// Programs of several steps a launch, as lowering makes them: proved; and with one edge or page between steps wrong: refused, and broken by the
// adversary, which shares no code with the proof.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "core/base/json.h"
#include "core/program/lower.h"
#include "core/program/validator.h"
#include "tests/support/programs/adversary.h"
#include "tests/unit/program/specs.h"

using namespace amk;
using amk::testing::find_break;

namespace {

Program lowered_steps(int batch = 1, int sms = 5) {
  const ModelSpec spec = test::fixture_shapes()[2];  // llama-gqa: two layers, two kv heads
  LoweringTarget target{sms, 232448, 256, {}};
  target.batch = batch;
  ScheduleConfig config;
  config.kernel.tokens_per_launch = 4;
  auto program = lower(spec, config, target, {});
  REQUIRE(program);
  REQUIRE(program->step_sync == StepSync::Persistent);
  return std::move(*program);
}

Task& step_task(Program& p, Opcode op, Matrix matrix = Matrix::None) {
  for (Task& t : p.tasks)
    if (t.op == op && t.matrix == matrix) return t;
  REQUIRE(false);
  return p.tasks.front();
}

CounterId signal_of(Program& p, Opcode op, Matrix matrix = Matrix::None) { return step_task(p, op, matrix).signal; }

// Every edge from the step before.
void for_step_edges(Program& p, const std::function<void(Task&, Wait&)>& change) {
  for (Task& t : p.tasks)
    for (Wait& w : t.waits)
      if (w.target == 0) change(t, w);
}

struct Judged {
  std::string rule;
  bool broken = false;
};

Judged judge(const Program& p) {
  const Validation v = validate(p);
  Rng rng(5);
  return {v.valid() ? "valid" : v.rejection->rule, find_break(p, rng).has_value()};
}

// `rules`: one of which refuses it.
void refused(const char* what, const std::function<void(Program&)>& change, std::initializer_list<const char*> rules, bool broken = true) {
  Program p = lowered_steps();
  change(p);
  const Judged seen = judge(p);
  CAPTURE(what);
  CAPTURE(seen.rule);
  CHECK(std::find(rules.begin(), rules.end(), seen.rule) != rules.end());
  CHECK(seen.broken == broken);
}

}  // namespace

TEST_CASE("steps of one launch as lowering makes them are valid, and the adversary finds nothing") {
  for (const int batch : {1, 3})
    for (const int sms : {1, 2, 5, 12}) {
      CAPTURE(batch);
      CAPTURE(sms);
      const Judged seen = judge(lowered_steps(batch, sms));
      CHECK(seen.rule == "valid");
      CHECK_FALSE(seen.broken);
    }
}

TEST_CASE("the token's edge dropped: the next step would embed what is not there yet, and overtake everything") {
  refused("no step waits for the one before",
          [](Program& p) {
            for (Task& t : p.tasks) std::erase_if(t.waits, [](const Wait& w) { return w.target == 0; });
          },
          {"stale-epoch", "raw", "war", "waw"});
  refused("the embedding alone does not",
          [](Program& p) {
            for (Task& t : p.tasks)
              if (t.op == Opcode::Embed) std::erase_if(t.waits, [](const Wait& w) { return w.target == 0; });
          },
          {"stale-epoch", "raw", "war", "waw"});
  refused(
      "the argmax does not say that the step is over",
      [](Program& p) {
        Task& t = step_task(p, Opcode::Argmax);
        --p.counters[static_cast<std::size_t>(t.signal)].fan_in;
        t.signal = kNone;
      },
      {"unmet-wait"}, true);
}

TEST_CASE("an epoch that does not advance: a wait of this step that the step before has met") {
  for (const auto& [op, matrix] : {std::pair{Opcode::AttentionTile, Matrix::None}, {Opcode::Gemv, Matrix::Down}, {Opcode::Argmax, Matrix::None}})
    refused("a target of the step before",
            [op = op, matrix = matrix](Program& p) {
              for (Task& t : p.tasks)
                if (t.op == op && t.matrix == matrix)
                  for (Wait& w : t.waits) w.target = 0;
            },
            {"stale-epoch", "raw", "war", "waw"});
}

TEST_CASE("the next step's first writes early: behind what is not yet the end of a step") {
  for (const auto& [op, matrix] :
       {std::pair{Opcode::Embed, Matrix::None}, {Opcode::Gemv, Matrix::Qkv}, {Opcode::Gemv, Matrix::Down}, {Opcode::Gemv, Matrix::LmHead}})
    refused("begins with an earlier counter",
            [op = op, matrix = matrix](Program& p) {
              const CounterId early = signal_of(p, op, matrix);
              for_step_edges(p, [&](Task&, Wait& w) { w.counter = early; });
            },
            {"stale-epoch", "raw", "war", "waw"});
}

TEST_CASE("storage used again a step later, while this step may still read it") {
  // Behind the LM head every activation but its partials is free: a step that began there would be refused for those alone. With the residual on the
  // partials' page as well, for both.
  refused("the residual on the page of the argmax partials, begun behind the LM head",
          [](Program& p) {
            const CounterId scored = signal_of(p, Opcode::Gemv, Matrix::LmHead);
            for_step_edges(p, [&](Task&, Wait& w) { w.counter = scored; });
            Buffer& x0 = p.buffers[static_cast<std::size_t>(step_task(p, Opcode::Embed).writes[0].buffer)];
            const Buffer& partials = p.buffers[static_cast<std::size_t>(step_task(p, Opcode::Argmax).reads[0].buffer)];
            Storage& page = p.storages[static_cast<std::size_t>(partials.storage)];
            page.bytes = std::max(page.bytes, partials.offset + x0.bytes);
            x0.storage = partials.storage;
            x0.offset = partials.offset;
          },
          {"war", "page-alias", "waw", "stale-epoch", "raw"});
}

TEST_CASE("the cache: a row appended and read again in the next step is ordered through the argmax alone") {
  // With the edges from step to step behind the second layer's QKV, its attention of this step and the append of the next meet on one head.
  refused("the next step appends while this one reads",
          [](Program& p) {
            CounterId appended = kNone;
            for (const Task& t : p.tasks)
              if (t.matrix == Matrix::Qkv && t.layer == 1) appended = t.signal;
            for_step_edges(p, [&](Task&, Wait& w) { w.counter = appended; });
          },
          {"stale-epoch", "raw", "war", "waw"});
}

TEST_CASE("the token written where nothing reads it, or at some positions only") {
  Program p = lowered_steps();
  step_task(p, Opcode::Argmax).writes[0].pos_lo = 1;
  CHECK_FALSE(validate(p).valid());
  p = lowered_steps();
  p.step_sync = StepSync::Launch;  // an input that a launch must not write, and edges from a step that launches order
  CHECK_FALSE(validate(p).valid());
  p = lowered_steps(3);
  for (Task& t : p.tasks)
    if (t.op == Opcode::Argmax && t.seq == 2) std::swap(t.writes[0].begin, t.writes[0].end);
  CHECK_FALSE(validate(p).valid());
  p = lowered_steps(3);
  std::vector<Task*> argmaxes;
  for (Task& t : p.tasks)
    if (t.op == Opcode::Argmax) argmaxes.push_back(&t);
  REQUIRE(argmaxes.size() == 3);
  argmaxes[2]->writes = argmaxes[1]->writes;  // another sequence's token
  CHECK_FALSE(validate(p).valid());
}

TEST_CASE("counters' range holds for steps of one launch as for launches") {
  Program p = lowered_steps();
  ++p.max_steps;
  CHECK(validate(p).rejection->rule == "counter-overflow");
}
