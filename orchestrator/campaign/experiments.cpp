// begin, enqueue, claim: how an experiment gets its worker. How it loses it again: leases.cpp.
#include <utility>

#include "core/base/parse_json.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/service.h"
#include "orchestrator/campaign/transitions.h"

namespace amk {
namespace {

Status check_text(std::string_view field, const std::string& text, std::size_t most) {
  if (text.size() <= most) return {};
  return bad_field(field, text, "at most " + std::to_string(most) + " bytes");
}

Status check_request(const BeginRequest& r) {
  if (!r.config.is_object()) return bad_field("config", r.config, "an object");
  if (r.schedule_id.empty() || r.schedule_id.size() > 128) return bad_field("schedule_id", r.schedule_id, "1 to 128 bytes");
  AMK_CHECK(check_text("kernel_id", r.kernel_id, 128));
  AMK_CHECK(check_text("tag", r.tag, 128));
  AMK_CHECK(check_text("loop", r.loop, 128));
  AMK_CHECK(check_text("strategy", r.strategy, 128));
  AMK_CHECK(check_text("worker", r.worker, 256));
  AMK_CHECK(check_text("description", r.description, 8192));
  AMK_CHECK(check_text("idempotency_key", r.idempotency_key, 256));
  return check_lease(r.lease_us);
}

// The first call's ticket when this key was used before; Conflict when it was used for another config.
Result<std::optional<Ticket>> repeated(sql::Connection& c, CampaignId campaign, const std::string& key, const std::string& config_text) {
  if (key.empty()) return std::nullopt;
  AMK_TRY(row, c.query("SELECT e.id, e.seq, e.generation, k.text FROM experiments e JOIN configs k ON k.id = e.config "
                       "WHERE e.campaign = ?1 AND e.idempotency_key = ?2",
                       raw(campaign), key));
  AMK_TRY(found, row.next());
  if (!found) return std::nullopt;
  if (row.view(3) != config_text)
    return fail(ErrorKind::Conflict, "idempotency_key \"" + key + "\" was used for another config",
                {{"reason", "key-reused"}, {"field", "idempotency_key"}, {"experiment", to_string(ExperimentId{row.i64(0)})}});
  return Ticket{campaign, ExperimentId{row.i64(0)}, row.i64(1), row.i64(2), true};
}

struct Prepared {
  BeginRequest request;
  std::string config_text;
};

}  // namespace

Status refuse_when_full(const Store& store) {
  if (!store.disk_full()) return {};
  return fail(ErrorKind::Unavailable, "the disk of " + store.workspace().string() + " is full: no new work until there is space",
              {{"reason", "disk-full"}, {"path", store.workspace().string()}});
}

Result<Ticket> CampaignService::begin(CampaignId id, const BeginRequest& request) {
  AMK_CHECK(check_request(request));
  AMK_CHECK(refuse_when_full(impl_->store));
  auto prepared = std::make_shared<const Prepared>(Prepared{request, canonical_dump(request.config)});
  auto body = [prepared, id, extra = impl_->time->uncharged(id), incarnation = impl_->store.incarnation(), wall = impl_->wall_us(),
               boot = impl_->boot_us()](sql::Connection& c) -> Result<Result<Ticket>> {
    AMK_TRY(again, repeated(c, id, prepared->request.idempotency_key, prepared->config_text));
    if (again) return Result<Ticket>(*again);
    AMK_TRY(campaign, rows::load_campaign(c, id));
    AMK_CHECK(transitions::refuse_done(campaign));
    AMK_CHECK(transitions::advance(c, campaign, extra));
    if (Status done = transitions::refuse_done(campaign); !done) {
      // The budget ran out between experiments: that is kept, the experiment is not begun.
      AMK_CHECK(rows::save_campaign(c, campaign));
      return Result<Ticket>(tl::unexpected<Error>(std::move(done).error()));
    }
    AMK_TRY(started, transitions::add_experiment(c, campaign, prepared->request, prepared->config_text, true, incarnation, wall, boot));
    AMK_CHECK(rows::save_campaign(c, campaign));
    return Result<Ticket>(Ticket{id, started.experiment, started.seq, 1, false});
  };
  AMK_TRY(ticket, impl_->write_either<Ticket>("beginning an experiment", std::move(body)));
  if (!ticket.repeated) impl_->time->start(id, ticket.experiment);
  return ticket;
}

Result<std::vector<ExperimentId>> CampaignService::enqueue(CampaignId id, const std::vector<BeginRequest>& requests) {
  if (requests.size() > 10'000) return bad_field("requests", requests.size(), "at most 10000 at once");
  AMK_CHECK(refuse_when_full(impl_->store));
  auto prepared = std::make_shared<std::vector<Prepared>>();
  for (const BeginRequest& request : requests) {
    AMK_CHECK(check_request(request));
    prepared->push_back({request, canonical_dump(request.config)});
  }
  return impl_->store.write<std::vector<ExperimentId>>(
      "queueing experiments", [prepared, id](sql::Connection& c) -> Result<std::vector<ExperimentId>> {
        AMK_TRY(campaign, rows::load_campaign(c, id));
        AMK_CHECK(transitions::refuse_done(campaign));
        std::vector<ExperimentId> out;
        for (const Prepared& p : *prepared) {
          AMK_TRY(again, repeated(c, id, p.request.idempotency_key, p.config_text));
          if (again) {
            out.push_back(again->experiment);
            continue;
          }
          AMK_TRY(started, transitions::add_experiment(c, campaign, p.request, p.config_text, false, 0, 0, 0));
          out.push_back(started.experiment);
        }
        AMK_CHECK(rows::save_campaign(c, campaign));
        return out;
      });
}

Result<std::optional<CampaignService::Claim>> CampaignService::claim_next(CampaignId id, std::string_view worker, std::int64_t lease_us) {
  AMK_CHECK(check_lease(lease_us));
  AMK_CHECK(check_text("worker", std::string(worker), 256));
  AMK_CHECK(refuse_when_full(impl_->store));
  auto body = [id, who = std::string(worker), lease_us, incarnation = impl_->store.incarnation(), wall = impl_->wall_us(),
               boot = impl_->boot_us()](sql::Connection& c) -> Result<std::optional<Claim>> {
    AMK_TRY(campaign, rows::load_campaign(c, id));
    AMK_CHECK(transitions::refuse_done(campaign));
    AMK_TRY(row, c.query("SELECT e.id, e.seq, e.generation, k.text FROM experiments e JOIN configs k ON k.id = e.config "
                         "WHERE e.state = 0 AND e.campaign = ?1 ORDER BY e.seq LIMIT 1",
                         raw(id)));
    AMK_TRY(found, row.next());
    if (!found) return std::nullopt;
    Claim claim;
    claim.ticket = {id, ExperimentId{row.i64(0)}, row.i64(1), row.i64(2) + 1, false};
    AMK_TRY(config, parse_json(row.view(3), "stored config of " + to_string(claim.ticket.experiment)));
    claim.config = std::move(config);
    AMK_CHECK(
        c.run("UPDATE experiments SET state = 1, generation = ?2, attempts = attempts + 1, worker = ?3, incarnation = ?4, lease_until_us = ?5, "
              "begun_wall_us = ?6, begun_boot_us = ?7 WHERE id = ?1",
              raw(claim.ticket.experiment), claim.ticket.generation, who, incarnation, boot + lease_us, wall, boot));
    --campaign.queued;
    ++campaign.running;
    AMK_CHECK(rows::save_campaign(c, campaign));
    return std::optional(std::move(claim));
  };
  AMK_TRY(claim, impl_->store.write<std::optional<Claim>>("claiming an experiment", std::move(body)));
  if (claim) impl_->time->start(id, claim->ticket.experiment);
  return claim;
}

}  // namespace amk
