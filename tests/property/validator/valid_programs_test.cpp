// No false rejects: whatever lowering makes of a valid config is valid, and so are decoder-shaped programs by hand in both kinds of step order.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/program/validator.h"
#include "tests/support/programs/program_builder.h"
#include "tests/support/programs/random_program.h"

using namespace amk;
using namespace amk::testing;

TEST_CASE("random configs of random models lower to programs that validate") {
  Rng rng(20251);
  int programs = 0;
  int refused = 0;
  while (programs < 2000) {
    const std::optional<RandomProgram> drawn = random_program(rng, {});
    if (!drawn) {
      REQUIRE(++refused < 2000);
      continue;
    }
    ++programs;
    const Validation v = validate(drawn->program);
    if (!v.valid()) {
      CAPTURE(to_json(drawn->config).dump());
      CAPTURE(to_json(*v.rejection).dump());
      REQUIRE(v.valid());
    }
  }
  MESSAGE(programs << " programs, " << refused << " draws refused by lowering");
}

TEST_CASE("on a whole device too") {
  Rng rng(20252);
  for (int programs = 0; programs < 12;) {
    const std::optional<RandomProgram> drawn = random_program(rng, {132, 3, 1024, 4096});
    if (!drawn) continue;
    ++programs;
    const Validation v = validate(drawn->program);
    if (!v.valid()) {
      CAPTURE(to_json(*v.rejection).dump());
      REQUIRE(v.valid());
    }
  }
}

TEST_CASE("decoder-shaped programs, steps ordered by launches and by counters") {
  for (const StepSync sync : {StepSync::Launch, StepSync::Persistent})
    for (const int sms : {1, 2, 3, 4, 7, 16})
      for (const bool pages : {false, true})
        for (const int splits : {1, 2, 3})
          for (const bool ring : {false, true}) {
            SyntheticShape shape;
            shape.sms = sms;
            shape.shared_pages = pages;
            shape.splits = splits;
            shape.ring = ring;
            shape.step_sync = sync;
            const Validation v = validate(synthetic_decoder(shape), Footprints::Trust);
            if (!v.valid()) CAPTURE(to_json(*v.rejection).dump());
            CHECK(v.valid());
          }
}
