// A campaign on a fake clock, and verdicts as an evaluator would make them.
#pragma once

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/base/parse_json.h"
#include "core/base/random.h"
#include "orchestrator/campaign/campaign.h"
#include "tests/support/temp_folder.h"
#include "tests/support/verdicts.h"

namespace amk::test {

inline Json config(int n) { return {{"tile", n}, {"kernel_knobs", {{"cpasync", n % 2 == 0}}}}; }
inline Verdict measured(const Json& c, double latency_us, const std::string& incumbent, double low, double high) {
  Verdict v = verdict_of(c, latency_us);
  v.device = "GPU-1";
  v.latency_kind = LatencyKind::MeasuredGpu;
  if (!incumbent.empty()) {
    Versus versus{incumbent, (low + high) / 2, low, high, Decision::Inconclusive};
    if (low >= 1.01) versus.decision = Decision::Faster;
    if (high < 1) versus.decision = Decision::Slower;
    v.versus = versus;
  }
  return v;
}

template <class T>
T must(Result<T> result) {
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}
inline void must(Status status) {
  if (!status) FAIL(status.error().message);
}
template <class T>
std::string reason_of(const Result<T>& result) {
  return result || !result.error().data.contains("reason") ? "" : result.error().data["reason"].template get<std::string>();
}

// Fails the test, when it ends, for every statement that SQLite answered through an index made for that one question: it would be made of all
// experiments each time, and a test is too small for that to show.
struct NoAutomaticIndexes {
  NoAutomaticIndexes() { sqlite3_auto_extension(reinterpret_cast<void (*)()>(watch)); }  // of every connection opened from now on; once is enough
  ~NoAutomaticIndexes() {
    const std::lock_guard lock(mutex());
    for (const std::string& statement : found()) FAIL_CHECK(statement);
    found().clear();
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::set<std::string>& found() {
    static std::set<std::string> statements;
    return statements;
  }
  static int watch(sqlite3* db, const char**, const void*) {
    const auto done = [](unsigned, void*, void* statement, void*) {
      auto* s = static_cast<sqlite3_stmt*>(statement);
      const std::lock_guard lock(mutex());
      if (sqlite3_stmt_status(s, SQLITE_STMTSTATUS_AUTOINDEX, 0) > 0) found().insert(sqlite3_sql(s));
      return 0;
    };
    return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, done, nullptr);
  }
};

struct Lab {
  explicit Lab(CampaignPolicy policy = {}, const std::string& device_kind = "cpu") {
    open_store();
    campaign = must(service->open({"toy", "h100", device_kind, "bf16-b1"}, policy)).id;
  }
  void open_store() {
    service.reset();
    store.reset();
    StoreOptions options;
    options.workspace = folder.path;
    options.clock = &clock;
    options.reserve_bytes = 0;
    store = must(Store::open(options));
    service = must(CampaignService::create(*store));
  }
  Ticket begin(const Json& c, const std::string& key = "") {
    BeginRequest r;
    r.config = c;
    r.schedule_id = id_of(c);
    r.loop = "loop";
    r.description = "try " + c.dump();
    r.idempotency_key = key;
    return must(service->begin(campaign, r));
  }
  Recorded run(const Verdict& v) { return must(service->finish(begin(v.config), v)); }
  Recorded run(int n, double latency_us) { return run(verdict_of(config(n), latency_us)); }

  NoAutomaticIndexes watched;  // goes last
  TempFolder folder;
  FakeClock clock;
  std::unique_ptr<Store> store;
  std::unique_ptr<CampaignService> service;
  CampaignId campaign{};
};

}  // namespace amk::test
