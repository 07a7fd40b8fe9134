// The read bandwidth of a card is measured once and kept: what was measured beside other programs must not be.
#include <doctest/doctest.h>

#include <vector>

#include "kernels/evaluator/gpu_report.h"

using namespace amk;

TEST_CASE("read bandwidth: the shortest sample, kept when most took as long") {
  constexpr std::size_t kBytes = 1'000'000'000;
  const auto of = [](const std::vector<double>& us) { return read_bandwidth_of(us, kBytes).value(); };
  const ReadBandwidth quiet = of({221, 222, 220, 224, 230});
  CHECK(quiet.gbs == doctest::Approx(1e9 / 220e-6 / 1e9));
  CHECK(quiet.lasting);
  CHECK(of({221, 222, 220, 900, 5000}).lasting);  // twice something came between
  // Every launch waits for others' slices of the card, now and then for none.
  const ReadBandwidth crowded = of({4220, 220, 6300, 2200, 8100});
  CHECK(crowded.gbs == doctest::Approx(quiet.gbs));
  CHECK_FALSE(crowded.lasting);
  CHECK_FALSE(of({4220, 3900, 6300, 2200, 8100}).lasting);
  CHECK(of({0, 220, 0, 221, -1}).gbs == doctest::Approx(quiet.gbs));
  CHECK(read_bandwidth_of(std::vector<double>{0, 0}, kBytes).error().kind == ErrorKind::Unavailable);
  CHECK(read_bandwidth_of({}, kBytes).error().kind == ErrorKind::Unavailable);
}
