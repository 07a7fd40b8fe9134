// Candidate and incumbent in turn before a candidate is given up: what is sampled, and what the samples are enough for.
#include "kernels/evaluator/pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/base/json.h"
#include "core/base/random.h"

using namespace amk;

namespace {

// A program on a card whose speed changes while it runs.
struct PacedProgram final : Contestant {
  PacedProgram(char name, double us, std::string& order, double& crowd) : name_(name), us_(us), order_(order), crowd_(crowd) {}
  Result<double> sample_us() override {
    order_ += name_;
    return us_ * crowd_;
  }
  char name_;
  double us_;
  std::string& order_;
  double& crowd_;
};

Pace paced(double candidate_us, double incumbent_us) { return {std::vector<double>(5, candidate_us), std::vector<double>(6, incumbent_us)}; }

}  // namespace

TEST_CASE("pace: the incumbent runs on both sides of every sample of the candidate, after one that is not kept") {
  std::string order;
  double crowd = 1;
  PacedProgram candidate('c', 9000, order, crowd), incumbent('i', 100, order, crowd);
  const auto pace = take_pace(candidate, incumbent);
  REQUIRE(pace);
  CHECK(order == "iicicicicici");
  CHECK(pace->candidate_us == std::vector<double>(5, 9000));
  CHECK(pace->incumbent_us == std::vector<double>(6, 100));
  CHECK(hopeless(*pace));
}

TEST_CASE("pace: slower by the margin beside the incumbent of the same moment, whatever the card's speed") {
  CHECK(hopeless(paced(2101, 100)));
  CHECK_FALSE(hopeless(paced(2100, 100)));  // 2 ms more and not more than that
  CHECK(hopeless(paced(12'001, 3000)));
  CHECK_FALSE(hopeless(paced(12'000, 3000)));  // four times
  for (const double crowd : {0.5, 1.0, 10.0, 1000.0}) {
    CHECK_FALSE(hopeless(paced(100 * crowd, 100 * crowd)));
    CHECK_FALSE(hopeless(paced(390 * crowd, 100 * crowd)));
    CHECK(hopeless(paced(50'000 * crowd, 100 * crowd)));
  }
  CHECK_FALSE(hopeless({{}, {}}));
  CHECK_FALSE(hopeless({std::vector<double>(4, 9000.0), std::vector<double>(5, 100.0)}));  // too few to say so
}

TEST_CASE("pace: a card that is slow by turns") {
  Pace pace = paced(50'000, 100);
  pace.incumbent_us = {100, 3600, 100, 3600, 100, 3600};  // every second launch waits for another program's slice
  CHECK(hopeless(pace));
  pace.candidate_us = {3600, 3600, 3600, 3600, 3600};
  CHECK_FALSE(hopeless(pace));
  pace.incumbent_us = {100, 100, 100, 100, 100, 3600};  // one look at the crowd is enough
  CHECK_FALSE(hopeless(pace));
}

TEST_CASE("pace: of two alike on a crowded card one is called hopeless less than once in a hundred times") {
  // Waits without a mean that settles: a slice or none, and now and then a hundred.
  Rng rng(11);
  const auto wait_us = [&rng] {
    const auto draw = rng.below(10);
    return draw < 5 ? 100.0 : draw < 9 ? 3600.0 : 360'000.0;
  };
  int called = 0, slowest = 0;
  constexpr int kTimes = 20'000;
  for (int i = 0; i < kTimes; ++i) {
    Pace pace;
    for (int k = 0; k < 6; ++k) pace.incumbent_us.push_back(wait_us());
    for (int k = 0; k < 5; ++k) pace.candidate_us.push_back(wait_us());
    called += hopeless(pace) ? 1 : 0;
    bool all = true;  // without the margin, on a clock that never shows the same twice: the bound that the header gives
    double before = rng.uniform();
    for (int k = 0; k < 5; ++k) {
      const double own = rng.uniform(), after = rng.uniform();
      all = all && own > before && own > after;
      before = after;
    }
    slowest += all ? 1 : 0;
  }
  CHECK(called < kTimes / 100);
  CHECK(slowest == doctest::Approx(kTimes * 353792.0 / 39916800.0).epsilon(0.3));
}

TEST_CASE("pace: through its text form it is what it was") {
  const Pace pace = {{1, 2, 3, 4, 5.5}, {6, 7, 8, 9, 10, 11}};
  const auto read = judged_pace(to_json(pace), std::chrono::microseconds(67));
  REQUIRE_MESSAGE(read, read.error().message);
  CHECK(read->candidate_us == pace.candidate_us);
  CHECK(read->incumbent_us == pace.incumbent_us);
  CHECK_FALSE(judged_pace(to_json(pace), std::chrono::microseconds(65)));  // 66.5 us
}
