// Small programs, every interleaving: the validator, and the adversary that judges it elsewhere, against the whole truth.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "core/base/json.h"
#include "core/program/validator.h"
#include "tests/support/programs/adversary.h"
#include "tests/support/programs/tiny_program.h"

using namespace amk;
using namespace amk::testing;

namespace {

// Does any interleaving break it, at any launch position?
std::optional<Breakage> truth(const Program& p) {
  if (auto b = static_breakage(p)) return b;
  const int steps = std::min(p.step_sync == StepSync::Launch ? 2 : 3, p.max_seq);
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch)
    for (std::int32_t position = 0; position + steps <= p.max_seq; ++position) {
      Simulator simulator(p, position, epoch, steps);
      bool complete = false;
      auto b = simulator.explore(400000, complete);
      REQUIRE(complete);
      if (b) return b;
    }
  return {};
}

}  // namespace

TEST_CASE("no program that some interleaving breaks is accepted, and the adversary finds what breaks") {
  Rng rng(4711);
  constexpr int kPrograms = 20000;
  int accepted = 0, broken = 0, missed = 0, strict = 0;
  std::map<std::string, int> strict_rules;
  for (int i = 0; i < kPrograms; ++i) {
    const Program p = tiny_program(rng, {});
    const Validation v = validate(p, Footprints::Trust);
    const std::optional<Breakage> b = truth(p);
    const bool found = find_break(p, rng, {10, 4, true, {}}).has_value();
    accepted += v.valid();
    broken += b.has_value();
    missed += b && !found;
    if (v.valid() && b) {
      CAPTURE(i);
      CAPTURE(b->what);
      CHECK(!b);
    }
    if (!b) CHECK(!found);  // the adversary takes a path that exists
    if (!v.valid() && !b) ++strict, ++strict_rules[v.rejection->rule];
  }
  CHECK(accepted > kPrograms / 10);  // both answers are well represented
  CHECK(broken > kPrograms / 2);
  // One held task at a time is nearly all it takes.
  CHECK(missed * 2000 <= broken);
  // Refused although nothing breaks: unordered writes that nobody reads, or steps of a launch at positions that never meet (docs/validator.md).
  CHECK(strict * 50 <= kPrograms);
  for (const auto& [rule, count] : strict_rules) {
    CAPTURE(rule);
    CHECK((rule == "raw" || rule == "war" || rule == "waw" || rule == "unwritten-output" || rule == "stale-epoch"));
  }
  MESSAGE(accepted << " accepted, " << broken << " broken by some interleaving, " << missed << " of them missed by the adversary, " << strict
                   << " refused that nothing breaks");
}
