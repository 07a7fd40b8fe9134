// Any valid config of any architecture computes what the oracle computes, in any order of execution.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/base/hash.h"
#include "core/program/validator.h"
#include "core/schedule/random_config.h"
#include "tests/support/decoded_fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

constexpr int kPositions = 420;  // beyond two KV blocks of 128 and one of 256
constexpr std::int64_t kSmemCap = 232448;

// 200 is the promise of docs/reference-vm.md; unoptimised builds with sanitizers run a sample.
int configs_per_fixture() {
#ifdef NDEBUG
  constexpr int kDefault = 200;
#else
  constexpr int kDefault = 20;
#endif
  const char* text = std::getenv("AMK_VM_CONFIGS");
  return text == nullptr ? kDefault : std::max(1, std::atoi(text));
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Draw {
  ScheduleConfig config;
  LoweringTarget target;
  int start = 0, steps = 0;
  std::uint64_t seeds[2] = {0, 0};
};

Draw draw(std::uint64_t seed) {
  Rng rng(seed);
  Draw d;
  d.config = random_accepted_config(kSmemCap, rng);
  d.target.sm_count = 1 + static_cast<int>(rng.below(24));
  d.target.smem_optin_bytes = kSmemCap;
  d.target.max_seq = std::max(8, 1 + static_cast<int>(rng.below(kPositions)));
  if (d.config.sm_assignment == SmAssignment::Measured)
    for (int sm = 0; sm < d.target.sm_count; ++sm) d.target.sm_weight.push_back(0.5 + rng.uniform());
  d.steps = 2 + static_cast<int>(rng.below(4));
  // A third from an empty cache; the others with the oracle's KV behind them, half of those across a block's edge.
  const int last_start = d.target.max_seq - d.steps;
  const int edge = d.config.attention_kv_block * (1 + static_cast<int>(rng.below(3)));
  switch (rng.below(3)) {
    case 0:
      d.start = 0;
      break;
    case 1:
      d.start = static_cast<int>(rng.below(static_cast<std::uint64_t>(last_start) + 1));
      break;
    default:
      d.start = std::min(last_start, edge - 1 - static_cast<int>(rng.below(static_cast<std::uint64_t>(d.steps))));
      break;
  }
  d.seeds[0] = rng.next();
  d.seeds[1] = rng.next();
  return d;
}

// Logits of every step; the vector of the first run is checked against the oracle, the second run against the first.
std::vector<std::vector<float>> run(const DecodedFixture& fixture, const Program& program, const Draw& d, std::uint64_t interleaving_seed) {
  auto vm = ReferenceVm::create(program, fixture.weights, {interleaving_seed, true});
  REQUIRE_MESSAGE(vm, (vm ? "" : vm.error().message));
  REQUIRE(vm->seed_kv(d.start, fixture.max_seq, fixture.keys(), fixture.values()));
  std::vector<std::vector<float>> all;
  for (int i = 0; i < d.steps; ++i) {
    auto step = vm->step(fixture.tokens[static_cast<std::size_t>(d.start + i)]);
    REQUIRE_MESSAGE(step, (step ? "" : step.error().message));
    CHECK(step->next_token == argmax(step->logits));
    all.emplace_back(step->logits.begin(), step->logits.end());
  }
  return all;
}

}  // namespace

TEST_CASE("random valid configs match the oracle to fp32 rounding, bitwise the same in every interleaving") {
  const int configs = configs_per_fixture();
  for (const std::string& name : fixture_names()) {
    CAPTURE(name);
    const DecodedFixture fixture = decode_fixture(name, kPositions);
    double worst = 0;
    for (int i = 0; i < configs; ++i) {
      const std::uint64_t seed = mix64(static_cast<std::uint64_t>(i) * 1000003u + hash64(name));
      CAPTURE(seed);
      const Draw d = draw(seed);
      const std::string config_text = to_json(d.config).dump();
      CAPTURE(config_text);
      CAPTURE(d.start);
      const auto program = lower(fixture.spec(), d.config, d.target, fixture.exact_format());
      REQUIRE_MESSAGE(program, (program ? "" : program.error().message));
      const Validation proof = validate(*program);
      REQUIRE_MESSAGE(proof.valid(), (proof.valid() ? "" : proof.rejection->message));
      const auto first = run(fixture, *program, d, d.seeds[0]);
      const auto second = run(fixture, *program, d, d.seeds[1]);
      for (int s = 0; s < d.steps; ++s) {
        const double error = fixture.max_abs_error(d.start + s, first[static_cast<std::size_t>(s)]);
        CHECK(error <= fixture.bound());
        if (!(error <= worst)) worst = error;
        CHECK(same_bits(first[static_cast<std::size_t>(s)], second[static_cast<std::size_t>(s)]));
      }
    }
    MESSAGE(name << ": " << configs << " configs, worst error " << worst / fixture.logit_std << " of the logits' standard deviation");
  }
}
