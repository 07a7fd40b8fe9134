// A search on a machine with several equal GPUs, played by a judge whose candidates take time and are measured against the incumbent it was given.
#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/json.h"
#include "orchestrator/service/service.h"
#include "tests/support/store_in.h"
#include "tests/support/temp_folder.h"
#include "tests/support/verdicts.h"

using namespace amk;

namespace {

const std::filesystem::path kGpus = std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus";

// Three GPUs. A candidate's time is what the cost model predicts, exactly; comparisons are exact too.
class ThreeGpus final : public CpuJudge {
 public:
  static constexpr int kLanes = 3;
  std::vector<GpuTarget> local_gpus() override { return {load_gpu_target("rtx5090", kGpus).value()}; }
  int lanes(const GpuTarget&) override { return kLanes; }

  Result<Verdict> judge(const Workload& workload, const Json& canonical, Device device, const IncumbentNow& incumbent,
                        const Progress& progress) override {
    CHECK(device == Device::Cuda);
    progress.phase("timing");
    {
      // The first three meet here: whoever comes waits for the others.
      std::unique_lock lock(mutex_);
      most_ = std::max(most_, ++running_);
      all_here_ = all_here_ || running_ == kLanes;
      arrived_.notify_all();
      arrived_.wait_for(lock, std::chrono::seconds(20), [this] { return all_here_; });
    }
    Verdict v = test::verdict_on(workload, canonical, "GPU-fake");
    const auto us = workload.predict_us(canonical);
    const auto best = incumbent().value();
    if (us) {
      v.status = VerdictStatus::Ok;
      v.valid = v.correct = true;
      v.correctness = Correctness{};
      v.latency_us = *us;
      v.latency_kind = LatencyKind::MeasuredGpu;
      v.bound_us = 0.01;
      v.pct_of_roofline = 1;
      if (best) {
        const double ratio = workload.predict_us(*best).value() / *us;
        v.versus = Versus{workload.schedule_id(*best), ratio, ratio, ratio, ratio > 1 ? Decision::Faster : Decision::Slower};
      }
    } else {
      v.status = VerdictStatus::Rejected;
      v.rejected = RejectedBy{"fake", us.error().message, Json::object()};
    }
    const std::lock_guard lock(mutex_);
    --running_;
    return v;
  }

  int most() const { return most_; }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  int running_ = 0, most_ = 0;
  bool all_here_ = false;
};

}  // namespace

TEST_CASE("three GPUs: candidates are judged at once, each once, and the best is the fastest of all") {
  test::TempFolder folder;
  auto store = test::store_in(folder.path);
  REQUIRE(store);
  ThreeGpus judge;
  auto service = Service::create({folder.path, kGpus, "test"}, **store, judge);
  REQUIRE(service);

  SearchRequest request;
  request.model = "toy";
  request.gpu = "rtx5090";
  request.device = "cuda";
  request.strategy = "random";
  request.budget = 40;
  const auto done = (*service)->loop(request, {});
  REQUIRE_MESSAGE(done, done.error().message);
  CHECK((*done)["evaluations"] == 40);
  CHECK(judge.most() == 3);

  const auto rows = (*service)->results({{"limit", 100}});
  REQUIRE(rows);
  std::set<std::string> schedules;
  double fastest = 1e30;
  for (const Json& row : (*rows)["rows"]) {
    schedules.insert(row["schedule_id"].get<std::string>());
    if (row["latency_us"].is_number()) fastest = std::min(fastest, row["latency_us"].get<double>());
  }
  CHECK(schedules.size() == 40);
  // A page that was not asked to be long fits into an agent's reply; pages together have every row.
  std::size_t paged = 0;
  for (Json filters = Json::object();;) {
    const auto page = (*service)->results(filters);
    REQUIRE(page);
    CHECK(page->dump().size() <= 8192);
    paged += (*page)["rows"].size();
    if (!page->contains("next_cursor")) break;
    filters["cursor"] = (*page)["next_cursor"];
  }
  CHECK(paged == 40);
  // Time is told phase by phase: the search's, the workload's, the judge's, and the rest.
  const auto campaign = (*service)->campaigns().resolve((*done)["campaign"].get<std::string>());
  REQUIRE(campaign);
  const auto report = (*service)->campaigns().report(*campaign);
  REQUIRE(report);
  const Json& phases = report->json["history"]["time_by_phase_s"];
  for (const char* name : {"search", "lowering", "validation", "timing", "other"}) {
    CAPTURE(name);
    CHECK(phases.contains(name));
  }
  CHECK_FALSE(phases.contains("evaluation"));
  // A keep needs 1%: the best may be that much slower than the fastest, not more.
  const double best = (*done)["best_verdict"]["latency_us"].get<double>();
  CHECK(best <= fastest * 1.0101);
}

namespace {

// Two GPUs of one kind and one of another.
class MixedGpus final : public CpuJudge {
 public:
  std::vector<GpuTarget> local_gpus() override { return {load_gpu_target("h200", kGpus).value(), load_gpu_target("h100", kGpus).value()}; }
  int lanes(const GpuTarget& target) override { return target.name == "h200" ? 2 : 1; }
  Result<Verdict> judge(const Workload& workload, const Json& canonical, Device device, const IncumbentNow&, const Progress& progress) override {
    CHECK(device == Device::Cuda);
    {
      const std::lock_guard lock(mutex_);
      judged[workload.target().name].insert(workload.schedule_id(canonical));
    }
    AMK_TRY(verdict, CpuJudge::judge(
                         workload, canonical, Device::Cpu, [] { return std::optional<Json>(); }, progress));
    verdict.device = "GPU of " + workload.target().name;
    if (verdict.latency_us) verdict.latency_kind = LatencyKind::MeasuredGpu;
    return verdict;
  }
  std::map<std::string, std::set<std::string>> judged;  // schedules

 private:
  std::mutex mutex_;
};

}  // namespace

TEST_CASE("GPUs of two kinds: each has campaigns of its own, judged on its own; others are refused by name") {
  test::TempFolder folder;
  auto store = test::store_in(folder.path);
  REQUIRE(store);
  MixedGpus judge;
  auto service = Service::create({folder.path, kGpus, "test"}, **store, judge);
  REQUIRE(service);
  std::set<std::string> campaigns;
  SearchRequest request;
  request.model = "toy";
  request.device = "cuda";
  request.strategy = "random";
  for (const auto& [gpu, budget] : {std::pair{"auto", 5}, std::pair{"h100", 3}}) {
    request.gpu = gpu;
    request.budget = budget;
    const auto done = (*service)->loop(request, {});
    REQUIRE_MESSAGE(done, done.error().message);
    campaigns.insert((*done)["campaign"].get<std::string>());
    const std::string kind = (*done)["gpu"].get<std::string>();
    CHECK(kind == (std::string(gpu) == "auto" ? "h200" : gpu));
    const auto rows = (*service)->results({{"campaign", (*done)["campaign"]}, {"limit", 100}});
    REQUIRE(rows);
    CHECK((*rows)["rows"].size() == static_cast<std::size_t>(budget));
    for (const Json& row : (*rows)["rows"]) CHECK(row["device"] == "GPU of " + kind);
  }
  CHECK(campaigns.size() == 2);
  // Schedules, not judgements: of two GPUs one may have to compare again with what became the best meanwhile.
  CHECK(judge.judged.size() == 2);
  CHECK(judge.judged["h100"].size() == 3);
  CHECK(judge.judged["h200"].size() == 5);
  request.gpu = "l4";
  const auto refused = (*service)->loop(request, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("h200, h100") != std::string::npos);
}
