// A day of work on a fake clock, in a minute or two: an experiment every ten simulated seconds, clients that come and go, jobs, reads and reports.
// Nothing that should stay level grows, and what the store says at the end is what was done. AMK_SOAK_HOURS: another length than 24.
#include <doctest/doctest.h>
#include <malloc.h>
#include <sqlite3.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "core/base/json.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/results/results.h"
#include "server/daemon/jobs.h"
#include "server/daemon/log.h"
#include "server/protocol/server.h"
#include "tests/support/fake_server/fake_server.h"
#include "tests/support/temp_folder.h"
#include "tests/support/verdicts.h"

using namespace amk;
using namespace amk::test;

namespace {

constexpr std::int64_t kSecond = 1'000'000, kStep = 10 * kSecond;
constexpr int kStepsAnHour = 360;

template <class T>
T must_have(Result<T> result) {
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int open_descriptors() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

std::int64_t bytes_in(const std::filesystem::path& folder) {
  std::int64_t sum = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) sum += static_cast<std::int64_t>(entry.file_size());
  return sum;
}

struct Counting final : mcp::Outlet {
  std::atomic<int> sent{0};
  void send(const Json&) override { ++sent; }
};

// One client: handshake, a call, gone.
void client_comes_and_goes(mcp::Server& server) {
  const auto outlet = std::make_shared<Counting>();
  const auto session = server.open(outlet);
  session->receive(
      Json{{"jsonrpc", "2.0"},
           {"id", 1},
           {"method", "initialize"},
           {"params", {{"protocolVersion", "2025-11-25"}, {"capabilities", Json::object()}, {"clientInfo", {{"name", "c"}, {"version", "1"}}}}}});
  session->receive(Json{{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}});
  session->receive(Json{{"jsonrpc", "2.0"}, {"id", 2}, {"method", "tools/call"}, {"params", {{"name", "echo"}, {"arguments", {{"text", "hi"}}}}}});
  for (int i = 0; i < 20'000 && outlet->sent < 2; ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
  CHECK(outlet->sent == 2);
  session->close();
}

// Of all arenas and of what was mapped: what the program holds, whatever the allocator keeps for later.
std::int64_t allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

struct Level {
  std::int64_t own = 0, pages = 0, resident = 0, wal = 0, database = 0, logs = 0, exports = 0;
  int descriptors = 0;
};

}  // namespace

TEST_CASE("a day of work leaves memory, descriptors, log and journal where they were, and every count as it should be") {
  const char* set = std::getenv("AMK_SOAK_HOURS");
  const int hours = set != nullptr ? std::max(6, std::atoi(set)) : 24;
  TempFolder folder;
  std::filesystem::create_directories(folder.path / "logs");
  REQUIRE(daemon::open_log(folder.path / "logs"));
  FakeClock clock;
  StoreOptions options;
  options.workspace = folder.path / "workspace";
  options.clock = &clock;
  options.reserve_bytes = 0;
  const auto store = must_have(Store::open(options));
  const auto campaigns = must_have(CampaignService::create(*store));
  ResultFiles files(*store);
  campaigns->on_end([&files] { files.poke(); });
  mcp::Server server(amk::testing::fake_definition());
  JobManager::Options job_options;
  job_options.clock = &clock;
  JobManager jobs(job_options);
  CampaignPolicy policy;
  policy.plateau = 0;  // overnight
  const auto campaign = must_have(campaigns->open({"toy", "h100", "cpu", "bf16-b1"}, policy)).id;
  const auto busy = campaigns->activity(campaign);

  std::map<std::string, std::int64_t> outcomes;
  double best = 1e9;
  std::vector<Level> levels;
  for (int step = 0; step < hours * kStepsAnHour; ++step) {
    BeginRequest request;
    // Latencies fall slowly from 1000 us towards the floor of 50: a keep every now and then.
    const double latency = 100 + 900.0 * std::exp(-step / 2000.0) + 40 * std::abs(std::sin(step * 1.7));
    const Verdict verdict =
        step % 10 == 3 ? bad({{"n", step}}, step % 20 == 3 ? VerdictStatus::Rejected : VerdictStatus::Crash) : verdict_of({{"n", step}}, latency);
    request.config = verdict.config;
    request.schedule_id = verdict.schedule_id;
    request.loop = "soak";
    const Ticket ticket = must_have(campaigns->begin(campaign, request));
    clock.advance_us(kStep);
    const Recorded recorded = step % 97 == 5 ? must_have(campaigns->lose(ticket, "worker lost")) : must_have(campaigns->finish(ticket, verdict));
    REQUIRE(recorded.experiment.outcome);
    ++outcomes[std::string(to_string(*recorded.experiment.outcome))];
    if (*recorded.experiment.outcome == Outcome::Kept) best = std::min(best, *recorded.experiment.latency_us);
    if (step % 6 == 0) {  // each minute
      must_have(campaigns->status(campaign));
      must_have(campaigns->next(campaign));
      ResultsQuery query;
      must_have(Results(*store).page(query));
      client_comes_and_goes(server);
      JobRequest job;
      job.kind = "soak";
      job.run = [](JobContext&) -> Result<Json> { return Json{{"text", std::string(4000, 'x')}}; };
      const auto started = must_have(jobs.start(std::move(job)));
      must_have(jobs.wait(started.job_id, 60));
      for (int line = 0; line < 40; ++line) daemon::log_line("info", "minute " + std::to_string(step / 6) + " " + std::string(400, 'l'));
    }
    if (step % kStepsAnHour == kStepsAnHour - 1) {
      must_have(campaigns->report(campaign));
      const StoreHealth health = store->health();
      const std::int64_t pages = sqlite3_memory_used();
      levels.push_back({allocated_bytes() - pages, pages, resident_bytes(), health.wal_bytes, health.database_bytes, bytes_in(folder.path / "logs"),
                        static_cast<std::int64_t>(std::filesystem::file_size(files.tsv_path())), open_descriptors()});
    }
  }

  // Bounds. The first four hours fill what is kept for good: 256 finished jobs, page caches, the allocator's pools.
  const Level &early = levels[3], &late = levels.back();
  const std::int64_t experiments = static_cast<std::int64_t>(hours) * kStepsAnHour;
  MESSAGE(hours << " simulated hours, " << experiments << " experiments: own memory " << (early.own >> 10) << " -> " << (late.own >> 10)
                << " KiB, page cache " << (early.pages >> 20) << " -> " << (late.pages >> 20) << " MiB, resident " << (early.resident >> 20) << " -> "
                << (late.resident >> 20) << " MiB, descriptors " << early.descriptors << " -> " << late.descriptors << ", journal "
                << (late.wal >> 10) << " KiB, logs " << (late.logs >> 20) << " MiB, database " << late.database / experiments
                << " bytes an experiment");
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  CHECK(late.own - early.own < (1 << 20));
  CHECK(late.pages < (100 << 20));  // the page caches of store.cpp and readers.cpp: 64 MiB, and 8 MiB for each of three readers
  CHECK(late.resident < (256 << 20));
#endif
  CHECK(late.descriptors <= early.descriptors);
  for (const Level& level : levels) {
    CHECK(level.wal < (16 << 20));
    CHECK(level.logs < (21 << 20));  // daemon.log and three before it, 5 MiB each
  }
  CHECK(late.database < 8'000 * experiments);
  CHECK(jobs.list().size() <= 257);

  // What was done is what is there.
  CHECK(campaigns->check(campaign));
  const Json status = must_have(campaigns->status(campaign));
  std::int64_t ended = 0;
  for (const auto& [outcome, n] : outcomes) {
    CAPTURE(outcome);
    CHECK(status.at("counts").at(outcome) == n);
    ended += n;
  }
  CHECK(ended == experiments);
  const auto fastest = must_have(campaigns->best(campaign));
  REQUIRE(fastest);
  CHECK(*fastest->latency_us == best);
  CHECK(status.at("time").at("spent_s").get<double>() == doctest::Approx(hours * 3600.0).epsilon(1e-9));
  REQUIRE(files.catch_up());
  std::ifstream tsv(files.tsv_path());
  std::int64_t lines = 0;
  for (std::string line; std::getline(tsv, line);) ++lines;
  CHECK(lines == experiments + 1);
}
