// How long each campaign has been worked on: the union of the intervals in which anything of it ran, on the boot clock. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "orchestrator/store/types.h"

namespace amk {

class TimeAccount {
 public:
  explicit TimeAccount(const Clock& clock) : clock_(clock) {}

  void start(CampaignId campaign);
  void stop(CampaignId campaign);
  // An experiment counts once, however often its end is reported.
  void start(CampaignId campaign, ExperimentId experiment);
  void stop(CampaignId campaign, ExperimentId experiment);

  // The time not yet charged; it is charged now, unless it is given back.
  std::int64_t take(CampaignId campaign);
  void give_back(CampaignId campaign, std::int64_t us);
  std::int64_t uncharged(CampaignId campaign) const;
  std::vector<CampaignId> with_uncharged_time() const;

 private:
  struct Entry {
    int active = 0;
    std::int64_t since_us = 0;    // boot clock; meaningful while active
    std::int64_t pending_us = 0;  // of intervals that ended
  };
  void start_locked(Entry& entry);
  void stop_locked(Entry& entry);
  std::int64_t uncharged_locked(const Entry& entry) const;

  const Clock& clock_;
  mutable std::mutex mutex_;
  std::map<CampaignId, Entry> entries_;
  std::set<ExperimentId> running_;
};

}  // namespace amk
