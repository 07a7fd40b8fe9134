// What the compiler is told is the same in any locale: the key of a built kernel, and a number that C++ can read.
#include <doctest/doctest.h>

#include "tests/support/comma_locale.h"
#include "tests/unit/megakernel_device/plan_cases.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("a plan's compilation is the same in a locale with a comma") {
  const ModelSpec spec = spec_named("smollm2-135m");  // epsilon 1e-5
  const ScheduleConfig config;
  const auto program = lowered(spec, config, kHopper);
  REQUIRE(program);
  const auto options = [&] { return plan_device(*program, config, kHopper).value().request.options; };
  const auto plain = options();
  CHECK(std::count(plain.begin(), plain.end(), "-DAMK_RMS_EPS=1.000000000e-05f") == 1);
  const CommaLocale comma;
  if (!comma.there()) MESSAGE("skipped: no locale with a comma");
  CHECK(options() == plain);
}
