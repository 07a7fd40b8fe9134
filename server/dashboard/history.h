// What the plots of a campaign are drawn from, kept between requests: a request reads only what ended since the last one. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "orchestrator/service/service.h"
#include "server/dashboard/importance.h"

namespace amk::dashboard {

class History {
 public:
  History(amk::Service& service, CampaignId id) : service_(service), id_(id) {}
  CampaignId id() const { return id_; }

  // {"campaign", "total", "kind", "floor_us", "points": {"n", "latency_us", "outcome", "experiment"}, "best": {"n", "latency_us", "mad_us",
  // "experiment"}, "timeline": {"per", "counts"}, "outcomes": names}. n counts ended experiments from 1; points are at most `points`, the
  // steps of the best are all there. floor_us is the physical floor of the best (or newest) experiment; null: unknown.
  Result<Json> series(std::size_t points);
  // {"campaign", "knobs": Importance::ranked, "phases_s": {name: seconds}}: the phases as the report's time_by_phase_s sums them.
  Result<Json> importance();

 private:
  struct Step {
    std::uint32_t n = 0;
    std::int64_t experiment = 0;
    double latency_us = 0;
    std::optional<double> mad_us;
  };
  amk::Service& service_;
  const CampaignId id_;

  std::mutex series_mutex_;
  std::int64_t series_upto_ = 0;
  std::vector<float> latency_us_;  // NaN: none to draw
  std::vector<std::uint8_t> outcomes_;
  std::vector<std::int64_t> experiments_;
  std::vector<Step> best_;
  std::optional<double> floor_us_;
  bool any_measured_ = false, any_predicted_ = false;

  std::mutex importance_mutex_;
  std::int64_t importance_upto_ = 0;
  Importance importance_;
  std::map<std::string, double> phases_s_;
};

// The histories that were asked for last.
class Histories {
 public:
  explicit Histories(amk::Service& service) : service_(service) {}
  Result<std::shared_ptr<History>> of(const std::string& campaign);  // "c12"; NotFound

 private:
  static constexpr std::size_t kKept = 8;
  amk::Service& service_;
  std::mutex mutex_;
  std::list<std::shared_ptr<History>> kept_;  // most recently used first
};

}  // namespace amk::dashboard
