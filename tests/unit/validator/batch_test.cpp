// Batches whose sequences are mixed up: each is refused, by the pass that can see it.
#include <doctest/doctest.h>

#include <functional>

#include "core/base/json.h"
#include "core/program/lower.h"
#include "core/program/validator.h"
#include "tests/unit/program/specs.h"
#include "tests/unit/validator/rules.h"

using namespace amk;

namespace {

Program lowered_batch() {
  const ModelSpec spec = test::fixture_shapes()[2];  // llama-gqa: two kv heads
  LoweringTarget target{12, 232448, 256, {}};
  target.batch = 3;
  auto program = lower(spec, {}, target, {});
  REQUIRE(program);
  REQUIRE(program->attention.split_step < program->attention.splits);
  return std::move(*program);
}

std::string rule_with(const std::function<void(Program&)>& change) {
  Program p = lowered_batch();
  change(p);
  return test::rule_of(p, Footprints::Check);
}

Task& batch_task(Program& p, Opcode op, int seq = 0) {
  for (Task& t : p.tasks)
    if (t.op == op && t.seq == seq) return t;
  REQUIRE(false);
  return p.tasks.front();
}

std::int64_t slice(const Program& p, const Region& r) { return p.buffers[static_cast<std::size_t>(r.buffer)].bytes / p.batch; }

void move(Program& p, Region& r, int sequences) {
  r.begin += sequences * slice(p, r);
  r.end += sequences * slice(p, r);
}

}  // namespace

TEST_CASE("a batch as lowering makes it is valid") {
  CHECK(rule_with([](Program&) {}) == "valid");
}

TEST_CASE("attention of one sequence with another's query, cache or partial") {
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(rule_with([i](Program& p) { move(p, batch_task(p, Opcode::AttentionTile, 1).reads[i], 1); }) == "footprint");
  CHECK(rule_with([](Program& p) { move(p, batch_task(p, Opcode::AttentionTile, 1).writes[0], -1); }) == "footprint");
  CHECK(rule_with([](Program& p) { batch_task(p, Opcode::AttentionTile, 1).seq = 2; }) == "footprint");
  CHECK(rule_with([](Program& p) { batch_task(p, Opcode::AttentionTile, 1).seq = 3; }) == "footprint");
  CHECK(rule_with([](Program& p) { batch_task(p, Opcode::AttentionTile, 1).seq = -1; }) == "footprint");
}

TEST_CASE("argmax from or to another sequence's place") {
  CHECK(rule_with([](Program& p) { move(p, batch_task(p, Opcode::Argmax, 2).writes[0], -1); }) == "footprint");
  CHECK(rule_with([](Program& p) { move(p, batch_task(p, Opcode::Argmax, 1).reads[0], 1); }) == "footprint");
  CHECK(rule_with([](Program& p) { batch_task(p, Opcode::Argmax, 1).seq = 0; }) == "footprint");
}

TEST_CASE("a cache row appended to another sequence's cache, a row twice, a row never") {
  const auto append = [](Program& p, const std::function<void(Task&, std::size_t)>& change) {
    for (Task& t : p.tasks)
      for (std::size_t i = 0; i < t.writes.size(); ++i)
        if (p.buffers[static_cast<std::size_t>(t.writes[i].buffer)].space == Space::Kv) return change(t, i);
    REQUIRE(false);
  };
  CHECK(rule_with([&](Program& p) { append(p, [&](Task& t, std::size_t i) { move(p, t.writes[i], 1); }); }) == "footprint");
  CHECK(rule_with([&](Program& p) {
          append(p, [](Task& t, std::size_t i) { t.writes.erase(t.writes.begin() + static_cast<std::ptrdiff_t>(i)); });
        }) == "footprint");
  CHECK(rule_with([&](Program& p) { append(p, [](Task& t, std::size_t i) { t.writes.push_back(t.writes[i]); }); }) == "footprint");
}

TEST_CASE("one sequence's attention that does not wait") {
  CHECK(rule_with([](Program& p) { batch_task(p, Opcode::AttentionTile, 2).waits.clear(); }) == "raw");
  CHECK(rule_with([](Program& p) { batch_task(p, Opcode::Argmax, 1).waits.clear(); }) == "raw");
}

TEST_CASE("splits that nobody takes, or that tasks of a batch take twice") {
  CHECK(rule_with([](Program& p) { p.attention.split_step += 1; }) == "footprint");
  CHECK(rule_with([](Program& p) { p.attention.split_step = 0; }) == "footprint");
  CHECK(rule_with([](Program& p) { p.attention.split_step = p.attention.splits + 1; }) == "footprint");
  CHECK(rule_with([](Program& p) { batch_task(p, Opcode::AttentionTile, 1).split = p.attention.split_step; }) == "footprint");
}

TEST_CASE("a batch of none or of too many") {
  CHECK(rule_with([](Program& p) { p.batch = 0; }) == "malformed");
  CHECK(rule_with([](Program& p) { p.batch = 9; }) == "malformed");
  CHECK(rule_with([](Program& p) { p.batch = 2; }) == "footprint");
  CHECK(rule_with([](Program& p) { p.batch = 1; }) == "footprint");
}

TEST_CASE("a sum in the place of its own summand, and one in the place of the next sequence's") {
  const auto with = [](const char* result, const char* operand, int sequences) {
    ScheduleConfig unfused;
    unfused.fusion = {false, false, false, false, false, false, false, false, false};
    unfused.page_allocation = PageAllocation::None;
    LoweringTarget target{1, 232448, 256, {}};
    target.batch = 5;
    Program p = lower(test::fixture_shapes()[2], unfused, target, {}).value();
    const Buffer& summand = p.buffers[static_cast<std::size_t>(p.find_buffer(operand))];
    Buffer& sum = p.buffers[static_cast<std::size_t>(p.find_buffer(result))];
    const std::int64_t by = sequences * summand.bytes / p.batch;
    REQUIRE(by % 256 == 0);
    sum.storage = summand.storage;
    sum.offset = by;
    p.storages[static_cast<std::size_t>(sum.storage)].bytes += by;
    return p;
  };
  CHECK(test::rule_of(with("x1", "x0", 0), Footprints::Check) == "valid");
  // Bytes of whole regions all the same; but sequence 0's sum is there before sequence 2's summand has been read.
  CHECK(test::rule_of(with("x1", "x0", 2), Footprints::Check) == "page-alias");
  CHECK(test::rule_of(with("x1", "x0", 4), Footprints::Check) == "page-alias");
  CHECK(test::rule_of(with("L0.act", "L0.gate_up.out", 2), Footprints::Check) == "page-alias");  // sequence 0's product over sequence 2's gate
}
