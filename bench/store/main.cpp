// Figures of the store. Usage: store [--experiments N] [--seconds S] [--folder DIR]; one JSON object a line.
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "bench/store/fill.h"
#include "core/base/number_text.h"
#include "orchestrator/results/results.h"

using namespace amk;

namespace {

using Seconds = std::chrono::duration<double>;
double now_s() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double cpu_s() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void print(const std::string& metric, double value, const char* unit) {
  std::printf("{\"bench\":\"store\",\"metric\":\"%s\",\"value\":%s,\"unit\":\"%s\"}\n", metric.c_str(), with_digits(value, 6).c_str(), unit);
  std::fflush(stdout);
}

template <class T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "store: %s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(*result);
}
void must(Status status) {
  if (!status) {
    std::fprintf(stderr, "store: %s\n", status.error().message.c_str());
    std::exit(1);
  }
}

std::unique_ptr<Store> open_store(const std::filesystem::path& folder) {
  StoreOptions options;
  options.workspace = folder;
  return must(Store::open(options));
}

double thread_cpu_s() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// One call, over many: its time in milliseconds at the middle and the 99th percentile, and the 99th percentile of the calling thread's own
// CPU time, in which a busy machine does not count.
void time_calls(const std::string& name, int calls, const std::function<void(int)>& call) {
  std::vector<double> ms, cpu_ms;
  for (int i = 0; i < calls; ++i) {
    const double start = now_s(), cpu_start = thread_cpu_s();
    call(i);
    cpu_ms.push_back((thread_cpu_s() - cpu_start) * 1e3);
    ms.push_back((now_s() - start) * 1e3);
  }
  std::sort(ms.begin(), ms.end());
  std::sort(cpu_ms.begin(), cpu_ms.end());
  print(name + "_p50", ms[ms.size() / 2], "ms");
  print(name + "_p99", ms[ms.size() * 99 / 100], "ms");
  print(name + "_cpu_p99", cpu_ms[cpu_ms.size() * 99 / 100], "ms");
}

// Whole experiments (begin, then finish with a verdict), each acknowledged only when durable.
void bench_records(const std::filesystem::path& folder, int threads, double seconds) {
  auto store = open_store(folder);
  auto service = must(CampaignService::create(*store));
  const CampaignId id = must(service->open({"llama-3.2-1b", "h200", "cpu", "bf16-b1"}, {0, -1, {}, {}})).id;
  std::atomic<std::int64_t> finished{0}, next{0};
  const StoreHealth before = store->health();
  const double start = now_s(), cpu_start = cpu_s();
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&] {
      while (now_s() - start < seconds) {
        const std::int64_t n = next++;
        const Verdict v = bench::verdict(bench::config(n), 100 + static_cast<double>(n % 100));
        BeginRequest r;
        r.config = v.config;
        r.schedule_id = v.schedule_id;
        r.idempotency_key = "k" + std::to_string(n);
        must(service->finish(must(service->begin(id, r)), v));
        ++finished;
      }
    });
  for (auto& thread : pool) thread.join();
  const double elapsed = now_s() - start;
  const StoreHealth after = store->health();
  const std::string suffix = "_" + std::to_string(threads) + "_threads";
  print("durable_records_per_s" + suffix, static_cast<double>(after.writes - before.writes) / elapsed, "1/s");
  print("experiments_per_s" + suffix, static_cast<double>(finished) / elapsed, "1/s");
  print("records_per_commit" + suffix, static_cast<double>(after.writes - before.writes) / static_cast<double>(after.commits - before.commits), "1");
  // Says what the store itself costs, however busy the machine is.
  print("cpu_per_record" + suffix, (cpu_s() - cpu_start) * 1e6 / static_cast<double>(after.writes - before.writes), "us");
  must(service->check(id));
}

void bench_scale(const std::filesystem::path& folder, std::int64_t experiments) {
  std::vector<CampaignId> ids;
  {
    auto store = open_store(folder);
    auto service = must(CampaignService::create(*store));
    const double start = now_s();
    ids = must(bench::fill(*store, *service, experiments, 20));
    std::fprintf(stderr, "store: filled %lld experiments in %.1f s\n", static_cast<long long>(experiments), now_s() - start);
  }
  print("experiments", static_cast<double>(experiments), "1");
  const double start = now_s();
  auto store = open_store(folder);
  auto service = must(CampaignService::create(*store));
  print("open", (now_s() - start) * 1e3, "ms");
  print("database_bytes_per_experiment", static_cast<double>(store->health().database_bytes) / static_cast<double>(experiments), "B");

  const auto campaign = [&](int i) { return ids[static_cast<std::size_t>(i) % ids.size()]; };
  time_calls("status", 500, [&](int i) { must(service->status(campaign(i))); });
  time_calls("status_all", 200, [&](int) { must(service->status(std::nullopt)); });
  time_calls("next", 500, [&](int i) { must(service->next(campaign(i))); });
  // The first of each campaign reads up to 20,000 experiments, a later one those that ended since.
  time_calls("report_first", static_cast<int>(ids.size()), [&](int i) { must(service->report(campaign(i))); });
  for (int i = 0; i < 8; ++i) must(service->report(campaign(i)));  // as many as are kept
  time_calls("report_again", 200, [&](int i) { must(service->report(ids[static_cast<std::size_t>(i) % 8])); });
  const Results results(*store);
  const auto pages = [&](const std::string& name, ResultsQuery q) {
    time_calls("page_" + name, 200, [&](int) {
      const ResultsPage page = must(results.page(q));
      q.cursor = page.next_cursor;
    });
  };
  ResultsQuery q;
  pages("newest", q);
  q.workload = "workload-7";
  pages("of_one_workload", q);
  q.sort = ResultsSort::Fastest;
  pages("of_one_workload_fastest", q);
  q = {};
  q.sort = ResultsSort::Fastest;
  pages("fastest", q);
  q = {};
  q.outcomes = {Outcome::Kept};
  pages("kept", q);
  q = {};
  q.loop = "nobody";  // no index answers this: the page is short, the work bounded
  pages("unindexed_filter", q);
  time_calls("best", 100, [&](int) { must(results.best()); });
  time_calls("recount", 3, [&](int i) { must(service->check(campaign(i))); });
  time_calls("finish", 200, [&](int i) {
    const Verdict v = bench::verdict(bench::config(experiments + i), 5000);
    BeginRequest r;
    r.config = v.config;
    r.schedule_id = v.schedule_id;
    must(service->finish(must(service->begin(campaign(i), r)), v));
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t experiments = 1'000'000;
  double seconds = 3;
  std::filesystem::path base = std::filesystem::temp_directory_path();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--experiments")
      experiments = std::strtoll(argv[i + 1], nullptr, 10);
    else if (flag == "--seconds")
      seconds = std::strtod(argv[i + 1], nullptr);
    else if (flag == "--folder")
      base = argv[i + 1];
    else {
      std::fprintf(stderr, "usage: store [--experiments N] [--seconds S] [--folder DIR]\n");
      return 2;
    }
  }
  std::string pattern = (base / "amk-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    std::fprintf(stderr, "store: cannot make a folder in %s\n", base.c_str());
    return 1;
  }
  const std::filesystem::path folder = pattern;
  for (const int threads : {1, 8}) bench_records(folder / ("records" + std::to_string(threads)), threads, seconds);
  if (experiments > 0) bench_scale(folder / "scale", experiments);
  std::error_code code;
  std::filesystem::remove_all(folder, code);
  return 0;
}
