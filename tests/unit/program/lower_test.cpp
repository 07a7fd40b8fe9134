#include <doctest/doctest.h>

#include "core/program/lower.h"
#include "tests/unit/program/specs.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("the default schedule of llama-3.2-1b on 132 SMs") {
  const ModelSpec spec = llama_1b();
  const auto program = lower(spec, {}, {132, 232448, 2048, {}}, {});
  REQUIRE(program);
  // 16 layers of qkv, attention, combine, o_proj, gate_up, down; embed, lm_head, argmax.
  CHECK(program->instructions.size() == 16 * 6 + 3);
  CHECK(program->attention.splits == 16);  // min(2048 / 64, 132 / 8)
  CHECK(program->ring.ring_bytes == 196608);
  const auto at = program->find_buffer("L3.qkv.w");
  REQUIRE(at != kNone);
  CHECK(program->buffers[at].shape == std::vector<std::int64_t>{2048 + 2 * 512, 2048});
}
