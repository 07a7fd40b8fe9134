// hold, renew, expire: whose experiment is whose, and when it is nobody's any more.
#include <utility>

#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/held_leases.h"
#include "orchestrator/campaign/service.h"
#include "orchestrator/campaign/transitions.h"

namespace amk {
namespace {

constexpr std::int64_t kMostAttempts = 3;
constexpr std::int64_t kLongestLease = std::int64_t{24} * 3600 * 1'000'000;

}  // namespace

Status check_lease(std::int64_t lease_us) {
  if (lease_us <= 0 || lease_us > kLongestLease) return bad_field("lease_us", lease_us, "more than 0, at most 24 hours");
  return {};
}

Status CampaignService::renew(const Ticket& ticket, std::int64_t lease_us) {
  AMK_CHECK(check_lease(lease_us));
  return impl_->store
      .write<bool>("renewing a lease",
                   [ticket, until = impl_->boot_us() + lease_us](sql::Connection& c) -> Result<bool> {
                     AMK_TRY(changed, c.run("UPDATE experiments SET lease_until_us = ?3 WHERE id = ?1 AND generation = ?2 AND state = 1",
                                            raw(ticket.experiment), ticket.generation, until));
                     if (changed == 0)
                       return fail(ErrorKind::Conflict, "the lease on " + to_string(ticket.experiment) + " has passed on",
                                   {{"reason", "stale-lease"}, {"experiment", to_string(ticket.experiment)}, {"generation", ticket.generation}});
                     return true;
                   })
      .map([](bool) {});
}

Result<int> CampaignService::Impl::release(std::string_view reason, std::int64_t boot) {
  auto body = [incarnation = store.incarnation(), boot, wall = wall_us(),
               why = std::string(reason)](sql::Connection& c) -> Result<std::vector<Ticket>> {
    struct Open {
      ExperimentId id;
      CampaignId campaign;
      std::int64_t seq, generation, attempts, config;
      bool requeue;
    };
    std::vector<Open> open;
    {
      AMK_TRY(row, c.query("SELECT id, campaign, seq, generation, attempts, config, requeue FROM experiments "
                           "WHERE state = 1 AND (incarnation <> ?1 OR lease_until_us <= ?2)",
                           incarnation, boot));
      for (;;) {
        AMK_TRY(more, row.next());
        if (!more) break;
        open.push_back({ExperimentId{row.i64(0)}, CampaignId{row.i64(1)}, row.i64(2), row.i64(3), row.i64(4), row.i64(5), row.i64(6) != 0});
      }
    }
    std::vector<Ticket> out;
    for (const Open& e : open) {
      AMK_TRY(campaign, rows::load_campaign(c, e.campaign));
      if (e.requeue && e.attempts < kMostAttempts) {
        AMK_CHECK(c.run("UPDATE experiments SET state = 0, lease_until_us = 0 WHERE id = ?1", raw(e.id)));
        --campaign.running;
        ++campaign.queued;
      } else {
        transitions::Ending ending;
        ending.experiment = e.id;
        ending.config = e.config;
        ending.judgement = {Outcome::Lost, why, false};
        ending.generation = e.generation + 1;
        ending.wall_us = wall;
        AMK_CHECK(transitions::end_experiment(c, campaign, ending));
      }
      AMK_CHECK(rows::save_campaign(c, campaign));
      out.push_back({e.campaign, e.id, e.seq, e.generation, false});
    }
    return out;
  };
  AMK_TRY(released, store.write<std::vector<Ticket>>("releasing leases", std::move(body)));
  for (const Ticket& ticket : released) time->stop(ticket.campaign, ticket.experiment);
  if (!released.empty()) ended();
  return static_cast<int>(released.size());
}

struct CampaignService::Hold::State {
  std::shared_ptr<HeldLeases> leases;
  Ticket ticket;
  ~State() { leases->remove(ticket); }
};
CampaignService::Hold::Hold(std::shared_ptr<State> state) : state_(std::move(state)) {}
CampaignService::Hold::Hold(Hold&&) noexcept = default;
CampaignService::Hold& CampaignService::Hold::operator=(Hold&&) noexcept = default;
CampaignService::Hold::~Hold() = default;

CampaignService::Hold CampaignService::hold(const Ticket& ticket, std::int64_t lease_us) {
  impl_->held->add({ticket, lease_us});
  auto state = std::make_shared<Hold::State>();
  state->leases = impl_->held;
  state->ticket = ticket;
  return Hold(std::move(state));
}

Status CampaignService::Impl::renew_held(std::int64_t boot) {
  const auto held_now = held->all();
  if (held_now.empty()) return {};
  // Only those of which more than half is gone, and that is seen without a write.
  const auto find_due = [&held_now, boot](sql::Connection& c) -> Result<std::vector<HeldLease>> {
    std::vector<HeldLease> out;
    for (const HeldLease& h : held_now) {
      AMK_TRY(row, c.query("SELECT 1 FROM experiments WHERE id = ?1 AND generation = ?2 AND state = 1 AND lease_until_us < ?3",
                           raw(h.ticket.experiment), h.ticket.generation, boot + h.lease_us / 2));
      AMK_TRY(found, row.next());
      if (found) out.push_back(h);
    }
    return out;
  };
  AMK_TRY(due, store.read<std::vector<HeldLease>>(find_due));
  if (due.empty()) return {};
  const auto renew_due = [due = std::move(due), boot](sql::Connection& c) -> Result<bool> {
    for (const HeldLease& h : due)
      AMK_CHECK(c.run("UPDATE experiments SET lease_until_us = ?3 WHERE id = ?1 AND generation = ?2 AND state = 1", raw(h.ticket.experiment),
                      h.ticket.generation, boot + h.lease_us));
    return true;
  };
  return store.write<bool>("renewing leases", renew_due).map([](bool) {});
}

Result<int> CampaignService::expire_leases() {
  // One look at the clock for all that follows: a machine that sleeps after the renewals must not find what they renewed to be over.
  const std::int64_t boot = impl_->boot_us();
  // First: whoever still works here is alive, however long the machine slept.
  AMK_CHECK(impl_->renew_held(boot));
  // Most calls find nothing: that is seen without a write.
  AMK_TRY(stale, impl_->store.read<bool>([incarnation = impl_->store.incarnation(), boot](sql::Connection& c) -> Result<bool> {
    AMK_TRY(row, c.query("SELECT 1 FROM experiments WHERE state = 1 AND (incarnation <> ?1 OR lease_until_us <= ?2) LIMIT 1", incarnation, boot));
    return row.next();
  }));
  if (!stale) return 0;
  return impl_->release("lease-expired", boot);
}

}  // namespace amk
