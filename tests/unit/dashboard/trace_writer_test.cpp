// What `amk trace` writes is what the page reads.
#include <doctest/doctest.h>

#include "kernels/megakernel/trace_report.h"
#include "server/dashboard/trace.h"
#include "tests/support/programs/tiny_program.h"

using namespace amk;

TEST_CASE("the megakernel's trace keeps its times on the way to the page") {
  Rng rng(3);
  const Program program = amk::testing::tiny_program(rng, {});
  REQUIRE(program.tasks.size() >= 2);
  TokenTrace token;
  // ns; the second publishes while the SM has gone on.
  token.tasks.push_back({TaskId(0), 0, 0, 1000, 200, 300, 500, 0, 1000});
  token.tasks.push_back({TaskId(1), 7, 500, 2500, 0, 0, 2000, 250, 2800});
  token.span_ns = 2800;
  auto trace = dashboard::Trace::parse(chrome_trace(program, token).dump(), "written");
  REQUIRE(trace);
  const Json w = trace->window(0, 0, 100, 100);
  CHECK(w["sms"] == Json{0, 7});
  CHECK(w["begin_us"].get<double>() == doctest::Approx(0));
  CHECK(w["end_us"].get<double>() == doctest::Approx(2.8));
  const std::vector<double> expected{0.2, 0.3, 2.5, 0.25};  // wait-dependency, wait-weights, compute, publish
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(w["totals_us"][i].get<double>() == doctest::Approx(expected[i]));
}
