// A worker that lies about its timing: every number that the judge uses is computed from samples, and samples that cannot be are named.
#include "kernels/evaluator/judged_timing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "core/base/random.h"

using namespace amk;

namespace {

// 10 rounds: the candidate takes 101…120 us (median 110.5, deviation 5), the incumbent 1.5 times as long.
Timing honest(bool incumbent) {
  Timing t;
  for (int i = 1; i <= 20; ++i) t.candidate_us.push_back(100.0 + i);
  if (incumbent)
    for (const double us : t.candidate_us) t.incumbent_us.push_back(1.5 * us);
  t.rounds = 10;
  t.clock_mhz = 1980;
  t.latency_us = 110.5;
  t.mad_us = 5;
  if (incumbent) {
    t.incumbent_latency_us = 165.75;
    t.versus = paired_ratio(t.incumbent_us, t.candidate_us);
    t.decision = Comparison::Faster;
  }
  return t;
}

TimingAsked asked(bool incumbent) { return {incumbent, 2, 1, std::chrono::seconds(1)}; }

std::string lie_in(const Json& reply, const TimingAsked& a) {
  const auto timing = judged_timing(reply, a);
  if (timing) return "believed";
  CHECK(timing.error().kind == ErrorKind::Corrupt);
  return timing.error().data.value("lie", "unnamed");
}

}  // namespace

TEST_CASE("judged timing: an honest one is believed, through its text form, whatever it leaves out of the summary") {
  for (const bool incumbent : {false, true}) {
    const auto sent = parse_json(canonical_dump(to_json(honest(incumbent))), "reply");
    REQUIRE(sent);
    const auto t = judged_timing(*sent, asked(incumbent));
    REQUIRE_MESSAGE(t, t.error().message);
    CHECK(t->latency_us == 110.5);
    CHECK(t->mad_us == 5);
    CHECK(t->versus.has_value() == incumbent);
    if (incumbent) {
      CHECK(t->versus->ratio == doctest::Approx(1.5));
      CHECK(t->versus->ci_low == doctest::Approx(1.5));
      CHECK(t->decision == Comparison::Faster);
      CHECK(t->incumbent_latency_us == 165.75);
    }
    Json bare = *sent;
    for (const char* summary : {"latency_us", "mad_us", "incumbent_latency_us", "versus", "decision"}) bare.erase(summary);
    const auto again = judged_timing(bare, asked(incumbent));
    REQUIRE(again);
    CHECK(again->latency_us == 110.5);
    CHECK(again->decision == (incumbent ? Comparison::Faster : Comparison::Inconclusive));
  }
}

TEST_CASE("judged timing: random honest timings of any spread are believed") {
  Rng rng(7);
  for (int trial = 0; trial < 300; ++trial) {
    Timing t;
    t.rounds = 3 + static_cast<int>(rng.below(60));
    const double scale = std::exp(12 * rng.uniform() - 3);
    for (int i = 0; i < 2 * t.rounds; ++i) {
      t.candidate_us.push_back(scale * (1 + 0.3 * rng.uniform()));
      t.incumbent_us.push_back(scale * (1 + 0.3 * rng.uniform()));
    }
    t.latency_us = median(t.candidate_us);
    t.mad_us = median_absolute_deviation(t.candidate_us);
    t.incumbent_latency_us = median(t.incumbent_us);
    t.versus = paired_ratio(t.incumbent_us, t.candidate_us);
    t.decision = decide(*t.versus);
    const auto sent = parse_json(canonical_dump(to_json(t)), "reply");
    REQUIRE(sent);
    TimingAsked a = asked(true);
    a.waited = std::chrono::seconds(1000);
    CHECK(lie_in(*sent, a) == "believed");
  }
}

TEST_CASE("judged timing: every lie is refused under its name") {
  struct Lie {
    const char* what;
    std::function<void(Json&)> tell;
    const char* named;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Lie> lies = {
      {"a better median", [](Json& j) { j["latency_us"] = 90.0; }, "summary-contradicts-samples"},
      {"a median off by a thousandth", [](Json& j) { j["latency_us"] = 110.4; }, "summary-contradicts-samples"},
      {"a median that is text", [](Json& j) { j["latency_us"] = "fast"; }, "summary-contradicts-samples"},
      {"less noise", [](Json& j) { j["mad_us"] = 0.1; }, "summary-contradicts-samples"},
      {"a slower incumbent", [](Json& j) { j["incumbent_latency_us"] = 300.0; }, "summary-contradicts-samples"},
      {"a better ratio", [](Json& j) { j["versus"][0] = 2.0; }, "summary-contradicts-samples"},
      {"a narrower interval", [](Json& j) { j["versus"][1] = 1.51; }, "summary-contradicts-samples"},
      {"an open interval", [](Json& j) { j["versus"][2] = nullptr; }, "summary-contradicts-samples"},
      {"another decision", [](Json& j) { j["decision"] = 2; }, "summary-contradicts-samples"},
      {"a decision of text", [](Json& j) { j["decision"] = "faster"; }, "summary-contradicts-samples"},
      {"a sample of zero", [](Json& j) { j["candidate_us"][3] = 0; }, "impossible-sample"},
      {"a negative sample", [](Json& j) { j["candidate_us"][3] = -101.0; }, "impossible-sample"},
      {"not a number", [](Json& j) { j["candidate_us"][3] = std::nan(""); }, "impossible-sample"},
      {"infinite", [inf](Json& j) { j["incumbent_us"][3] = inf; }, "impossible-sample"},
      {"null", [](Json& j) { j["candidate_us"][3] = nullptr; }, "impossible-sample"},
      {"text", [](Json& j) { j["candidate_us"][3] = "101"; }, "impossible-sample"},
      {"no samples", [](Json& j) { j["candidate_us"] = Json::array(); }, "too-few-samples"},
      {"samples left out", [](Json& j) { j["candidate_us"].erase(0); }, "too-few-samples"},
      {"one round",
       [](Json& j) {
         j["candidate_us"] = {90.0, 90.0};
         j["incumbent_us"] = {165.0, 165.0};
         j["rounds"] = 1;
       },
       "too-few-samples"},
      {"more rounds than samples", [](Json& j) { j["rounds"] = 60; }, "too-few-samples"},
      {"the incumbent's best samples only", [](Json& j) { j["incumbent_us"].erase(0); }, "unpaired-samples"},
      {"no incumbent", [](Json& j) { j["incumbent_us"] = Json::array(); }, "unpaired-samples"},
      {"an incumbent that took for ever",
       [](Json& j) {
         for (Json& us : j["incumbent_us"]) us = 1e6;
         for (const char* summary : {"incumbent_latency_us", "versus", "decision"}) j.erase(summary);
       },
       "longer-than-the-wait"},
      {"samples missing", [](Json& j) { j.erase("candidate_us"); }, "malformed"},
      {"samples of no list", [](Json& j) { j["candidate_us"] = 100.0; }, "malformed"},
      {"rounds of no count", [](Json& j) { j["rounds"] = 9.5; }, "malformed"},
      {"rounds beyond reason", [](Json& j) { j["rounds"] = std::uint64_t{1} << 63; }, "malformed"},
      {"a clock that runs backwards", [](Json& j) { j["clock_mhz"] = -1; }, "malformed"},
      {"no object", [](Json& j) { j = Json::array(); }, "malformed"},
  };
  for (const Lie& lie : lies) {
    CAPTURE(lie.what);
    Json reply = to_json(honest(true));
    lie.tell(reply);
    CHECK(lie_in(reply, asked(true)) == lie.named);
  }
  CHECK(lie_in(to_json(honest(true)), asked(false)) == "unpaired-samples");
  CHECK(lie_in(to_json(honest(false)), asked(true)) == "unpaired-samples");
  // 20 samples of about 110 us of 8 tokens each need 17.7 ms.
  TimingAsked hurried = asked(false);
  hurried.units_per_sample = 8;
  hurried.waited = std::chrono::milliseconds(17);
  CHECK(lie_in(to_json(honest(false)), hurried) == "longer-than-the-wait");
  hurried.waited = std::chrono::milliseconds(18);
  CHECK(lie_in(to_json(honest(false)), hurried) == "believed");
}
