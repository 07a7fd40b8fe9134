// Two loops on one campaign: what the other does between this one's calls is played by the fake.
#include "orchestrator/service/begin.h"

#include <doctest/doctest.h>

#include "core/base/json.h"

using namespace amk;

namespace {

Ticket ticket() {
  Ticket t;
  t.experiment = ExperimentId{7};
  return t;
}
tl::unexpected<Error> refused(const char* reason) { return fail(ErrorKind::Conflict, "refused", {{"reason", reason}}); }

// A campaign of which `others` may move between any two calls; counts what the loop asked.
struct Campaign {
  bool done = false;
  std::string done_reason;
  std::function<void(Campaign&)> before_info = [](Campaign&) {}, before_begin = [](Campaign&) {};
  int begins = 0, reopens = 0;

  CampaignCalls calls() {
    return {[this]() -> Result<Ticket> {
              before_begin(*this);
              ++begins;
              if (done) return refused("campaign-done");
              return ticket();
            },
            [this]() -> Result<CampaignInfo> {
              before_info(*this);
              CampaignInfo info;
              info.state = done ? CampaignState::Done : CampaignState::Optimizing;
              info.done_reason = done_reason;
              return info;
            },
            [this]() -> Result<CampaignInfo> {
              ++reopens;
              done = false;
              done_reason.clear();
              return CampaignInfo{};
            }};
  }
  void end(const char* why) {
    done = true;
    done_reason = why;
  }
};

}  // namespace

TEST_CASE("a plateau is reopened once and the experiment begins") {
  Campaign campaign;
  campaign.end("plateau");
  const auto begun = begin_or_reopen(campaign.calls(), true);
  REQUIRE(begun);
  REQUIRE(begun->ticket);
  CHECK(begun->ticket->experiment == ExperimentId{7});
  CHECK(campaign.reopens == 1);
  CHECK(campaign.begins == 2);
}

TEST_CASE("another loop reopened between begin and info: begun again, not taken for the end") {
  Campaign campaign;
  campaign.end("plateau");
  campaign.before_info = [](Campaign& c) {
    c.done = false;
    c.done_reason.clear();
  };
  const auto begun = begin_or_reopen(campaign.calls(), true);
  REQUIRE(begun);
  CHECK(begun->ticket);
  CHECK(campaign.reopens == 0);
}

TEST_CASE("another loop reaches the next plateau between reopen and begin: reopened again") {
  Campaign campaign;
  campaign.end("plateau");
  campaign.before_begin = [](Campaign& c) {
    if (c.begins < 3) c.end("plateau");
  };
  const auto begun = begin_or_reopen(campaign.calls(), true);
  REQUIRE(begun);
  CHECK(begun->ticket);
  CHECK(campaign.reopens == 3);
}

TEST_CASE("a campaign that is over for another reason ends the loop, and a plateau does when it counts") {
  Campaign campaign;
  campaign.end("floor");
  auto begun = begin_or_reopen(campaign.calls(), true);
  REQUIRE(begun);
  CHECK(!begun->ticket);
  CHECK(begun->done_reason == "floor");
  campaign.end("plateau");
  begun = begin_or_reopen(campaign.calls(), false);
  REQUIRE(begun);
  CHECK(!begun->ticket);
  CHECK(begun->done_reason == "plateau");
  CHECK(campaign.reopens == 0);
}

TEST_CASE("refusals that are not an end are the caller's, and a race that is never won ends") {
  CampaignCalls calls;
  calls.begin = []() -> Result<Ticket> { return refused("quarantined"); };
  auto begun = begin_or_reopen(calls, true);
  REQUIRE(!begun);
  CHECK(begun.error().data.value("reason", "") == "quarantined");

  Campaign campaign;
  campaign.before_begin = [](Campaign& c) { c.end("plateau"); };
  begun = begin_or_reopen(campaign.calls(), true);
  REQUIRE(!begun);
  CHECK(begun.error().kind == ErrorKind::Conflict);
  CHECK(campaign.begins == 100);
}
