// The application looks for leases that ran out by itself: who dies with an experiment in hand loses it, who only takes long keeps it.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>

#include "core/base/json.h"
#include "server/tools/app.h"
#include "tests/support/temp_folder.h"
#include "tests/support/verdicts.h"

using namespace amk;

namespace {

class SteppedClock final : public Clock {
 public:
  std::int64_t boot_us() const override { return us; }
  std::int64_t wall_us() const override { return 1'700'000'000'000'000 + us; }
  std::atomic<std::int64_t> us{0};
};

constexpr std::int64_t kMinute = 60'000'000;

// Judges as `then` says; until then the candidate is correct and predicted.
class ScriptedJudge final : public CpuJudge {
 public:
  explicit ScriptedJudge(std::function<void()> then) : then_(std::move(then)) {}
  Result<Verdict> judge(const Workload& workload, const Json& canonical, Device, const IncumbentNow&, const Progress&) override {
    then_();
    return test::predicted(workload, canonical, 100);
  }

 private:
  std::function<void()> then_;
};

struct World {
  explicit World(std::function<void()> judging) {
    AppOptions options;
    options.workspace = folder.path;
    options.clock = &clock;
    options.tend_every = std::chrono::milliseconds(2);
    options.make_judge = [judging] { return std::make_unique<ScriptedJudge>(judging); };
    auto opened = App::open(options);
    REQUIRE_MESSAGE(opened, opened.error().message);
    app = *opened;
  }
  Result<Json> loop() {
    SearchRequest request;
    request.model = "toy";
    request.gpu = "rtx5090";
    request.device = "cpu";
    request.budget = 1;
    return app->service().loop(request, {});
  }
  Json counts() {
    const auto status = app->service().status("");
    REQUIRE_MESSAGE(status, status.error().message);
    Json out = status->at("experiments");
    out.update(status->at("counts"));
    return out;
  }
  bool soon(const std::function<bool()>& true_now) {
    for (int i = 0; i < 5'000 && !true_now(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return true_now();
  }

  test::TempFolder folder;
  SteppedClock clock;
  std::shared_ptr<App> app;
};

}  // namespace

TEST_CASE("a loop that dies while it judges: its experiment is lost when its lease is over, not before") {
  World w([] { throw std::runtime_error("the judge fell"); });
  const auto died = w.loop();
  REQUIRE_FALSE(died);
  CHECK(died.error().message == "the search failed unexpectedly: the judge fell");
  CHECK(w.counts()["running"] == 1);
  w.clock.us = 9 * kMinute;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(w.counts()["running"] == 1);
  w.clock.us = 11 * kMinute;
  CHECK(w.soon([&] { return w.counts()["running"] == 0; }));
  CHECK(w.counts()["lost"] == 1);
  CHECK(w.counts()["failed"] == 0);  // nobody's fault
}

TEST_CASE("a judge that takes an hour, and a machine that sleeps for eight meanwhile: the result counts") {
  World* world = nullptr;
  World w([&] {
    world->clock.us += 60 * kMinute;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // many looks for leases
    world->clock.us += 8 * 60 * kMinute;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  world = &w;
  const auto done = w.loop();
  REQUIRE_MESSAGE(done, done.error().message);
  CHECK(w.counts()["kept"] == 1);
  CHECK(w.counts()["lost"] == 0);
  CHECK(w.counts()["running"] == 0);
}

TEST_CASE("an agent that claims from the queue and dies: its experiment returns and the next one gets it") {
  World w([] {});
  REQUIRE(w.loop());
  CampaignService& campaigns = w.app->service().campaigns();
  const auto best = campaigns.best(CampaignId{1});
  REQUIRE(best);
  REQUIRE(*best);
  BeginRequest request;
  request.config = (*best)->config;
  request.schedule_id = (*best)->schedule_id;
  REQUIRE(campaigns.enqueue(CampaignId{1}, {request}));
  const auto dead = campaigns.claim_next(CampaignId{1}, "dead", kMinute);
  REQUIRE(dead);
  REQUIRE(*dead);
  const auto nothing = campaigns.claim_next(CampaignId{1}, "alive", kMinute);
  REQUIRE(nothing);
  CHECK_FALSE(*nothing);

  w.clock.us = 2 * kMinute;
  REQUIRE(w.soon([&] { return w.counts()["queued"] == 1; }));
  const auto next = campaigns.claim_next(CampaignId{1}, "alive", kMinute);
  REQUIRE(next);
  REQUIRE(*next);
  CHECK((*next)->ticket.experiment == (*dead)->ticket.experiment);
  CHECK((*next)->ticket.generation == 2);
}
