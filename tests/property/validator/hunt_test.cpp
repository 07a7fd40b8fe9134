// A sample of the hunt for holes; bench/run validator_hunt goes on for as long as it is told.
#include <doctest/doctest.h>

#include "tests/support/hunt/hunt.h"

using namespace amk::testing;

TEST_CASE("damaged programs that are accepted compute what they did, in every interleaving") {
  HuntOptions options;
  options.seed = 8;
  options.mutants = 6000;
  options.mutants_per_program = 100;
  options.complain = [](const std::string& report) { FAIL_CHECK(report); };
  const HuntResult result = hunt(options);
  CHECK(result.mutants == options.mutants);
  CHECK(result.wrong() == 0);
  CHECK(result.programs >= 20);
  CHECK(result.instructions >= 5);
  // Damage of every sort was done, and some of it was harmless.
  CHECK(result.refused.size() >= 10);  // rules
  CHECK(result.same > 300);
}
