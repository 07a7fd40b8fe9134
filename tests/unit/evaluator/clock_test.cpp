// The clock's rules with a fake card: order, pairing, dropped rounds, warm-up, bounded time, equals.
#include "kernels/evaluator/clock.h"

#include <doctest/doctest.h>

#include <string>

#include "core/base/json.h"
#include "core/base/random.h"
#include "kernels/evaluator/nvml.h"

using namespace amk;

namespace {

class Fake final : public Contestant {
 public:
  Fake(char name, std::string& log, std::function<Result<double>(int)> time) : name_(name), log_(log), time_(std::move(time)) {}
  Result<double> sample_us() override {
    log_ += name_;
    return time_(calls_++);
  }

 private:
  char name_;
  std::string& log_;
  std::function<Result<double>(int)> time_;
  int calls_ = 0;
};

class FakeMonitor final : public Monitor {
 public:
  explicit FakeMonitor(std::function<std::optional<ClockReading>(int)> reading =
                           [](int) {
                             return ClockReading{1900, 0};
                           })
      : reading_(std::move(reading)) {}
  std::optional<ClockReading> read() override { return reading_(calls_++); }

 private:
  std::function<std::optional<ClockReading>(int)> reading_;
  int calls_ = 0;
};

std::function<Result<double>(int)> constant(double us) {
  return [us](int) -> Result<double> { return us; };
}

TimingOptions quick() {
  TimingOptions o;
  o.most_time = std::chrono::milliseconds(500);
  return o;
}

}  // namespace

TEST_CASE("clock: warm-up, then rounds of incumbent, candidate, candidate, incumbent") {
  std::string log;
  Fake a('A', log, constant(100)), b('B', log, constant(150));
  FakeMonitor monitor;
  const auto t = time_in_turn(a, &b, monitor, quick());
  REQUIRE(t);
  CHECK(log.substr(0, 16) == "AAAAAAAABBBBBBBB");  // two equal windows of four each
  CHECK(log.substr(16, 8) == "BAABBAAB");
  CHECK(t->candidate_us.size() == t->incumbent_us.size());
  CHECK(t->rounds == 8);  // clear at the first look
  REQUIRE(t->versus);
  CHECK(t->versus->ratio == doctest::Approx(1.5));
  CHECK(t->decision == Comparison::Faster);
  CHECK(t->latency_us == 100);
  CHECK(t->clock_mhz == 1900);
}

TEST_CASE("clock: throttled rounds are dropped and counted; none left is a status, not a number") {
  std::string log;
  Fake a('A', log, constant(100));
  FakeMonitor sometimes([](int call) { return ClockReading{1500, call % 6 == 1 ? std::uint64_t{kThrottleHardwareThermal} : 0}; });
  const auto t = time_in_turn(a, nullptr, sometimes, quick());
  REQUIRE(t);
  CHECK(t->rounds == 8);
  CHECK(t->dropped_rounds > 0);
  CHECK((t->throttle_reasons & kThrottleHardwareThermal) != 0);

  FakeMonitor always([](int) { return ClockReading{1500, kThrottleSoftwarePower}; });
  const auto none = time_in_turn(a, nullptr, always, quick());
  REQUIRE_FALSE(none);
  CHECK(none.error().data.at("withheld") == "no-valid-samples");

  // A family whose kernels hold the card at its power limit lets those rounds count, and no others.
  TimingOptions at_the_limit = quick();
  at_the_limit.unfair = kThrottleUnfair & ~static_cast<std::uint64_t>(kThrottleSoftwarePower);
  FakeMonitor capped([](int) { return ClockReading{1500, kThrottleSoftwarePower}; });
  const auto counted = time_in_turn(a, nullptr, capped, at_the_limit);
  REQUIRE(counted);
  CHECK(counted->dropped_rounds == 0);
  CHECK(counted->throttle_reasons == kThrottleSoftwarePower);
  FakeMonitor hot([](int) { return ClockReading{1500, kThrottleSoftwarePower | kThrottleSoftwareThermal}; });
  CHECK_FALSE(time_in_turn(a, nullptr, hot, at_the_limit));

  FakeMonitor idle([](int) { return ClockReading{1500, kThrottleIdle | kThrottleApplicationClocks}; });
  const auto fine = time_in_turn(a, nullptr, idle, quick());
  REQUIRE(fine);
  CHECK(fine->dropped_rounds == 0);

  FakeMonitor blind([](int) { return std::nullopt; });
  const auto unknown = time_in_turn(a, nullptr, blind, quick());
  REQUIRE(unknown);
  CHECK(unknown->clock_mhz == 0);
}

TEST_CASE("clock: slow first samples stay out; a clock that never settles is said") {
  std::string log;
  Fake slow_start('A', log, [](int call) -> Result<double> { return call < 6 ? 1000.0 : 100.0; });
  FakeMonitor monitor;
  const auto t = time_in_turn(slow_start, nullptr, monitor, quick());
  REQUIRE(t);
  CHECK(t->latency_us == 100);
  CHECK(t->mad_us == 0);
  CHECK(t->warmed_up);
  Fake drifting('A', log, [](int call) -> Result<double> { return 100.0 * (1 + call); });
  const auto never = time_in_turn(drifting, nullptr, monitor, quick());
  REQUIRE(never);
  CHECK_FALSE(never->warmed_up);
}

TEST_CASE("clock: a failing contestant and a stop end it") {
  std::string log;
  Fake broken('A', log, [](int call) -> Result<double> {
    if (call == 12) return fail(ErrorKind::Timeout, "hung");
    return 100.0;
  });
  FakeMonitor monitor;
  const auto t = time_in_turn(broken, nullptr, monitor, quick());
  REQUIRE_FALSE(t);
  CHECK(t.error().kind == ErrorKind::Timeout);
  Fake fine('A', log, constant(100));
  TimingOptions options = quick();
  options.stop = [] { return true; };
  const auto stopped = time_in_turn(fine, nullptr, monitor, options);
  REQUIRE_FALSE(stopped);
  CHECK(stopped.error().kind == ErrorKind::Cancelled);
}

TEST_CASE("clock: equals come out inconclusive at least 95 times in 100, and are never kept") {
  // The same candidate against itself, with noise and drift that hit both.
  int inconclusive = 0, kept = 0;
  const int trials = 200;
  for (int trial = 0; trial < trials; ++trial) {
    Rng rng(static_cast<std::uint64_t>(trial) + 1);
    double drift = 0;
    const auto noisy = [&](int) -> Result<double> {
      drift += 0.02 * rng.normal();
      const double spike = rng.uniform() < 0.03 ? 40.0 : 0.0;
      return 700.0 + drift + 2.0 * rng.normal() + spike;
    };
    std::string log;
    Fake a('A', log, noisy), b('B', log, noisy);
    FakeMonitor monitor;
    const auto t = time_in_turn(a, &b, monitor, quick());
    REQUIRE(t);
    inconclusive += t->decision == Comparison::Inconclusive ? 1 : 0;
    kept += t->decision == Comparison::Faster ? 1 : 0;
  }
  CHECK(kept == 0);
  CHECK(inconclusive >= trials * 95 / 100);
}

TEST_CASE("clock: two valid rounds are no measurement") {
  std::string log;
  Fake a('A', log, constant(100));
  int reads = 0;
  FakeMonitor nearly_always([&reads](int) { return ClockReading{1500, reads++ < 4 ? 0 : std::uint64_t{kThrottleHardwareThermal}}; });
  const auto few = time_in_turn(a, nullptr, nearly_always, quick());
  REQUIRE_FALSE(few);
  CHECK(few.error().data.at("withheld") == "no-valid-samples");
}

TEST_CASE("clock: no more rounds than it takes to see that nothing is left to win; all of them while something may be") {
  const auto rounds = [](double candidate, double incumbent) {
    std::string log;
    Fake a('A', log, constant(candidate)), b('B', log, constant(incumbent));
    FakeMonitor monitor;
    const auto t = time_in_turn(a, &b, monitor, quick());
    REQUIRE(t);
    return t->rounds;
  };
  CHECK(rounds(100, 100) == 8);
  CHECK(rounds(100, 100.4) == 8);   // 0.4% faster: below half the margin of 1%
  CHECK(rounds(100, 100.8) == 60);  // may still turn out to be 1%
  CHECK(rounds(100, 101.1) == 8);   // clear of the margin
  CHECK(rounds(101, 100) == 8);
}
