// Regions against opcodes: programs as lowering makes them pass; each claim that is changed is named.
#include <doctest/doctest.h>

#include <functional>

#include "core/base/json.h"
#include "core/program/lower.h"
#include "core/program/lower_instruction.h"
#include "core/program/validator.h"
#include "tests/unit/program/specs.h"
#include "tests/unit/validator/rules.h"

using namespace amk;

namespace {

Program lowered(const ScheduleConfig& config = {}) {
  const ModelSpec spec = test::fixture_shapes()[2];  // llama-gqa
  auto program = lower(spec, config, {6, 232448, 256, {}}, {});
  REQUIRE(program);
  return std::move(*program);
}

std::string checked_rule(const Program& p) { return test::rule_of(p, Footprints::Check); }

Task* find_task(Program& p, Opcode op, Matrix matrix = Matrix::None) {
  for (Task& t : p.tasks)
    if (t.op == op && t.matrix == matrix) return &t;
  return nullptr;
}

std::string with(const std::function<void(Program&)>& change, const ScheduleConfig& config = {}) {
  Program p = lowered(config);
  change(p);
  return checked_rule(p);
}

ScheduleConfig unfused() {
  ScheduleConfig c;
  c.fusion = {false, false, false, false, false, false, false, false, false};
  return c;
}

}  // namespace

TEST_CASE("lowered programs pass with everything fused and with nothing fused") {
  CHECK(checked_rule(lowered()) == "valid");
  CHECK(checked_rule(lowered(unfused())) == "valid");
}

TEST_CASE("a program of no known model is refused") {
  CHECK(with([](Program& p) { p.model = ModelSpec{}; }) == "footprint");
  CHECK(with([](Program& p) { p.model.max_position = 255; }) == "footprint");
  CHECK(with([](Program& p) { p.model.head_dim = 1 << 30; }) == "footprint");
  CHECK(with([](Program& p) { p.attention.splits = 0; }) == "footprint");
  CHECK(with([](Program& p) { p.attention.splits = 1 << 30; }) == "footprint");
}

TEST_CASE("reads narrower than the opcode needs, which no interleaving can show") {
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::O)->reads[0].end -= 4; }) == "footprint");    // the vector
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::Down)->reads.pop_back(); }) == "footprint");  // the residual
  CHECK(with([](Program& p) { find_task(p, Opcode::AttentionTile)->reads[1].end -= 128; }) == "footprint");    // the last position
  CHECK(with([](Program& p) { find_task(p, Opcode::Argmax)->row_end -= 1; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::SiluMul)->reads[1] = find_task(p, Opcode::SiluMul)->reads[0]; }, unfused()) == "footprint");
}

TEST_CASE("rows, heads and splits that disagree with the regions") {
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::GateUp)->row_end += 8; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::LmHead)->row_begin = -8; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::LmHead)->row_end = 1 << 30; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::LmHead)->partial += 1; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::AttentionTile)->head ^= 1; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::AttentionTile)->head = -1; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::AttentionTile)->split ^= 1; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::AttentionTile)->splits = 1 << 20; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::Rope)->row_begin += 1; }, unfused()) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::Down)->layer = 1; }) == "footprint");
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::Down)->fused |= kFusedNorm; }) == "footprint");
}

TEST_CASE("a split that sleeps where it has keys, or wakes where it has none") {
  const auto tile_of_split_1 = [](Program& p) {
    for (Task& t : p.tasks)
      if (t.op == Opcode::AttentionTile && t.split == 1) return &t;
    return static_cast<Task*>(nullptr);
  };
  for (const int to : {63, 65}) {
    CAPTURE(to);
    CHECK(with([&](Program& p) {
            Task* t = tile_of_split_1(p);
            REQUIRE(t != nullptr);
            REQUIRE(t->pos_lo == 64);
            t->pos_lo = to;
            for (auto* list : {&t->reads, &t->writes})
              for (Region& r : *list) r.pos_lo = to;
          }) == "footprint");
  }
  CHECK(with([](Program& p) { find_task(p, Opcode::Gemv, Matrix::O)->pos_lo = 1; }) == "footprint");
}

TEST_CASE("weights of another layer, and caches in each other's place") {
  CHECK(with([](Program& p) {
          Task* t = find_task(p, Opcode::Gemv, Matrix::Down);
          for (std::size_t b = 0; b < p.buffers.size(); ++b)
            if (p.buffers[b].name == "L1.down.w")
              for (Region& r : t->reads)
                if (p.buffers[static_cast<std::size_t>(r.buffer)].name == "L0.down.w") r.buffer = static_cast<BufferId>(b);
        }) == "footprint");
  CHECK(with([](Program& p) {
          Task* t = find_task(p, Opcode::AttentionTile);
          std::swap(t->reads[1].buffer, t->reads[2].buffer);
        }) == "footprint");
}

namespace {

BufferId named(const Program& p, const std::string& name) {
  const BufferId id = p.find_buffer(name);
  REQUIRE_MESSAGE(id != kNone, name);
  return id;
}

// All tasks of the opcode take `to` for `from`: order and bytes stay as they were wherever `to` was written before.
std::string reading(Opcode op, Matrix matrix, const std::string& from, const std::string& to, const ScheduleConfig& config = {}) {
  Program p = lowered(config);
  const BufferId old = named(p, from), other = named(p, to);
  CHECK(p.buffers[static_cast<std::size_t>(old)].bytes == p.buffers[static_cast<std::size_t>(other)].bytes);
  for (Task& t : p.tasks)
    if (t.op == op && t.matrix == matrix)
      for (Region& r : t.reads)
        if (r.buffer == old) r.buffer = other;
  return checked_rule(p);
}

}  // namespace

TEST_CASE("another vector of the same size, which was written long before") {
  ScheduleConfig own_pages;
  own_pages.page_allocation = PageAllocation::None;
  CHECK(reading(Opcode::Gemv, Matrix::Qkv, "x2", "x1", own_pages) == "footprint");
  CHECK(reading(Opcode::Gemv, Matrix::Down, "x3", "x2", own_pages) == "footprint");
  CHECK(reading(Opcode::Gemv, Matrix::Down, "L1.act", "L0.act", own_pages) == "footprint");
  CHECK(reading(Opcode::Gemv, Matrix::LmHead, "x4", "x3", own_pages) == "footprint");
  CHECK(reading(Opcode::AttentionTile, Matrix::None, "L1.q", "L0.q", own_pages) == "footprint");
  CHECK(reading(Opcode::AttentionTile, Matrix::None, "kv.k.1", "kv.k.0", own_pages) == "footprint");
  ScheduleConfig plain = unfused();
  plain.page_allocation = PageAllocation::None;
  CHECK(reading(Opcode::RmsNorm, Matrix::None, "x3", "x2", plain) == "footprint");
  CHECK(reading(Opcode::Add, Matrix::None, "L1.down.out", "L0.down.out", plain) == "footprint");
  CHECK(reading(Opcode::SiluMul, Matrix::None, "L1.gate_up.out", "L0.gate_up.out", plain) == "footprint");
  CHECK(reading(Opcode::KvAppend, Matrix::None, "L1.k", "L0.k", plain) == "footprint");
}

TEST_CASE("the norm before the MLP with the weights of the norm before attention") {
  CHECK(with(
            [](Program& p) {
              std::swap(p.buffers[static_cast<std::size_t>(named(p, "L0.attn_norm.w"))].binding,
                        p.buffers[static_cast<std::size_t>(named(p, "L0.mlp_norm.w"))].binding);
            },
            unfused()) == "footprint");
}

TEST_CASE("a residual that is not added, in every task of the instruction") {
  CHECK(with([](Program& p) {
          for (Instruction& in : p.instructions)
            if (in.matrix == Matrix::Down) in.fused &= ~std::uint32_t{kFusedResidualAdd};
          for (Task& t : p.tasks)
            if (t.matrix == Matrix::Down) {
              t.fused &= ~std::uint32_t{kFusedResidualAdd};
              t.reads.pop_back();
            }
        }) == "footprint");
}

TEST_CASE("buffers that are not called what the host looks for") {
  CHECK(with([](Program& p) { p.buffers[static_cast<std::size_t>(named(p, "logits"))].name = "scores"; }) == "footprint");
  CHECK(with([](Program& p) {
          std::swap(p.buffers[static_cast<std::size_t>(named(p, "kv.k.0"))].name, p.buffers[static_cast<std::size_t>(named(p, "kv.v.0"))].name);
        }) == "footprint");
}

TEST_CASE("one format for all weights, one for all activations, one for all caches") {
  const auto halved = [](const std::string& name) {
    return [name](Program& p) {
      Buffer& b = p.buffers[static_cast<std::size_t>(named(p, name))];
      REQUIRE(b.dtype == DType::BF16);
      b.dtype = DType::F16;  // as many bytes
    };
  };
  const ModelSpec spec = test::fixture_shapes()[2];
  auto program = lower(spec, {}, {6, 232448, 256, {}}, {DType::BF16, DType::BF16, DType::BF16});
  REQUIRE(program);
  CHECK(checked_rule(*program) == "valid");
  for (const char* name : {"L1.q", "L0.act", "kv.v.1", "L0.down.w", "embedding", "final_norm.w"}) {
    CAPTURE(name);
    Program p = *program;
    halved(name)(p);
    CHECK(checked_rule(p) == "footprint");
  }
}

TEST_CASE("logits that no argmax partial looks at") {
  CHECK(with(
            [](Program& p) {
              Task* t = find_task(p, Opcode::ArgmaxPartial);
              REQUIRE(t != nullptr);
              t->row_end -= 1;
              t->reads[0].end -= 4;
            },
            unfused()) == "unwritten-output");
}

TEST_CASE("a vector of a single instruction that nobody writes, or nobody writes whole") {
  const ModelSpec spec = test::fixture_shapes()[2];
  const auto program = lower_instruction(spec, "down", unfused(), {6, 232448, 256, {}}, {});
  REQUIRE(program);
  CHECK(checked_rule(*program) == "valid");
  Program p = *program;
  Task* t = nullptr;
  for (Task& task : p.tasks)
    if (task.op == Opcode::Add && task.layer == spec.layers - 1) t = &task;
  REQUIRE(t != nullptr);
  REQUIRE(t->row_end - t->row_begin > 8);
  t->row_begin += 8;
  for (auto* list : {&t->reads, &t->writes}) (*list)[0].begin += 32;
  t->reads[1].begin += 32;
  CHECK(checked_rule(p) == "unwritten-output");
}

TEST_CASE("a single instruction's result that another vector may take the place of") {
  const auto program = lower_instruction(test::fixture_shapes()[2], "down", unfused(), {6, 232448, 256, {}}, {});
  REQUIRE(program);
  Program p = *program;
  Buffer& result = p.buffers[static_cast<std::size_t>(named(p, "x2"))];
  const Buffer& later = p.buffers[static_cast<std::size_t>(named(p, "x4"))];
  REQUIRE(result.bytes == later.bytes);
  result.storage = later.storage;  // layer 1 is after layer 0: in good order
  CHECK(checked_rule(p) == "page-alias");
}

TEST_CASE("the witness names the task, the buffer and the bytes") {
  Program p = lowered();
  find_task(p, Opcode::Gemv, Matrix::O)->reads[0].end -= 4;
  const Validation v = validate(p);
  REQUIRE(!v.valid());
  CHECK(v.rejection->witness.at("buffer") == "L0.attn");
  CHECK(v.rejection->witness.at("bytes") == Json::array({0, 508}));
  CHECK(v.rejection->witness.at("task").get<std::string>().find("L0.o_proj") == 0);
}
