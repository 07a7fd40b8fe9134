// The leases of this process that somebody works on: renewed until their holds end. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "orchestrator/campaign/campaign.h"

namespace amk {

struct HeldLease {
  Ticket ticket;
  std::int64_t lease_us = 0;  // from each renewal
};

class HeldLeases {
 public:
  void add(const HeldLease& lease) {
    const std::lock_guard lock(mutex_);
    held_[lease.ticket.experiment] = lease;
  }
  void remove(const Ticket& ticket) {
    const std::lock_guard lock(mutex_);
    held_.erase(ticket.experiment);
  }
  std::vector<HeldLease> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<HeldLease> out;
    for (const auto& [experiment, lease] : held_) out.push_back(lease);
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::map<ExperimentId, HeldLease> held_;
};

}  // namespace amk
