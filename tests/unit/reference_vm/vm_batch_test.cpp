// Several sequences in one program: each to the bit as its own program of one sequence, at positions of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "core/base/json.h"
#include "core/schedule/random_config.h"
#include "tests/support/decoded_fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

constexpr int kBatchPositions = 140;

Result<ReferenceVm> batch_vm(const DecodedFixture& fixture, const ScheduleConfig& config, int batch, std::uint64_t interleaving) {
  LoweringTarget target{3 * fixture.spec().kv_heads + 1, 232448, kBatchPositions, {}};
  target.batch = batch;
  AMK_TRY(program, lower(fixture.spec(), config, target, fixture.exact_format()));
  return ReferenceVm::create(program, fixture.weights, {interleaving, true});
}

}  // namespace

TEST_CASE("every sequence of a batch has the bits that it has alone") {
  Rng rng(31);
  for (const std::string& name : fixture_names()) {
    CAPTURE(name);
    const DecodedFixture fixture = decode_fixture(name, kBatchPositions);
    for (int draw = 0; draw < 3; ++draw) {
      const int batch = 2 + static_cast<int>(rng.below(5));
      const ScheduleConfig config = random_accepted_config(232448, rng);
      auto many = batch_vm(fixture, config, batch, 5);
      if (!many) continue;  // a ring that this draw does not hold
      // The cache behind a sequence is the fixture's up to its position; its tokens from there on are its own.
      std::vector<int> begins;
      for (int s = 0; s < batch; ++s) begins.push_back(static_cast<int>(rng.below(kBatchPositions - 4)));
      std::vector<std::vector<int>> tokens(4);
      for (auto& step : tokens)
        for (int s = 0; s < batch; ++s) step.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(fixture.spec().vocab))));
      for (int s = 0; s < batch; ++s)
        REQUIRE(many->seed_kv(begins[static_cast<std::size_t>(s)], fixture.max_seq, fixture.keys(), fixture.values(), s));
      std::vector<ReferenceVm> alone;
      for (int s = 0; s < batch; ++s) {
        auto one = batch_vm(fixture, config, 1, 6);
        REQUIRE(one);
        REQUIRE(one->seed_kv(begins[static_cast<std::size_t>(s)], fixture.max_seq, fixture.keys(), fixture.values()));
        alone.push_back(std::move(*one));
      }
      for (const auto& step : tokens) {
        const auto together = many->step(step);
        REQUIRE_MESSAGE(together, (together ? "" : together.error().message));
        REQUIRE(together->size() == static_cast<std::size_t>(batch));
        for (int s = 0; s < batch; ++s) {
          const auto at = static_cast<std::size_t>(s);
          const auto single = alone[at].step(step[at]);
          REQUIRE(single);
          CHECK(std::memcmp(single->logits.data(), (*together)[at].logits.data(), single->logits.size_bytes()) == 0);
          CHECK(single->next_token == (*together)[at].next_token);
          CHECK(many->position(s) == alone[at].position());
        }
      }
    }
  }
}

TEST_CASE("a batch takes a token for each of its sequences, and seeds each alone") {
  const DecodedFixture fixture = decode_fixture("llama-gqa", kBatchPositions);
  auto vm = batch_vm(fixture, {}, 3, 1);
  REQUIRE(vm);
  CHECK(vm->step(7).error().data["field"] == "tokens");
  CHECK(vm->step(std::vector<int>{1, 2}).error().data["field"] == "tokens");
  CHECK(vm->step(std::vector<int>{1, 2, -1}).error().data["field"] == "token");
  CHECK(vm->seed_kv(3, fixture.max_seq, fixture.keys(), fixture.values(), 3).error().data["field"] == "seq");
  REQUIRE(vm->seed_kv(100, fixture.max_seq, fixture.keys(), fixture.values(), 1));
  CHECK(vm->position(0) == 0);
  CHECK(vm->position(1) == 100);
  const auto step = vm->step(std::vector<int>{fixture.tokens[0], fixture.tokens[100], fixture.tokens[0]});
  REQUIRE(step);
  CHECK(fixture.max_abs_error(0, (*step)[0].logits) <= fixture.bound());
  CHECK(fixture.max_abs_error(100, (*step)[1].logits) <= fixture.bound());
  CHECK(std::equal((*step)[0].logits.begin(), (*step)[0].logits.end(), (*step)[2].logits.begin()));
}
