// The corpus as users see it: filtered pages of experiments, best per workload and device, exports, imports. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/campaign/campaign.h"
#include "orchestrator/results/series.h"
#include "orchestrator/store/store.h"

namespace amk {

enum class ResultsSort { Newest, Oldest, Fastest, Slowest };  // "-time", "time", "latency_us", "-latency_us"

inline constexpr int kLargestPage = 200;

struct ResultsQuery {
  std::string workload, gpu, device_kind, regime;  // empty: any
  std::optional<CampaignId> campaign;
  std::vector<Outcome> outcomes;                // empty: any that ended
  std::string latency_kind, schedule_id, loop;  // empty: any
  std::optional<std::int64_t> since_wall_us, until_wall_us;
  bool foreign = false;  // rows imported from elsewhere instead of our own
  ResultsSort sort = ResultsSort::Newest;
  int limit = 20;      // 1…200
  std::string cursor;  // of the previous page; bound to the same filters
};
// From the arguments of amk_results (schemas/tools/amk_results.json; `best` and `diff` are not part of a query). Unknown keys and wrong
// values are refused by name.
Result<ResultsQuery> results_query_from_json(const Json& arguments);

struct ResultsPage {
  std::vector<Json> rows;
  std::string next_cursor;  // empty: the end. A page may be shorter than `limit` and still have a next one
};

class Results {
 public:
  explicit Results(Store& store) : store_(store) {}

  Result<ResultsPage> page(const ResultsQuery& query) const;  // InvalidArgument for a cursor that is not ours or of another query
  Result<Json> grouped(std::string_view by) const;            // by workload, gpu, device_kind, regime, outcome: counts, fastest kept
  Result<Json> best(const ResultsQuery& filters = {}) const;  // the best of every campaign of this workload, GPU, id
  // Two schedule_ids or experiment ids ("e12"), of one campaign where there is one that has both: {"differs": {knob: [a, b]}, "ratio": latency a /
  // latency b where both were measured alike, else null, "in_turn": {ratio, ci95} where the evaluator held one against the other, else null}.
  Result<Json> config_diff(std::string_view a, std::string_view b) const;
  // Every experiment of the campaign that ended after `end_seq` (0: all), in the order they ended. Returns the last end_seq seen.
  Result<std::int64_t> series(CampaignId id, std::int64_t end_seq, const std::function<void(const SeriesPoint&)>& each) const;
  enum class Format { Tsv, Csv, Jsonl };
  Result<std::int64_t> export_to(const std::filesystem::path& path, Format format, const ResultsQuery& filters) const;  // rows written

 private:
  Store& store_;
};

// workspace/results.tsv and workspace/corpus.jsonl: exports that follow the store. Lines that a crash tore are moved to results.quarantine and
// the file is rebuilt. A failure here loses nothing: the store is the source of truth, and the next call catches up.
class ResultFiles {
 public:
  explicit ResultFiles(Store& store);
  ~ResultFiles();
  // Appends what ended since the last call; the first call compares the files with the store and rebuilds them when they differ.
  Status catch_up();
  // Begins that on a thread of its own and returns when it is done or `patience` is over: to write a million rows anew takes a quarter of a minute,
  // and a daemon is waited for. Once; the destructor waits for its end.
  void catch_up_beside(std::chrono::milliseconds patience);
  // As catch_up(), for CampaignService::on_end: when another thread is at it, that one takes these rows along and this call returns at once.
  void poke();
  Status rebuild();  // writes both anew (temporary name, fsync, rename, directory fsync)
  std::filesystem::path tsv_path() const;
  std::filesystem::path corpus_path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct ImportReport {
  std::int64_t rows = 0, duplicates = 0;
  struct Refused {
    std::int64_t line = 0;
    std::string why;
  };
  std::vector<Refused> refused;  // the first 100
  std::int64_t refused_count = 0;
};
Json to_json(const ImportReport& report);

// results.tsv (twelve or more columns) or corpus.jsonl, ours or another tool's, by content. Rows become foreign: they seed the prior, never a best.
Result<ImportReport> import_results(Store& store, const std::filesystem::path& file, std::string_view source);

// A foreign point, for the prior.
struct ForeignRow {
  std::string workload, gpu, regime, correctness, schedule_id, latency_kind, source;
  std::optional<double> latency_us, bound_us, pct_of_roofline;
  Json config = nullptr;
};
Result<std::vector<ForeignRow>> foreign_rows(const Store& store, std::string_view workload, std::string_view gpu, int limit);

}  // namespace amk
