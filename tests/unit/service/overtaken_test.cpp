// Two GPUs, one of which finds a new best while the other still times a candidate against the old one: whether that candidate is compared again goes
// by ratios that were measured in turn, not by times of two moments.
#include <doctest/doctest.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "core/base/json.h"
#include "orchestrator/service/service.h"
#include "tests/support/store_in.h"
#include "tests/support/temp_folder.h"
#include "tests/support/verdicts.h"

using namespace amk;

namespace {

const std::filesystem::path kTargets = std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus";

struct OnCard {
  double speedup = 1;  // over the default
  double crowd = 1;    // times as long as on a quiet card does everything take while this one is timed
};

// The default takes 100 us on a quiet card. The second candidate is timed against it, and its timing ends when the third has become the best and the
// fourth has begun.
class TwoGpus final : public CpuJudge {
 public:
  TwoGpus(OnCard second, OnCard third) : cards_{{}, second, third, {0.5, 1}} {}
  std::vector<GpuTarget> local_gpus() override { return {load_gpu_target("h200", kTargets).value()}; }
  int lanes(const GpuTarget&) override { return 2; }

  Result<Verdict> judge(const Workload& workload, const Json& canonical, Device, const IncumbentNow& incumbent, const Progress&) override {
    const std::string id = workload.schedule_id(canonical);
    std::size_t which = 0;
    bool first_time = false;
    {
      const std::lock_guard lock(mutex_);
      if (order_.empty()) order_[workload.schedule_id(workload.default_config())] = 0;
      first_time = order_.emplace(id, order_.size()).second || (order_[id] == 0 && judged[0] == 0);
      which = order_[id];
      ++judged[which];
      begun_ = std::max(begun_, which);
    }
    changed_.notify_all();
    if (which == 1 && first_time) wait([this] { return begun_ >= 2; });
    const auto best = incumbent().value();
    if (which == 1 && first_time) {
      {
        const std::lock_guard lock(mutex_);
        second_knows_whom_ = true;
      }
      changed_.notify_all();
      wait([this] { return begun_ >= 3; });
    }
    if (which == 2) wait([this] { return second_knows_whom_; });  // not the best before that
    const OnCard card = cards_[std::min<std::size_t>(which, 3)];
    Verdict v = test::verdict_on(workload, canonical, "GPU-fake");
    v.status = VerdictStatus::Ok;
    v.valid = v.correct = true;
    v.correctness = Correctness{};
    v.latency_us = 100 / card.speedup * card.crowd;
    v.latency_kind = LatencyKind::MeasuredGpu;
    v.bound_us = 0.01;
    v.pct_of_roofline = 1;
    if (best) {
      const std::lock_guard lock(mutex_);
      const double ratio = card.speedup / cards_[order_.at(workload.schedule_id(*best))].speedup;
      v.versus = Versus{workload.schedule_id(*best), ratio, ratio, ratio, ratio > 1 ? Decision::Faster : Decision::Slower};
    }
    return v;
  }

  std::map<std::size_t, int> judged;  // by candidate: how often

 private:
  template <class Condition>
  void wait(Condition condition) {
    std::unique_lock lock(mutex_);
    CHECK(changed_.wait_for(lock, std::chrono::seconds(60), condition));
  }
  std::vector<OnCard> cards_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::size_t> order_;  // by schedule: when it came, the default first
  std::size_t begun_ = 0;
  bool second_knows_whom_ = false;  // it is timed against
};

}  // namespace

TEST_CASE("a candidate that was overtaken is compared again when its ratio is as good, whatever the card's speed was meanwhile") {
  struct Case {
    OnCard second, third;
    int judged;
    double best_speedup;
  };
  for (const Case& c : {Case{{3, 1}, {2, 1}, 2, 3}, Case{{3, 10}, {2, 1}, 2, 3}, Case{{1.5, 1}, {2, 1}, 1, 2}, Case{{1.5, 1}, {2, 10}, 1, 2},
                        Case{{0.9, 1}, {2, 10}, 1, 2}}) {
    CAPTURE(c.second.speedup);
    CAPTURE(c.second.crowd);
    CAPTURE(c.third.crowd);
    test::TempFolder folder;
    auto store = test::store_in(folder.path);
    REQUIRE(store);
    TwoGpus judge(c.second, c.third);
    auto service = Service::create({folder.path, kTargets, "test"}, **store, judge);
    REQUIRE(service);
    SearchRequest request;
    request.model = "toy";
    request.gpu = "h200";
    request.device = "cuda";
    request.strategy = "random";
    request.budget = 4;
    const auto done = (*service)->loop(request, {});
    REQUIRE_MESSAGE(done, (done ? "" : done.error().message));
    CHECK(judge.judged[1] == c.judged);
    const Json& best = (*done)["best_verdict"]["latency_us"];
    const OnCard& winner = c.best_speedup == c.second.speedup ? c.second : c.third;
    CHECK(best.get<double>() == doctest::Approx(100 / winner.speedup * winner.crowd));
  }
}
