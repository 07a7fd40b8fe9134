// Several steps in one launch: the bits of one step at a time, in any interleaving, with the token given or fed back.
#include <doctest/doctest.h>

#include <cstring>

#include "core/base/json.h"
#include "core/schedule/random_config.h"
#include "tests/support/decoded_fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

constexpr int kStepPositions = 80;

Result<Program> program_of(const DecodedFixture& fixture, ScheduleConfig config, int steps, int batch = 1) {
  config.kernel.tokens_per_launch = steps;
  LoweringTarget target{3 * fixture.spec().kv_heads + 1, 232448, kStepPositions, {}};
  target.batch = batch;
  return lower(fixture.spec(), config, target, fixture.exact_format());
}

bool same(const ReferenceVm::Step& a, const ReferenceVm::Step& b) {
  return a.next_token == b.next_token && std::memcmp(a.logits.data(), b.logits.data(), a.logits.size_bytes()) == 0;
}

}  // namespace

TEST_CASE("steps of one launch have the bits of steps launched one by one, fed back or given") {
  Rng rng(91);
  for (const std::string& name : fixture_names()) {
    CAPTURE(name);
    const DecodedFixture fixture = decode_fixture(name, kStepPositions);
    for (int draw = 0; draw < 2; ++draw) {
      ScheduleConfig config = random_accepted_config(232448, rng);
      while (config.kernel.gemv_path == GemvPath::Slices) config = random_accepted_config(232448, rng);  // one token a launch
      const int batch = draw == 0 ? 1 : 3, steps = 5, begin = draw == 0 ? 62 : 0;
      const auto one = program_of(fixture, config, 1, batch), several = program_of(fixture, config, 8, batch);
      REQUIRE(one);
      REQUIRE(several);
      auto singly = ReferenceVm::create(*one, fixture.weights, {3, true});
      auto free = ReferenceVm::create(*several, fixture.weights, {4, true});
      auto told = ReferenceVm::create(*several, fixture.weights, {5, true});
      REQUIRE(singly);
      REQUIRE(free);
      REQUIRE(told);
      for (ReferenceVm* vm : {&*singly, &*free, &*told})
        for (int s = 0; s < batch; ++s) REQUIRE(vm->seed_kv(begin + s, fixture.max_seq, fixture.keys(), fixture.values(), s));
      std::vector<int> first;
      for (int s = 0; s < batch; ++s) first.push_back(fixture.tokens[static_cast<std::size_t>(begin + s)]);
      const auto fed = free->launch(first, steps);
      REQUIRE_MESSAGE(fed, (fed ? "" : fed.error().message));
      REQUIRE(fed->size() == static_cast<std::size_t>(steps * batch));
      std::vector<int> text = first, now = first;
      for (int step = 0; step < steps; ++step) {
        const auto got = singly->step(now);
        REQUIRE(got);
        for (int s = 0; s < batch; ++s) {
          const auto at = static_cast<std::size_t>(step * batch + s);
          CHECK(same((*got)[static_cast<std::size_t>(s)], (*fed)[at]));
          now[static_cast<std::size_t>(s)] = (*got)[static_cast<std::size_t>(s)].next_token;
        }
        if (step + 1 < steps) text.insert(text.end(), now.begin(), now.end());
      }
      const auto given = told->launch(text, steps);
      REQUIRE(given);
      for (std::size_t at = 0; at < fed->size(); ++at) CHECK(same((*given)[at], (*fed)[at]));
      // The next launch goes on where this one ended.
      CHECK(free->position(0) == begin + steps);
      const auto after = free->launch(now, 2), single_after = singly->step(now);
      REQUIRE(after);
      REQUIRE(single_after);
      CHECK(same((*after)[0], (*single_after)[0]));
    }
  }
}

TEST_CASE("a launch's tokens and steps are what the program takes") {
  const DecodedFixture fixture = decode_fixture("llama-gqa", kStepPositions);
  const auto one = program_of(fixture, {}, 1), several = program_of(fixture, {}, 4);
  auto vm = ReferenceVm::create(*one, fixture.weights);
  REQUIRE(vm);
  CHECK(vm->launch(std::vector<int>{1}, 2).error().data["field"] == "steps");
  vm = ReferenceVm::create(*several, fixture.weights);
  REQUIRE(vm);
  CHECK(vm->launch(std::vector<int>{1}, 0).error().data["field"] == "steps");
  CHECK(vm->launch(std::vector<int>{1, 2}, 3).error().data["field"] == "tokens");
  CHECK(vm->launch(std::vector<int>{1, fixture.spec().vocab}, 2).error().data["field"] == "token");
  CHECK(vm->launch(std::vector<int>{1}, kStepPositions + 1).error().data["field"] == "position");
  CHECK(vm->launch(std::vector<int>{1}, 9));  // any number: the proof is for all
  CHECK(vm->step(2));
  CHECK(vm->position() == 10);
  CHECK(dry_run(*several));
}

TEST_CASE("a launch without the edge from argmax to embedding does not pass for one that has it") {
  const DecodedFixture fixture = decode_fixture("llama-gqa", kStepPositions);
  Program good = *program_of(fixture, {}, 4);
  Program bad = good;
  for (Task& t : bad.tasks) std::erase_if(t.waits, [](const Wait& w) { return w.target == 0; });
  auto vm = ReferenceVm::create(good, fixture.weights);
  REQUIRE(vm);
  const auto expected = vm->launch(std::vector<int>{7}, 6);
  REQUIRE(expected);
  std::vector<int> tokens;
  for (const auto& step : *expected) tokens.push_back(step.next_token);
  int different = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto other = ReferenceVm::create(bad, fixture.weights, {seed, true});
    REQUIRE(other);
    const auto got = other->launch(std::vector<int>{7}, 6);
    bool same_tokens = got.has_value();
    for (std::size_t i = 0; same_tokens && i < tokens.size(); ++i) same_tokens = (*got)[i].next_token == tokens[i];
    different += same_tokens ? 0 : 1;
  }
  CHECK(different == 20);
}
