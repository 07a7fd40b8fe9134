#include "tests/unit/campaign/fixture.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "orchestrator/store/failpoint.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("next says where the time goes and what to try there, for both families") {
  const auto advice_for = [](const Json& regions) {
    Lab lab;
    Verdict v = verdict_of(config(1), 100);
    v.regions = regions;
    lab.run(v);
    return must(lab.service->next(lab.campaign));
  };
  const Json model = advice_for({{"attention", 10}, {"mlp", 20}, {"lm_head", 5}, {"sync", 25}, {"other", 40}});
  CHECK(model["focus"] == "sync");  // the largest that has advice
  CHECK(model["where"]["sync"] == Json{{"us", 25}, {"share", 0.25}});
  CHECK(model["advice"].get<std::string>().find("kernel_knobs.publish") != std::string::npos);
  const Json gemm = advice_for({{"l2", 75}, {"launch", 25}});
  CHECK(gemm["focus"] == "l2");
  CHECK(gemm["where"]["l2"]["share"] == 0.75);
  CHECK(gemm["advice"].get<std::string>().find("cluster.m") != std::string::npos);
  CHECK(gemm["where_by"] == "cost model");
  CHECK(advice_for(nullptr)["advice"].is_null());
}

TEST_CASE("baseline, optimizing, plateau, reopened") {
  Lab lab;
  CHECK(must(lab.service->info(lab.campaign)).state == CampaignState::Baseline);
  CHECK(lab.run(bad(config(0), VerdictStatus::Crash)).state == CampaignState::Baseline);
  const Recorded first = lab.run(1, 200);
  CHECK(first.experiment.outcome == Outcome::Kept);
  CHECK(first.experiment.reason == "baseline");
  CHECK(first.is_best);
  CHECK(first.state == CampaignState::Optimizing);
  CHECK(first.experiment.seq == 2);
  CHECK(first.experiment.correctness == "PASS");
  for (int n = 2; n < 9; ++n) CHECK(lab.run(n, 200).state == CampaignState::Optimizing);  // 7 non-keeps
  CHECK(lab.run(9, 100).experiment.outcome == Outcome::Kept);                             // resets the counter
  for (int n = 10; n < 17; ++n) CHECK(lab.run(n, 100).state == CampaignState::Optimizing);
  const Recorded last = lab.run(17, 99.5);
  CHECK(last.experiment.outcome == Outcome::Revert);
  CHECK(last.state == CampaignState::Done);
  CHECK(last.done_reason == "plateau");
  must(lab.service->check(lab.campaign));

  BeginRequest more;
  more.config = config(18);
  more.schedule_id = id_of(more.config);
  CHECK(reason_of(lab.service->begin(lab.campaign, more)) == "campaign-done");
  CHECK(must(lab.service->reopen(lab.campaign)).state == CampaignState::Optimizing);
  must(lab.service->check(lab.campaign));
  for (int n = 20; n < 27; ++n) CHECK(lab.run(n, 100).state == CampaignState::Optimizing);
  CHECK(lab.run(27, 100).state == CampaignState::Done);
  must(lab.service->check(lab.campaign));
  CHECK(must(lab.service->best(lab.campaign))->latency_us == 100);
  CHECK(must(lab.service->baseline(lab.campaign))->latency_us == 200);
}

TEST_CASE("the machine's failures count against nobody") {
  Lab lab;
  lab.run(1, 200);
  for (int n = 2; n < 30; ++n) {
    if (n % 2 == 0)
      CHECK(lab.run(bad(config(n), VerdictStatus::Unavailable)).experiment.outcome == Outcome::Lost);
    else
      CHECK(must(lab.service->lose(lab.begin(config(n)), "worker-lost")).experiment.correctness == "LOST");
  }
  const Json status = must(lab.service->status(lab.campaign));
  CHECK(status["state"] == "optimizing");
  CHECK(status["plateau"]["non_keeps"] == 0);
  CHECK(status["counts"]["lost"] == 28);
  CHECK_FALSE(must(lab.service->tried(lab.campaign, id_of(config(2)), config(2))));
  CHECK(must(lab.service->tried(lab.campaign, id_of(config(1)), config(1))));
  must(lab.service->check(lab.campaign));
}

TEST_CASE("near the floor and at the speedup target a campaign is done; reopening needs another policy") {
  Lab lab;
  CHECK(lab.run(1, 100).state == CampaignState::Optimizing);
  const Recorded near = lab.run(2, 55);  // floor 50
  CHECK(near.done_reason == "near-floor");
  CHECK(reason_of(lab.service->reopen(lab.campaign)) == "still-done");
  CampaignPolicy policy;
  policy.within_floor = -1;
  policy.speedup_target = 1.9;
  CHECK(must(lab.service->reopen(lab.campaign, policy)).state == CampaignState::Optimizing);
  CHECK(lab.run(3, 51).done_reason == "speedup-target");  // 100 / 51 = 1.96
}

TEST_CASE("a speedup is that of measurements in turn: a card that is slower or faster than it was neither makes one nor hides it") {
  CampaignPolicy policy;
  policy.within_floor = -1;
  policy.speedup_target = 2;
  Lab lab(policy, "cuda");
  lab.run(measured(config(1), 1000, "", 0, 0));
  CHECK(must(lab.service->speedup(lab.campaign)) == 1.0);
  // The card is quiet now: twice as fast as then, 1.25 times as fast as the first one is now.
  const Recorded quiet = lab.run(measured(config(2), 400, id_of(config(1)), 1.24, 1.26));
  CHECK(quiet.state == CampaignState::Optimizing);
  CHECK(must(lab.service->speedup(lab.campaign)) == doctest::Approx(1.25));
  // And crowded: three times as long as the second took then, 1.75 times as fast as it is now.
  const Recorded crowded = lab.run(measured(config(3), 1200, id_of(config(2)), 1.74, 1.76));
  CHECK(crowded.done_reason == "speedup-target");
  CHECK(must(lab.service->speedup(lab.campaign)) == doctest::Approx(1.25 * 1.75));
}

TEST_CASE("the budget counts time spent in the campaign, across restarts, on the boot clock") {
  CampaignPolicy policy;
  policy.budget_us = 100'000'000;
  Lab lab(policy);
  Ticket ticket = lab.begin(config(1));
  lab.clock.advance_us(30'000'000);
  must(lab.service->finish(ticket, verdict_of(config(1), 200)));
  lab.clock.advance_us(1'000'000'000);  // nobody works: not counted
  lab.clock.wall -= 5'000'000'000;      // nor does the wall clock matter
  {
    const auto activity = lab.service->activity(lab.campaign);
    const Ticket a = lab.begin(config(2));  // overlapping work counts once
    lab.clock.advance_us(20'000'000);
    must(lab.service->finish(a, verdict_of(config(2), 200)));
  }
  CHECK(must(lab.service->status(lab.campaign))["time"]["spent_s"] == 50.0);
  lab.open_store();
  CHECK(must(lab.service->status(lab.campaign))["time"]["spent_s"] == 50.0);
  {
    const auto activity = lab.service->activity(lab.campaign);
    lab.clock.advance_us(49'000'000);
  }
  CHECK(must(lab.service->next(lab.campaign))["action"] == "continue");
  {
    const auto activity = lab.service->activity(lab.campaign);
    lab.clock.advance_us(1'000'000);
  }
  const Json stop = must(lab.service->next(lab.campaign));
  CHECK(stop["action"] == "stop");
  CHECK(stop["reason"] == "budget");
  must(lab.service->check(lab.campaign));
  CHECK(reason_of(lab.service->reopen(lab.campaign)) == "still-done");
  policy.budget_us = 200'000'000;
  CHECK(must(lab.service->reopen(lab.campaign, policy)).state == CampaignState::Optimizing);
}

TEST_CASE("idempotency: a retry returns the first result") {
  Lab lab;
  const Ticket first = lab.begin(config(1), "k1");
  const Ticket again = lab.begin(config(1), "k1");
  CHECK(again.repeated);
  CHECK(again.experiment == first.experiment);
  CHECK(again.seq == 1);
  BeginRequest other;
  other.config = config(2);
  other.schedule_id = id_of(other.config);
  other.idempotency_key = "k1";
  CHECK(reason_of(lab.service->begin(lab.campaign, other)) == "key-reused");
  const Recorded a = must(lab.service->finish(first, verdict_of(config(1), 200)));
  const Recorded b = must(lab.service->finish(first, verdict_of(config(1), 100)));
  CHECK(b.repeated);
  CHECK(b.experiment.latency_us == 200);
  CHECK(b.experiment.verdict_id == a.experiment.verdict_id);
  CHECK(must(lab.service->status(lab.campaign))["experiments"]["total"] == 1);
}

TEST_CASE("a queue: claims are atomic, a lease that runs out moves on, a late report is evidence only") {
  Lab lab;
  lab.run(0, 200);
  std::vector<BeginRequest> requests(40);
  for (int n = 0; n < 40; ++n) {
    requests[static_cast<std::size_t>(n)].config = config(n + 1);
    requests[static_cast<std::size_t>(n)].schedule_id = id_of(config(n + 1));
  }
  CHECK(must(lab.service->enqueue(lab.campaign, requests)).size() == 40);
  std::mutex mutex;
  std::set<std::int64_t> claimed;
  std::atomic<int> doubled{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 9; ++i) {
        auto claim = lab.service->claim_next(lab.campaign, "w" + std::to_string(t), 10'000'000);
        const std::lock_guard lock(mutex);
        if (!claim || !*claim || !claimed.insert(raw((*claim)->ticket.experiment)).second) ++doubled;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(doubled == 0);
  CHECK(claimed.size() == 36);

  const auto claim = must(lab.service->claim_next(lab.campaign, "slow", 10'000'000));
  REQUIRE(claim);
  CHECK(claim->config == config(37));
  lab.clock.advance_us(9'000'000);
  must(lab.service->renew(claim->ticket, 10'000'000));
  lab.clock.advance_us(1'000'000);
  CHECK(must(lab.service->expire_leases()) == 36);  // the others' ran out; back to the queue
  lab.clock.advance_us(9'000'000);
  CHECK(must(lab.service->expire_leases()) == 1);
  CHECK(reason_of(lab.service->finish(claim->ticket, verdict_of(config(37), 10))) == "stale-lease");
  Status renewed = lab.service->renew(claim->ticket, 1'000'000);
  CHECK_FALSE(renewed);
  auto again = must(lab.service->claim_next(lab.campaign, "quick", 10'000'000));
  REQUIRE(again);
  CHECK(again->config == config(1));  // in the order of the queue
  CHECK(again->ticket.generation == 2);
  must(lab.service->check(lab.campaign));

  // The third time a worker is lost with it, the experiment is lost.
  for (int round = 0; round < 2; ++round) {
    lab.clock.advance_us(11'000'000);
    must(lab.service->expire_leases());
    if (round == 0) again = must(lab.service->claim_next(lab.campaign, "quick", 10'000'000));
  }
  const Experiment lost = must(lab.service->experiment(again->ticket.experiment));
  CHECK(lost.outcome == Outcome::Lost);
  CHECK(lost.reason == "lease-expired");
  CHECK(lost.attempts == 3);
  CHECK(reason_of(lab.service->finish(again->ticket, verdict_of(config(1), 10))) == "stale-lease");
  must(lab.service->check(lab.campaign));
}

TEST_CASE("a restart settles what its predecessor left running") {
  Lab lab;
  lab.run(0, 200);
  const Ticket direct = lab.begin(config(1));
  BeginRequest queued;
  queued.config = config(2);
  queued.schedule_id = id_of(queued.config);
  must(lab.service->enqueue(lab.campaign, {queued}));
  const auto claim = must(lab.service->claim_next(lab.campaign, "w", 600'000'000));
  REQUIRE(claim);
  lab.open_store();
  const Experiment lost = must(lab.service->experiment(direct.experiment));
  CHECK(lost.outcome == Outcome::Lost);
  CHECK(lost.reason == "daemon-restarted");
  CHECK(must(lab.service->experiment(claim->ticket.experiment)).state == ExperimentState::Queued);
  CHECK(reason_of(lab.service->finish(direct, verdict_of(config(1), 100))) == "stale-lease");
  must(lab.service->check(lab.campaign));
}

TEST_CASE("a verdict of another config, and a figure below the floor") {
  Lab lab;
  const Ticket ticket = lab.begin(config(1));
  CHECK(reason_of(lab.service->finish(ticket, verdict_of(config(2), 100))) == "other-config");
  const Recorded impossible = must(lab.service->finish(ticket, verdict_of(config(1), 10)));
  CHECK(impossible.experiment.outcome == Outcome::Failed);
  CHECK(impossible.experiment.quarantined);
  CHECK_FALSE(impossible.experiment.latency_us);
  BeginRequest again;
  again.config = config(1);
  again.schedule_id = id_of(again.config);
  CHECK(reason_of(lab.service->begin(lab.campaign, again)) == "quarantined");
  CHECK_FALSE(lab.service->admissible(lab.campaign, id_of(config(1)), config(1)));
  must(lab.service->admissible(lab.campaign, id_of(config(2)), config(2)));
  must(lab.service->check(lab.campaign));
}

TEST_CASE("two that beat one incumbent: the second is judged against the first") {
  Lab lab({}, "cuda");
  lab.run(measured(config(0), 100, "", 0, 0));
  const std::string baseline = id_of(config(0));
  const Ticket a = lab.begin(config(1));
  const Ticket b = lab.begin(config(2));
  CHECK(must(lab.service->finish(a, measured(config(1), 90, baseline, 1.05, 1.15))).experiment.outcome == Outcome::Kept);
  const Recorded late = must(lab.service->finish(b, measured(config(2), 95, baseline, 1.02, 1.10)));
  CHECK(late.experiment.outcome == Outcome::Inconclusive);
  CHECK(late.experiment.reason == "stale-incumbent");
  CHECK(must(lab.service->best(lab.campaign))->schedule_id == id_of(config(1)));
}

TEST_CASE("replay gives every ended experiment once, in order, from where one left off") {
  Lab lab(CampaignPolicy{0, -1, {}, {}});
  const CampaignId other = must(lab.service->open({"small", "h100", "cpu", "bf16-b1"})).id;
  for (int n = 0; n < 25; ++n) {
    lab.run(n, 200 - n);
    if (n % 3 == 0) std::swap(lab.campaign, const_cast<CampaignId&>(other));
  }
  std::vector<std::int64_t> seen;
  std::int64_t at = must(lab.service->replay(lab.campaign, 0, [&](const Experiment& e) {
    seen.push_back(e.seq);
    return seen.size() < 5;
  }));
  at = must(lab.service->replay(lab.campaign, at, [&](const Experiment& e) {
    seen.push_back(e.seq);
    return true;
  }));
  CHECK(must(lab.service->replay(lab.campaign, at, [](const Experiment&) { return true; })) == at);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<std::int64_t>(i) + 1);
  CHECK(seen.size() == must(lab.service->status(lab.campaign))["experiments"]["ended"].get<std::size_t>());
}

TEST_CASE("a full disk: new work waits, a finished result is not lost") {
  must(failpoint::arm("tsv.append=error@1000000"));
  Lab lab;
  lab.run(0, 200);
  const Ticket ticket = lab.begin(config(1));
  must(failpoint::arm("vfs.wal.write=enospc@1+"));
  const auto full = lab.service->finish(ticket, verdict_of(config(1), 100));
  CHECK(reason_of(full) == "disk-full");
  BeginRequest more;
  more.config = config(2);
  more.schedule_id = id_of(more.config);
  CHECK(reason_of(lab.service->begin(lab.campaign, more)) == "disk-full");
  CHECK(must(lab.service->next(lab.campaign))["reason"] == "disk-full");
  failpoint::disarm();
  const Recorded again = must(lab.service->finish(ticket, verdict_of(config(1), 100)));  // a client's retry
  CHECK(again.experiment.outcome == Outcome::Kept);
  CHECK(again.repeated);  // the waiting one was written first
  must(lab.service->check(lab.campaign));
}

TEST_CASE("random histories: what the campaign's row says always equals a recount") {
  Rng rng(20261127);
  for (int round = 0; round < 3; ++round) {
    CampaignPolicy policy;
    policy.plateau = 0;
    policy.within_floor = -1;
    Lab lab(policy);
    std::vector<Ticket> open;
    std::vector<Json> configs;
    double best = 300;
    for (int step = 0; step < 150; ++step) {
      lab.clock.advance_us(static_cast<std::int64_t>(rng.below(5'000'000)));
      const auto pick = rng.below(10);
      if (pick < 4 || open.empty()) {
        const Json c = config(1000 * round + step);
        open.push_back(lab.begin(c));
        configs.push_back(c);
      } else if (pick < 8) {
        const auto at = static_cast<std::ptrdiff_t>(rng.below(open.size()));
        const Json c = configs[static_cast<std::size_t>(at)];
        Verdict v = rng.below(3) == 0 ? bad(c, static_cast<VerdictStatus>(1 + rng.below(5))) : verdict_of(c, best * (0.9 + 0.3 * rng.uniform()));
        if (v.latency_us) v.bound_us = 1;
        const auto done = lab.service->finish(open[static_cast<std::size_t>(at)], v);
        if (done && done->is_best) best = *done->experiment.latency_us;
        open.erase(open.begin() + at);
        configs.erase(configs.begin() + at);
      } else if (pick == 8) {
        (void)lab.service->lose(open.back(), "x");
        open.pop_back();
        configs.pop_back();
      } else if (rng.below(4) == 0) {
        lab.open_store();
        open.clear();
        configs.clear();
      } else {
        RecordRequest claim;
        claim.status = "kept";
        claim.latency_us = 1;
        must(lab.service->record(lab.campaign, claim));
      }
      must(lab.service->check(lab.campaign));
    }
    if (const auto kept = must(lab.service->best(lab.campaign))) CHECK(kept->latency_us == best);
  }
}
