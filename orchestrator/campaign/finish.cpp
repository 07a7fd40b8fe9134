// finish, lose, issue: how a verdict enters the store and what it changes.
#include <algorithm>
#include <utility>

#include "core/base/parse_json.h"
#include "core/base/random_hex.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/service.h"
#include "orchestrator/campaign/transitions.h"

namespace amk {

struct WorkerReport {
  Ticket ticket;
  std::optional<Verdict> verdict;  // absent: lost
  std::string lost_reason, phases, secret;
  std::int64_t wall_us = 0, boot_us = 0, charge_us = 0;
};

namespace {

struct OpenRow {
  ExperimentState state = ExperimentState::Queued;
  std::int64_t generation = 0, begun_boot_us = 0, config = 0;
  std::string schedule_id, config_text;
};

Result<OpenRow> load_open(sql::Connection& c, const Ticket& ticket) {
  AMK_TRY(
      row,
      c.query("SELECT e.state, e.generation, e.begun_boot_us, e.config, k.schedule_id, k.text FROM experiments e JOIN configs k ON k.id = e.config "
              "WHERE e.id = ?1 AND e.campaign = ?2",
              raw(ticket.experiment), raw(ticket.campaign)));
  AMK_TRY(found, row.next());
  if (!found)
    return fail(ErrorKind::NotFound, "no experiment " + to_string(ticket.experiment) + " in campaign " + to_string(ticket.campaign),
                {{"field", "experiment"}, {"value", to_string(ticket.experiment)}});
  return OpenRow{static_cast<ExperimentState>(row.i64(0)), row.i64(1), row.i64(2), row.i64(3), row.text(4), row.text(5)};
}

// A report after its lease has passed on changes nothing, and is kept.
Result<Result<Recorded>> keep_stale(sql::Connection& c, const WorkerReport& r, const OpenRow& open) {
  const Json evidence = r.verdict ? to_json(*r.verdict) : Json{{"lost", r.lost_reason}};
  AMK_CHECK(c.run("INSERT INTO stale_reports(experiment, generation, current_generation, report, received_wall_us) VALUES(?1, ?2, ?3, ?4, ?5)",
                  raw(r.ticket.experiment), r.ticket.generation, open.generation, canonical_dump(evidence), r.wall_us));
  return Result<Recorded>(fail(ErrorKind::Conflict,
                               "the lease on " + to_string(r.ticket.experiment) + " has passed on (generation " +
                                   std::to_string(r.ticket.generation) + ", now " + std::to_string(open.generation) +
                                   "); the report is kept as evidence and changes nothing",
                               {{"reason", "stale-lease"},
                                {"experiment", to_string(r.ticket.experiment)},
                                {"generation", r.ticket.generation},
                                {"current_generation", open.generation}}));
}

Result<Recorded> recorded_now(sql::Connection& c, const Ticket& ticket) {
  AMK_TRY(campaign, rows::load_campaign(c, ticket.campaign));
  AMK_TRY(experiment, rows::load_experiment(c, ticket.experiment));
  AMK_TRY(best, rows::best_of(c, ticket.campaign));
  Recorded out{std::move(experiment), false, campaign.info.state, campaign.info.done_reason, true};
  out.is_best = best && best->id == ticket.experiment;
  return out;
}

Result<Result<Recorded>> end_with(sql::Connection& c, const WorkerReport& r) {
  AMK_TRY(open, load_open(c, r.ticket));
  if (open.generation != r.ticket.generation || open.state == ExperimentState::Queued) return keep_stale(c, r, open);
  if (open.state == ExperimentState::Ended) {
    AMK_TRY(first, recorded_now(c, r.ticket));
    return Result<Recorded>(std::move(first));
  }
  AMK_TRY(campaign, rows::load_campaign(c, r.ticket.campaign));
  transitions::Ending ending;
  ending.experiment = r.ticket.experiment;
  ending.config = open.config;
  ending.generation = open.generation;
  ending.wall_us = r.wall_us;
  ending.duration_us = std::max<std::int64_t>(0, r.boot_us - open.begun_boot_us);
  ending.charged_us = r.charge_us;
  ending.phases = r.phases;
  if (r.verdict) {
    // A result under another candidate's name is the oldest mistake of all.
    if (r.verdict->schedule_id != open.schedule_id || canonical_dump(r.verdict->config) != open.config_text)
      return fail(ErrorKind::InvalidArgument, "the verdict is of another config than " + to_string(r.ticket.experiment) + "'s",
                  {{"reason", "other-config"},
                   {"field", "verdict.config"},
                   {"experiment", to_string(r.ticket.experiment)},
                   {"schedule_id", open.schedule_id}});
    AMK_TRY(leader, rows::leader_of(c, r.ticket.campaign));
    std::optional<Incumbent> incumbent;
    if (leader) incumbent = Incumbent{leader->schedule_id, leader->latency_us};
    AMK_TRY(judgement, judge(*r.verdict, campaign.info.key.device_kind, incumbent));
    ending.judgement = judgement;
    AMK_TRY(row, rows::insert_verdict(c, r.ticket.campaign, open.config, *r.verdict, r.secret, true, r.wall_us));
    ending.verdict_row = row;
    ending.verdict = &*r.verdict;
  } else {
    ending.judgement = {Outcome::Lost, r.lost_reason, false};
  }
  AMK_CHECK(transitions::end_experiment(c, campaign, ending));
  AMK_CHECK(transitions::advance(c, campaign, 0));
  AMK_CHECK(rows::save_campaign(c, campaign));
  AMK_TRY(experiment, rows::load_experiment(c, r.ticket.experiment));
  const bool is_best = ending.judgement.outcome == Outcome::Kept;
  return Result<Recorded>(Recorded{std::move(experiment), is_best, campaign.info.state, campaign.info.done_reason, false});
}

}  // namespace

Status storable(const Verdict& verdict) {
  AMK_TRY(json, parse_json(canonical_dump(to_json(verdict)), "verdict"));
  AMK_CHECK(verdict_from_json(json));
  return {};
}

Result<Recorded> CampaignService::Impl::end(std::shared_ptr<WorkerReport> report, std::string_view what) {
  report->wall_us = wall_us();
  report->boot_us = boot_us();
  const Ticket ticket = report->ticket;
  const std::int64_t charge_us = report->charge_us = time->take(ticket.campaign);
  Result<Recorded> out = write_either<Recorded>(
      what, [report = std::move(report)](sql::Connection& c) { return end_with(c, *report); }, OnDiskFull::Keep);
  const bool waits = !out && out.error().data.is_object() && out.error().data.value("kept", false);
  if (waits || (out && !out->repeated))
    time->stop(ticket.campaign, ticket.experiment);
  else
    time->give_back(ticket.campaign, charge_us);
  if (out && !out->repeated) ended();
  return out;
}

Result<Recorded> CampaignService::finish(const Ticket& ticket, Verdict verdict, const Json& phases) {
  verdict.verdict_id.clear();
  AMK_CHECK(storable(verdict));
  if (!phases.is_null() && !phases.is_object()) return bad_field("phases", phases, "an object or null");
  AMK_TRY(secret, random_hex(16));
  auto report = std::make_shared<WorkerReport>();
  report->ticket = ticket;
  report->verdict = std::move(verdict);
  report->secret = std::move(secret);
  if (phases.is_object()) report->phases = canonical_dump(phases);
  return impl_->end(std::move(report), "recording a result");
}

Result<Recorded> CampaignService::lose(const Ticket& ticket, std::string_view reason) {
  auto report = std::make_shared<WorkerReport>();
  report->ticket = ticket;
  report->lost_reason = std::string(reason.empty() ? "lost" : reason.substr(0, 256));
  return impl_->end(std::move(report), "recording a loss");
}

Result<Verdict> CampaignService::issue(CampaignId id, Verdict verdict) {
  verdict.verdict_id.clear();
  AMK_CHECK(storable(verdict));
  if (verdict.schedule_id.empty()) return bad_field("verdict.schedule_id", verdict.schedule_id, "the id of its config");
  AMK_TRY(secret, random_hex(16));
  auto shared = std::make_shared<const Verdict>(verdict);
  auto body = [id, shared, secret, wall = impl_->wall_us()](sql::Connection& c) -> Result<std::string> {
    AMK_TRY(campaign, rows::load_campaign(c, id));
    AMK_TRY(config, rows::intern_config(c, shared->schedule_id, canonical_dump(shared->config)));
    AMK_TRY(row, rows::insert_verdict(c, id, config, *shared, secret, false, wall));
    AMK_TRY(judgement, judge(*shared, campaign.info.key.device_kind, std::nullopt));
    if (judgement.quarantined) AMK_CHECK(rows::quarantine(c, id, config, row, judgement.reason));
    return rows::verdict_id_text(row, secret);
  };
  AMK_TRY(verdict_id, impl_->store.write<std::string>("issuing a verdict", std::move(body)));
  verdict.verdict_id = std::move(verdict_id);
  return verdict;
}

Result<Verdict> CampaignService::verdict(std::string_view verdict_id) const {
  return impl_->store.read<Verdict>([verdict_id](sql::Connection& c) -> Result<Verdict> {
    AMK_TRY(found, rows::find_verdict(c, verdict_id));
    if (!found)
      return fail(ErrorKind::NotFound, "no verdict with this id was issued here",
                  {{"reason", "unknown-verdict"}, {"field", "verdict_id"}, {"value", verdict_id}});
    return std::move(found->verdict);
  });
}

// --- time

struct CampaignService::Activity::State {
  std::shared_ptr<TimeAccount> time;
  CampaignId campaign{};
  ~State() { time->stop(campaign); }
};
CampaignService::Activity::Activity(std::shared_ptr<State> state) : state_(std::move(state)) {}
CampaignService::Activity::Activity(Activity&&) noexcept = default;
CampaignService::Activity& CampaignService::Activity::operator=(Activity&&) noexcept = default;
CampaignService::Activity::~Activity() = default;

CampaignService::Activity CampaignService::activity(CampaignId id) {
  impl_->time->start(id);
  auto state = std::make_shared<Activity::State>();
  state->time = impl_->time;
  state->campaign = id;
  return Activity(std::move(state));
}

Status CampaignService::Impl::charge_time(CampaignId id) {
  const std::int64_t us = time->take(id);
  auto body = [id, us](sql::Connection& c) -> Result<bool> {
    AMK_TRY(campaign, rows::load_campaign(c, id));
    campaign.spent_us += us;
    campaign.unattributed_us += us;
    AMK_CHECK(transitions::advance(c, campaign, 0));
    AMK_CHECK(rows::save_campaign(c, campaign));
    return true;
  };
  const auto done = store.write<bool>("charging time", body);
  if (!done) {
    time->give_back(id, us);
    return tl::unexpected<Error>(done.error());
  }
  return {};
}

}  // namespace amk
