// Clocks that lie: the wall clock steps by years in both directions, the machine sleeps for hours. Order, budgets and leases are of the boot clock.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/base/random.h"
#include "orchestrator/results/results.h"
#include "server/daemon/jobs.h"
#include "tests/unit/campaign/fixture.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("a thousand steps of the wall clock change no order, no count, no budget") {
  CampaignPolicy policy;
  policy.plateau = 0;
  policy.budget_us = 2'000'000'000;
  Lab lab(policy);
  const auto busy = lab.service->activity(lab.campaign);
  Rng rng(11);
  constexpr std::int64_t kYear = 31'556'952'000'000;
  const std::int64_t boot_before = lab.clock.boot;
  for (int i = 0; i < 1000; ++i) {
    const Ticket ticket = lab.begin(config(i));
    lab.clock.boot += 1'000'000;
    // Within what a wall clock can say: 1970 to 2120.
    lab.clock.wall = static_cast<std::int64_t>(rng.uniform() * 150 * static_cast<double>(kYear));
    must(lab.service->finish(ticket, verdict_of(config(i), 2000.0 - i)));
  }
  must(lab.service->check(lab.campaign));
  const Json status = must(lab.service->status(lab.campaign));
  CHECK(status.at("state") == "optimizing");
  CHECK(status.at("time").at("spent_s").get<double>() == doctest::Approx(static_cast<double>(lab.clock.boot - boot_before) / 1e6));
  ResultsQuery query;
  query.limit = 200;
  int expected = 999;
  for (int page = 0; page < 5; ++page) {
    const ResultsPage got = must(Results(*lab.store).page(query));
    REQUIRE(got.rows.size() == 200);
    for (const Json& row : got.rows) CHECK(row.at("latency_us") == 2000.0 - expected--);
    query.cursor = got.next_cursor;
  }
  CHECK(expected == -1);
  // One more second of work than the budget holds ends it, whatever the wall clock says.
  lab.clock.boot += 1'001'000'000;
  BeginRequest late;
  late.config = config(5000);
  late.schedule_id = id_of(late.config);
  CHECK(reason_of(lab.service->begin(lab.campaign, late)) == "campaign-done");
  CHECK(must(lab.service->info(lab.campaign)).done_reason == "budget");
}

TEST_CASE("the machine sleeps for eight hours in the middle of an experiment: its lease is gone, its late report changes nothing") {
  Lab lab;
  BeginRequest request;
  request.config = config(1);
  request.schedule_id = id_of(request.config);
  must(lab.service->enqueue(lab.campaign, {request}));
  const auto claim = must(lab.service->claim_next(lab.campaign, "worker", 60'000'000));
  REQUIRE(claim);
  lab.clock.advance_us(8ll * 3600 * 1'000'000);  // the boot clock counts suspend
  CHECK(must(lab.service->expire_leases()) == 1);
  CHECK(reason_of(lab.service->finish(claim->ticket, verdict_of(config(1), 10))) == "stale-lease");
  const auto again = must(lab.service->claim_next(lab.campaign, "worker", 60'000'000));
  REQUIRE(again);
  CHECK(must(lab.service->finish(again->ticket, verdict_of(config(1), 100))).experiment.outcome == Outcome::Kept);
  must(lab.service->check(lab.campaign));
}

TEST_CASE("jobs end and are evicted whatever the wall clock does") {
  FakeClock clock;
  JobManager::Options options;
  options.clock = &clock;
  options.max_finished = 10;
  JobManager jobs(options);
  Rng rng(5);
  std::string last;
  for (int i = 0; i < 50; ++i) {
    clock.wall = static_cast<std::int64_t>(rng.uniform() * 4e15);
    JobRequest request;
    request.kind = "clock";
    request.run = [i](JobContext&) -> Result<Json> { return Json(i); };
    last = must(jobs.start(std::move(request))).job_id;
    const JobSnapshot done = must(jobs.wait(last, 60));
    CHECK(done.state == JobState::Done);
    CHECK(done.result == Json(i));
  }
  CHECK(jobs.list().size() <= 10);
  CHECK(jobs.get(last));  // the newest stay, not those with the latest wall time
}
