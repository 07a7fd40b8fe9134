// Fills WORKSPACE with one campaign and times what the page asks of the daemon. Usage: dashboard WORKSPACE [EXPERIMENTS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/store/fill.h"
#include "core/base/parse_json.h"
#include "server/dashboard/api.h"
#include "server/tools/app.h"

using namespace amk;

namespace {

void print(const std::string& metric, double value, const char* unit) {
  std::printf("%s\n", Json({{"bench", "dashboard"}, {"metric", metric}, {"value", value}, {"unit", unit}}).dump().c_str());
  std::fflush(stdout);
}

// Milliseconds of one answer, and its bytes.
double ask(dashboard::Api& api, const std::string& name, const std::string& query, std::size_t& bytes, Json* answer = nullptr) {
  const auto begin = std::chrono::steady_clock::now();
  const auto got = api.get(name, query);
  if (!got) {
    std::fprintf(stderr, "bench/dashboard: %s: %s\n", name.c_str(), got.error().message.c_str());
    std::exit(1);
  }
  bytes = canonical_dump(*got).size();
  if (answer) *answer = *got;
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: dashboard WORKSPACE [EXPERIMENTS]\n"), 2;
  const std::filesystem::path workspace = argv[1];
  const int experiments = std::clamp(argc > 2 ? std::atoi(argv[2]) : 100'000, 100, 10'000'000);
  {
    StoreOptions options;
    options.workspace = workspace;
    auto store = Store::open(options);
    if (!store) return std::fprintf(stderr, "bench/dashboard: %s\n", store.error().message.c_str()), 1;
    auto campaigns = CampaignService::create(**store);
    if (!campaigns || !bench::fill(**store, **campaigns, experiments, 1)) return std::fprintf(stderr, "bench/dashboard: cannot fill\n"), 1;
  }
  auto app = App::open({workspace, {}});
  if (!app) return std::fprintf(stderr, "bench/dashboard: %s\n", app.error().message.c_str()), 1;
  dashboard::Api api((*app)->service(), (*app)->jobs(), workspace);
  print("experiments", experiments, "experiments");
  std::size_t bytes = 0;
  print("state", ask(api, "state", "", bytes), "ms");
  print("series_first", ask(api, "series", "campaign=c1", bytes), "ms");
  print("series_bytes", static_cast<double>(bytes), "bytes");
  print("importance_first", ask(api, "importance", "campaign=c1", bytes), "ms");
  const auto repeated = [&](const char* metric, const char* name, const std::string& query) {
    std::vector<double> ms;
    for (int i = 0; i < 21; ++i) ms.push_back(ask(api, name, query, bytes));
    print(metric, median(ms), "ms");
  };
  repeated("series_again", "series", "campaign=c1");
  repeated("importance_again", "importance", "campaign=c1");
  repeated("campaign", "campaign", "id=c1");
  repeated("results_newest", "results", "campaign=c1&limit=50");
  repeated("results_fastest_kept", "results", "campaign=c1&limit=50&sort=latency_us&outcome=kept");
  Json page;
  std::string cursor;
  std::vector<double> deep;
  for (int i = 0; i < 100; ++i) {
    deep.push_back(ask(api, "results", "campaign=c1&limit=50&sort=latency_us" + (cursor.empty() ? "" : "&cursor=" + cursor), bytes, &page));
    cursor = page.value("next_cursor", "");
  }
  print("results_page_100", deep.back(), "ms");
}
