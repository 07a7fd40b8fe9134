// What happened in a campaign, for its report: the course of the best, what mattered, where the time went, what was believed.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "orchestrator/campaign/knob_importance.h"
#include "orchestrator/campaign/rows.h"

namespace amk {

// What the experiments of one campaign add up to, kept between reports: an ended experiment never changes, so a report reads only those that ended
// since the last one, the first all of them, in memory that does not depend on how many there are. Lock `mutex` before the transaction begins in
// which json() reads: what was read must not be newer than the rest of the report.
class History {
 public:
  // At once it looks at what ended within so many ends of the whole store.
  explicit History(CampaignId id, std::int64_t window = 50'000) : id_(id), window_(window) {}
  std::mutex mutex;

  // Reads on; false when nothing was left. Before json(), each in a transaction of its own, so that none holds its view of the store for long.
  Result<bool> read_on(sql::Connection& c);
  // {"course": [{"experiment", "n", "latency_us"}…], "experiments_read", "knob_importance": […], "time_by_phase_s": {…}, "hypotheses": […],
  // "floor_us"}; n counts the experiments read.
  Result<Json> json(sql::Connection& c);

 private:
  Status count(sql::Connection& c, std::int64_t experiment);

  const CampaignId id_;
  const std::int64_t window_;
  std::int64_t upto_ = 0;  // what ended up to this end_seq was read
  std::int64_t n_ = 0;
  std::list<Json> course_;
  std::map<std::string, double> phases_s_;
  KnobImportance importance_;
  double floor_us_ = 0;
};

// Those of the campaigns that were asked for last. Thread-safe.
class Histories {
 public:
  std::shared_ptr<History> of(CampaignId id);

 private:
  static constexpr std::size_t kKept = 8;
  std::mutex mutex_;
  std::list<std::pair<CampaignId, std::shared_ptr<History>>> kept_;  // most recently used first
};

// Charts of a report as (name, SVG): "best-so-far", "knobs", "outcomes", "phases".
std::vector<std::pair<std::string, std::string>> report_plots(const Json& report);

}  // namespace amk
