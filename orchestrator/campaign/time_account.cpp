#include "orchestrator/campaign/time_account.h"

namespace amk {

void TimeAccount::start_locked(Entry& entry) {
  if (entry.active++ == 0) entry.since_us = clock_.boot_us();
}

void TimeAccount::stop_locked(Entry& entry) {
  if (entry.active == 0) return;
  if (--entry.active == 0) entry.pending_us += clock_.boot_us() - entry.since_us;
}

std::int64_t TimeAccount::uncharged_locked(const Entry& entry) const {
  return entry.pending_us + (entry.active > 0 ? clock_.boot_us() - entry.since_us : 0);
}

void TimeAccount::start(CampaignId campaign) {
  const std::lock_guard lock(mutex_);
  start_locked(entries_[campaign]);
}

void TimeAccount::stop(CampaignId campaign) {
  const std::lock_guard lock(mutex_);
  stop_locked(entries_[campaign]);
}

void TimeAccount::start(CampaignId campaign, ExperimentId experiment) {
  const std::lock_guard lock(mutex_);
  if (running_.insert(experiment).second) start_locked(entries_[campaign]);
}

void TimeAccount::stop(CampaignId campaign, ExperimentId experiment) {
  const std::lock_guard lock(mutex_);
  if (running_.erase(experiment) > 0) stop_locked(entries_[campaign]);
}

std::int64_t TimeAccount::take(CampaignId campaign) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[campaign];
  const std::int64_t now_us = clock_.boot_us();
  const std::int64_t us = entry.pending_us + (entry.active > 0 ? now_us - entry.since_us : 0);
  entry.pending_us = 0;
  entry.since_us = now_us;
  return us;
}

void TimeAccount::give_back(CampaignId campaign, std::int64_t us) {
  const std::lock_guard lock(mutex_);
  entries_[campaign].pending_us += us;
}

std::int64_t TimeAccount::uncharged(CampaignId campaign) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(campaign);
  return found == entries_.end() ? 0 : uncharged_locked(found->second);
}

std::vector<CampaignId> TimeAccount::with_uncharged_time() const {
  const std::lock_guard lock(mutex_);
  std::vector<CampaignId> out;
  for (const auto& [campaign, entry] : entries_)
    if (uncharged_locked(entry) > 0) out.push_back(campaign);
  return out;
}

}  // namespace amk
