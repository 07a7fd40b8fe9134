#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "core/base/random.h"
#include "core/base/stats.h"

using namespace amk;

TEST_CASE("order statistics by hand") {
  const std::vector<double> odd = {5, 1, 3}, even = {4, 1, 3, 2};
  CHECK(median(odd) == 3);
  CHECK(median(even) == 2.5);
  CHECK(quantile(even, 0.25) == doctest::Approx(1.75));
  CHECK(median_absolute_deviation(odd) == 2);
  CHECK(std::isnan(median({})));
}

TEST_CASE("paired_ratio cancels drift that both series share") {
  std::vector<double> incumbent, candidate;
  for (int i = 0; i < 20; ++i) {
    const double drift = 1.0 + 0.05 * i;  // the machine slows down to twice the time
    incumbent.push_back(100 * drift);
    candidate.push_back(95 * drift);
  }
  const RatioInterval r = paired_ratio(incumbent, candidate);
  CHECK(r.ratio == doctest::Approx(100.0 / 95.0).epsilon(1e-9));
  CHECK(decide(r) == Comparison::Faster);
}

TEST_CASE("equal series are inconclusive, and too few pairs prove nothing") {
  Rng rng(7);
  int faster = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> a, b;
    for (int i = 0; i < 12; ++i) {
      a.push_back(100 + rng.normal());
      b.push_back(100 + rng.normal());
    }
    if (decide(paired_ratio(a, b, static_cast<std::uint64_t>(trial))) == Comparison::Faster) ++faster;
  }
  CHECK(faster <= 4);  // 2%: far under the promised 5%
  const std::vector<double> four = {2, 2, 2, 2}, half = {1, 1, 1, 1};
  CHECK(decide(paired_ratio(four, half)) == Comparison::Inconclusive);
}

TEST_CASE("decide needs the whole interval clear of the margin") {
  CHECK(decide({1.02, 1.011, 1.03}) == Comparison::Faster);
  CHECK(decide({1.02, 1.009, 1.03}) == Comparison::Inconclusive);
  CHECK(decide({0.98, 0.97, 0.999}) == Comparison::Slower);
  CHECK(decide({0.99, 0.97, 1.0}) == Comparison::Inconclusive);
}
