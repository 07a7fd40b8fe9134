#include "orchestrator/campaign/policy.h"

#include "tests/unit/campaign/fixture.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("a prediction is kept from one percent on, and not before") {
  const Incumbent best{"s1", 101.0};
  CHECK(judge(verdict_of(config(1), 100.0), "cpu", best)->outcome == Outcome::Kept);       // 1.0100
  CHECK(judge(verdict_of(config(1), 100.0001), "cpu", best)->outcome == Outcome::Revert);  // 1.00999
  CHECK(judge(verdict_of(config(1), 101.0), "cpu", best)->outcome == Outcome::Revert);
  CHECK(judge(verdict_of(config(1), 500.0), "cpu", std::nullopt)->outcome == Outcome::Kept);
}

TEST_CASE("a measurement is kept only with its whole interval clear of one percent, against the very incumbent") {
  const Incumbent best{"s1", 100.0};
  const auto outcome = [&](const std::string& against, double low, double high) {
    return judge(measured(config(1), 90, against, low, high), "cuda", best)->outcome;
  };
  CHECK(outcome("s1", 1.01, 1.2) == Outcome::Kept);
  CHECK(outcome("s1", 1.009, 1.2) == Outcome::Inconclusive);
  CHECK(outcome("s1", 0.9, 1.02) == Outcome::Inconclusive);
  CHECK(outcome("s1", 0.9, 0.99) == Outcome::Revert);
  CHECK(outcome("s1", 1.001, 1.005) == Outcome::Revert);  // faster, but surely by less than one percent
  CHECK(outcome("s2", 1.05, 1.2) == Outcome::Inconclusive);
  CHECK(outcome("", 0, 0) == Outcome::Inconclusive);  // never compared
  // The evaluator's word and its interval must agree before anything is kept.
  Verdict odd = measured(config(1), 90, "s1", 1.05, 1.2);
  odd.versus->decision = Decision::Inconclusive;
  CHECK(judge(odd, "cuda", best)->outcome == Outcome::Inconclusive);
}

TEST_CASE("what is not a candidate's fault is lost, what is impossible is quarantined") {
  CHECK(judge(bad(config(1), VerdictStatus::Unavailable), "cpu", std::nullopt)->outcome == Outcome::Lost);
  CHECK(judge(bad(config(1), VerdictStatus::Crash), "cpu", std::nullopt)->outcome == Outcome::Crash);
  CHECK(judge(bad(config(1), VerdictStatus::Timeout), "cpu", std::nullopt)->outcome == Outcome::Timeout);
  CHECK(judge(bad(config(1), VerdictStatus::Incorrect), "cpu", std::nullopt)->outcome == Outcome::Failed);
  const auto rejected = judge(bad(config(1), VerdictStatus::Rejected), "cpu", std::nullopt);
  CHECK(rejected->outcome == Outcome::Rejected);
  CHECK(rejected->reason == "missing-wait");

  Verdict samples = verdict_of(config(1), 100);
  samples.latency_us.reset();
  samples.latency_kind = LatencyKind::None;
  samples.withheld = "no-valid-samples";
  CHECK(judge(samples, "cpu", std::nullopt)->outcome == Outcome::Lost);
  samples.withheld = "below-floor";
  CHECK(judge(samples, "cpu", std::nullopt)->quarantined);
  // Not withheld by the evaluator, impossible all the same.
  const auto impossible = judge(verdict_of(config(1), 49.9, 50), "cpu", std::nullopt);
  CHECK(impossible->outcome == Outcome::Failed);
  CHECK(impossible->quarantined);
  CHECK_FALSE(judge(verdict_of(config(1), 50, 50), "cpu", std::nullopt)->quarantined);
}

TEST_CASE("a prediction can not enter a GPU campaign, nor a measurement a predicted one") {
  CHECK_FALSE(judge(verdict_of(config(1), 100), "cuda", std::nullopt));
  CHECK_FALSE(judge(measured(config(1), 100, "", 0, 0), "cpu", std::nullopt));
}

TEST_CASE("the four stop rules, each alone") {
  CampaignPolicy none{0, -1, std::nullopt, std::nullopt};
  Standing s{true, 100, 50, 4, 1000, std::int64_t{1} << 60};
  CHECK_FALSE(stop_reason(none, s));
  CampaignPolicy plateau = none;
  plateau.plateau = 8;
  s.non_keeps = 7;
  CHECK_FALSE(stop_reason(plateau, s));
  s.non_keeps = 8;
  CHECK(stop_reason(plateau, s) == "plateau");
  CampaignPolicy floor = none;
  floor.within_floor = 0.10;
  s.best_us = 55.1;
  CHECK_FALSE(stop_reason(floor, s));
  s.best_us = 55.0;
  CHECK(stop_reason(floor, s) == "near-floor");
  s.bound_us = 0;
  CHECK_FALSE(stop_reason(floor, s));
  CampaignPolicy budget = none;
  budget.budget_us = 60'000'000;
  s.spent_us = 59'999'999;
  CHECK_FALSE(stop_reason(budget, s));
  s.spent_us = 60'000'000;
  CHECK(stop_reason(budget, s) == "budget");
  CampaignPolicy target = none;
  target.speedup_target = 2;
  s.speedup = 1.999;
  CHECK_FALSE(stop_reason(target, s));
  s.speedup = 2;
  CHECK(stop_reason(target, s) == "speedup-target");
}

TEST_CASE("policies are read by name, and wrong ones refused by name") {
  const auto policy = policy_from_json({{"plateau", 3}, {"budget_s", 1.5}, {"speedup_target", 2}, {"within_floor", 0.2}});
  REQUIRE(policy);
  CHECK(*policy == CampaignPolicy{3, 0.2, 1'500'000, 2.0});
  CHECK(policy_from_json(to_json(*policy)) == *policy);
  // Every budget that can be held comes back as it was: nothing at all, what no double has exactly, and the longest.
  for (const std::int64_t us : {0LL, 1LL, 7LL, 57'000'001LL, 1'000'000'000'000'000LL}) {
    CampaignPolicy held;
    held.budget_us = us;
    CHECK(policy_from_json(to_json(held))->budget_us == us);
  }
  for (const Json& wrong : {Json{{"plateu", 3}}, Json{{"plateau", -1}}, Json{{"plateau", 1.5}}, Json{{"budget_s", -1e-9}}, Json{{"budget_s", "1"}},
                            Json{{"speedup_target", 0.5}}, Json{{"within_floor", "x"}}, Json::array()}) {
    CAPTURE(wrong.dump());
    const auto refused = policy_from_json(wrong);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::InvalidArgument);
    CHECK(refused.error().data.contains("field"));
  }
}
