#include "core/program/lower.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/base/parse_json.h"
#include "core/program/lower_order.h"
#include "core/program/program_json.h"
#include "tests/unit/program/check_program.h"
#include "tests/unit/program/specs.h"

using namespace amk;
using namespace amk::test;

namespace {

const LoweringTarget kH100Like{132, 232448, 2048, {}};

std::string rule_of(const Result<Program>& program) {
  REQUIRE_FALSE(program);
  CHECK(program.error().kind == ErrorKind::Rejected);
  CHECK(program.error().data["message"] == program.error().message);
  CHECK(program.error().data.contains("witness"));
  return program.error().data["rule"].get<std::string>();
}

}  // namespace

TEST_CASE("the default schedule of llama-3.2-1b on 132 SMs, against the figures of its config") {
  const ModelSpec spec = llama_1b();
  const auto program = lower(spec, {}, kH100Like, {});
  REQUIRE(program);
  // 16 layers of qkv, attention, combine, o_proj, gate_up, down; embed, lm_head, argmax.
  CHECK(program->instructions.size() == 16 * 6 + 3);
  CHECK(program->attention.splits == 16);  // min(2048 / 64, 132 / 8)
  CHECK(program->ring.ring_bytes == 196608);
  CHECK(program->max_steps == 2147483647 / 132 - 1);
  const auto shape_of = [&](const char* name) { return program->buffers.at(static_cast<std::size_t>(program->find_buffer(name))).shape; };
  CHECK(shape_of("L3.qkv.w") == std::vector<std::int64_t>{2048 + 2 * 512, 2048});
  CHECK(shape_of("L3.o_proj.w") == std::vector<std::int64_t>{2048, 2048});
  CHECK(shape_of("L3.gate_up.w") == std::vector<std::int64_t>{16384, 2048});
  CHECK(shape_of("L3.down.w") == std::vector<std::int64_t>{2048, 8192});
  CHECK(shape_of("lm_head.w") == std::vector<std::int64_t>{128256, 2048});
  CHECK(shape_of("embedding") == std::vector<std::int64_t>{128256, 2048});
  CHECK(shape_of("kv.k.15") == std::vector<std::int64_t>{8, 2048, 64});
  CHECK(shape_of("rope") == std::vector<std::int64_t>{2048, 2, 32});
  CHECK(shape_of("L3.partials") == std::vector<std::int64_t>{16, 8, 4, 68});
  CHECK(shape_of("argmax_partials") == std::vector<std::int64_t>{132, 2});
  CHECK(shape_of("x32") == std::vector<std::int64_t>{2048});
  CHECK(program->find_buffer("x33") == kNone);
  std::int64_t streamed = 0;
  for (const Task& t : program->tasks) streamed += t.ring_bytes;
  // Matrices of the published shape, bf16: everything but norms.
  CHECK(streamed == 2 * (16 * (3072ll * 2048 + 2048ll * 2048 + 16384ll * 2048 + 2048ll * 8192) + 128256ll * 2048));
  std::vector<std::string> problems;
  check_structure(*program, {}, problems);
  check_coverage(*program, problems);
  check_meaning(*program, {}, problems);
  CHECK(problems == std::vector<std::string>{});
}

TEST_CASE("load_balance: bytes level over SMs in total and after every layer") {
  for (const ModelSpec& spec : {llama_1b(), llama_8b()}) {
    for (int n_tile : {8, 16}) {
      for (int sms : {78, 114, 132, 148}) {
        ScheduleConfig config;
        config.gemv_n_tile = n_tile;
        const auto program = lower(spec, config, {sms, 232448, 2048, {}}, {});
        REQUIRE(program);
        CAPTURE(spec.name);
        CAPTURE(n_tile);
        CAPTURE(sms);
        const std::int64_t widest_tile = std::int64_t{n_tile} * spec.intermediate * 2;  // of down, the longest rows
        std::vector<std::int64_t> bytes(static_cast<std::size_t>(sms), 0);
        std::int64_t total = 0;
        InstructionId last = 0;
        std::int64_t worst_spread = 0;
        for (const Task& t : program->tasks) {
          if (t.instruction != last) {
            const auto [low, high] = std::minmax_element(bytes.begin(), bytes.end());
            worst_spread = std::max(worst_spread, *high - *low);
            last = t.instruction;
          }
          bytes[static_cast<std::size_t>(t.sm)] += t.ring_bytes;
          total += t.ring_bytes;
        }
        CHECK(worst_spread <= 2 * widest_tile);
        const double mean = static_cast<double>(total) / sms;
        const double most = static_cast<double>(*std::max_element(bytes.begin(), bytes.end()));
        CHECK(most / mean <= 1.03);
      }
    }
  }
}

TEST_CASE("equal inputs, equal programs, byte for byte") {
  LoweringTarget target{20, 232448, 300, {}};
  for (int sm = 0; sm < 20; ++sm) target.sm_weight.push_back(1.0 + 0.1 * sm);
  ScheduleConfig config;
  config.sm_assignment = SmAssignment::Measured;
  for (const ModelSpec& spec : fixture_shapes())
    CHECK(canonical_dump(to_json(lower(spec, config, target, {}).value())) == canonical_dump(to_json(lower(spec, config, target, {}).value())));
}

TEST_CASE("waits: only what no other wait implies") {
  using lowering::Dependency;
  lowering::InstructionOrder order(6);
  const auto froms = [](const std::vector<Dependency>& v) {
    std::vector<int> ids;
    for (const Dependency& d : v) ids.push_back(d.from);
    return ids;
  };
  CHECK(order.add({}).empty());                                                                      // 0
  CHECK(froms(order.add({{0, false}})) == std::vector<int>{0});                                      // 1
  CHECK(froms(order.add({{0, false}, {1, true}})) == std::vector<int>{1});                           // 2: 0 is over when 1 starts
  CHECK(froms(order.add({{1, true}, {2, true}})) == std::vector<int>{2});                            // 3: head by head both ways
  CHECK(froms(order.add({{1, false}, {3, true}})) == std::vector<int>{1, 3});                        // 4: all of 1 is more than the path 1-2-3 proves
  CHECK(froms(order.add({{0, false}, {1, false}, {2, false}, {3, false}})) == std::vector<int>{3});  // 5: every task of 2 has a follower in 3
  CHECK(order.before(0, 2));
  CHECK_FALSE(order.before(1, 2));  // per head only
  CHECK_FALSE(order.before(1, 3));
  CHECK(order.before(1, 4));
  CHECK(order.before(2, 5));
  CHECK_FALSE(order.before(5, 2));
}

TEST_CASE("what cannot be lowered is rejected by rule with a witness") {
  const ModelSpec spec = llama_1b();
  ScheduleConfig config;
  CHECK(rule_of(lower(spec, config, {132, 101376, 2048, {}}, {})) == "smem-over-cap");
  config.smem_bytes_per_block = 16384;
  CHECK(rule_of(lower(spec, config, kH100Like, {})) == "ring-holds-two-chunks");
  config = {};
  config.kernel.weight_layout = WeightLayout::Row;
  CHECK(rule_of(lower(spec, config, kH100Like, {})) == "mma-needs-packed");
  config = {};
  config.sm_assignment = SmAssignment::Explicit;
  for (const char* tile : {"L16.qkv.0", "L0.rope.0", "L0.qkv.192", "L0.qkv.9999999", "qkv.0", "argmax.1", "x", "L0.qkv.", "L0.qkv.-1"}) {
    config.explicit_sm = {{tile, 0}};
    const auto program = lower(spec, config, kH100Like, {});
    CHECK(rule_of(program) == "unknown-tile");
    CHECK(program.error().data["witness"]["tile"] == tile);
  }
  config.explicit_sm = {{"L0.qkv.0", 132}};
  CHECK(rule_of(lower(spec, config, kH100Like, {})) == "sm-out-of-range");
  config = {};
  config.sm_assignment = SmAssignment::RoundRobin;
  config.gemv_n_tile = 8;
  ModelSpec huge = llama_8b();
  huge.layers = 1024;
  CHECK(rule_of(lower(huge, config, kH100Like, {})) == "too-many-tasks");
}

TEST_CASE("targets, formats and models outside the range are refused by field") {
  const ModelSpec spec = llama_1b();
  const auto message = [&](const LoweringTarget& target) { return lower(spec, {}, target, {}).error().message; };
  CHECK(message({0, 232448, 2048, {}}) == "target.sm_count is 0; accepted: 1 to 4096");
  CHECK(message({132, 232448, 0, {}}) == "target.max_seq is 0; accepted: 1 to the model's max_position, 131072");
  CHECK(message({132, 232448, 131073, {}}) == "target.max_seq is 131073; accepted: 1 to the model's max_position, 131072");
  CHECK(message({2, 232448, 64, {1.0}}) == "target.sm_weight is 1; accepted: no weights, or one for each of 2 SMs");
  CHECK(message({2, 232448, 64, {1.0, 0.0}}) == "target.sm_weight is 0.0; accepted: positive finite numbers");
  CHECK(lower(spec, {}, kH100Like, {DType::I8, DType::F32, DType::F32}).error().kind == ErrorKind::Unsupported);
  ModelSpec odd = spec;
  odd.head_dim = 20;
  CHECK(lower(odd, {}, kH100Like, {}).error().message == "head_dim is 20; accepted: positive multiples of 8");
}

TEST_CASE("activations follow the format; the residual and what only unfused schedules keep stay fp32") {
  ScheduleConfig config;
  config.fusion = {false, false, false, false, false, false, false, false, false};
  const auto program = lower(fixture_shapes()[0], config, {8, 232448, 300, {}}, {DType::BF16, DType::BF16, DType::F16});
  REQUIRE(program);
  const auto dtype_of = [&](const char* name) { return program->buffers.at(static_cast<std::size_t>(program->find_buffer(name))).dtype; };
  for (const char* name : {"L0.attn_norm.out", "L0.q", "L0.attn", "L0.mlp_norm.out", "L0.act", "final_norm.out"})
    CHECK(dtype_of(name) == DType::BF16);
  for (const char* name : {"x0", "x4", "L0.qkv.out", "L0.k", "L0.partials", "L0.o_proj.out", "L0.gate_up.out", "L0.down.out", "logits"})
    CHECK(dtype_of(name) == DType::F32);
  for (const char* name : {"kv.k.0", "kv.v.1"}) CHECK(dtype_of(name) == DType::F16);
  for (const char* name : {"L0.qkv.w", "L0.attn_norm.w", "embedding"}) CHECK(dtype_of(name) == DType::BF16);
  for (const char* name : {"token", "next_token", "argmax_partials"}) CHECK(dtype_of(name) == DType::I32);
}

TEST_CASE("task names for witnesses, and no crash on a broken program") {
  auto program = lower(llama_1b(), {}, kH100Like, {});
  REQUIRE(program);
  CHECK(task_name(*program, 0) == "embed[rows 0,16)@sm0");
  CHECK(task_name(*program, -1) == "task -1");
  CHECK(task_name(*program, 1 << 30) == "task 1073741824");
  program->tasks[0].instruction = 1 << 20;
  CHECK(task_name(*program, 0) == "embed[rows 0,16)@sm0");
}
