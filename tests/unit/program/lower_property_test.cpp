// Random configs over all fixture shapes: structure, coverage, meaning and order of every program, by brute force (check_program.h).
#include <doctest/doctest.h>

#include "core/base/parse_json.h"
#include "core/program/lower.h"
#include "core/schedule/random_config.h"
#include "tests/unit/program/check_program.h"
#include "tests/unit/program/specs.h"

using namespace amk;
using namespace amk::test;

namespace {

constexpr int kConfigsPerShape = 60;

LoweringTarget random_target(const ModelSpec& spec, Rng& rng) {
  static constexpr int kSmCounts[] = {1, 2, 3, 5, 8, 13, 20};
  LoweringTarget target;
  target.sm_count = kSmCounts[rng.below(std::size(kSmCounts))];
  target.smem_optin_bytes = 232448;
  target.max_seq = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(spec.max_position)));
  if (rng.below(2) == 0)
    for (int i = 0; i < target.sm_count; ++i) target.sm_weight.push_back(0.5 + rng.uniform());
  return target;
}

NumericFormat random_format(const ModelSpec& spec, Rng& rng) {
  NumericFormat format;
  format.weights = spec.dtype;
  if (rng.below(2) == 0) format.activations = DType::BF16;
  if (rng.below(2) == 0) format.kv = DType::BF16;
  return format;
}

}  // namespace

TEST_CASE("every program of a random config is whole, means what the packing says, and orders every conflict") {
  Rng rng(20240611);
  for (const ModelSpec& spec : fixture_shapes()) {
    for (int i = 0; i < kConfigsPerShape; ++i) {
      const ScheduleConfig config = random_accepted_config(232448, rng);
      const LoweringTarget target = random_target(spec, rng);
      const NumericFormat format = random_format(spec, rng);
      const auto program = lower(spec, config, target, format);
      CAPTURE(spec.name);
      CAPTURE(target.sm_count);
      CAPTURE(target.max_seq);
      const std::string text = canonical_dump(to_json(config));
      CAPTURE(text);
      REQUIRE_MESSAGE(program, program.error().message);
      const auto problems = problems_of(*program, config, format);
      const std::string first = problems.empty() ? "" : problems.front();
      CHECK_MESSAGE(problems.empty(), first);
    }
  }
}

TEST_CASE("explicit maps put named tiles where they say, in a program that is whole") {
  Rng rng(4);
  for (const ModelSpec& spec : fixture_shapes()) {
    ScheduleConfig config = random_accepted_config(232448, rng);
    const LoweringTarget target{7, 232448, 200, {}};
    const auto plain = lower(spec, config, target, {});
    REQUIRE(plain);
    config.sm_assignment = SmAssignment::Explicit;
    for (const Instruction& in : plain->instructions)
      config.explicit_sm[in.name + "." + std::to_string(rng.below(static_cast<std::uint64_t>(in.tiles)))] = static_cast<int>(rng.below(7));
    const auto program = lower(spec, config, target, {});
    REQUIRE_MESSAGE(program, program.error().message);
    const auto problems = problems_of(*program, config, {});
    const std::string first = problems.empty() ? "" : problems.front();
    CHECK_MESSAGE(problems.empty(), first);
  }
}

TEST_CASE("the brute-force check sees damage") {
  const ModelSpec spec = fixture_shapes()[2];
  const auto good = lower(spec, {}, {5, 232448, 200, {}}, {});
  REQUIRE(good);
  REQUIRE(problems_of(*good, {}, {}).empty());
  std::size_t qkv = 0;
  while (good->tasks[qkv].matrix != Matrix::Qkv) ++qkv;
  const auto damaged = [&](auto change) {
    Program bad = *good;
    change(bad);
    return !problems_of(bad, {}, {}).empty();
  };
  CHECK(damaged([&](Program& p) { p.tasks[qkv].waits.clear(); }));
  CHECK(damaged([&](Program& p) { --p.tasks[qkv].waits[0].target; }));
  CHECK(damaged([&](Program& p) { p.tasks[qkv].writes[0].end -= 4; }));
  CHECK(damaged([&](Program& p) { p.tasks[qkv].writes[0].begin += 4, p.tasks[qkv].writes[0].end += 4; }));
  CHECK(damaged([&](Program& p) { p.tasks[qkv].signal = kNone; }));
  CHECK(damaged([&](Program& p) { ++p.counters[1].fan_in; }));
  CHECK(damaged([&](Program& p) { std::swap(p.queues[0][0], p.queues[0][1]); }));
  CHECK(damaged([&](Program& p) { p.streams[0].pop_back(); }));
  // Two vectors that are alive at once on one page: the residual of the first layer and its query.
  CHECK(damaged([&](Program& p) {
    const Buffer& q = p.buffers[static_cast<std::size_t>(p.find_buffer("L0.q"))];
    Buffer& x = p.buffers[static_cast<std::size_t>(p.find_buffer("x0"))];
    x.storage = q.storage;
    x.offset = q.offset;
  }));
}
