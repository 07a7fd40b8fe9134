// What the files of CampaignService share.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/held_leases.h"
#include "orchestrator/campaign/history.h"
#include "orchestrator/campaign/rows.h"
#include "orchestrator/campaign/time_account.h"

namespace amk {

struct WorkerReport;  // finish.cpp

struct CampaignService::Impl {
  explicit Impl(Store& s) : store(s), time(std::make_shared<TimeAccount>(s.clock())) {}

  Store& store;
  std::shared_ptr<TimeAccount> time;                                  // shared with activities, which may outlive the service
  std::shared_ptr<HeldLeases> held = std::make_shared<HeldLeases>();  // shared with holds, which may outlive the service
  std::function<void()> on_end;
  Histories histories;

  // Advice given last, by campaign: so that next() does not repeat itself.
  std::mutex advice_mutex;
  std::map<CampaignId, std::string> advice_given;

  std::int64_t wall_us() const { return store.clock().wall_us(); }
  std::int64_t boot_us() const { return store.clock().boot_us(); }
  void ended() const {
    if (on_end) on_end();
  }
  // A write whose refusals may leave traces: an inner error is returned after the commit of what was written with it.
  template <class T>
  Result<T> write_either(std::string_view what, std::function<Result<Result<T>>(sql::Connection&)> body, OnDiskFull on_full = OnDiskFull::Fail) {
    Result<Result<T>> out = store.write<Result<T>>(what, std::move(body), on_full);
    if (!out) return tl::unexpected<Error>(std::move(out).error());
    return std::move(*out);
  }
  // Experiments of which nobody will report any more: back to their queue, or lost. Returns how many.
  Result<int> release(std::string_view reason, std::int64_t boot);  // boot: what is over by then
  Status renew_held(std::int64_t boot);
  Status charge_time(CampaignId id);  // that no experiment's end has carried into the store
  // finish() and lose(): one transaction, then the account of time and the callback.
  Result<Recorded> end(std::shared_ptr<WorkerReport> report, std::string_view what);
};

Status check_lease(std::int64_t lease_us);
// Unavailable when new work should wait for space.
Status refuse_when_full(const Store& store);
// Checks that a verdict survives its own text form: what is stored must be readable.
Status storable(const Verdict& verdict);

}  // namespace amk
