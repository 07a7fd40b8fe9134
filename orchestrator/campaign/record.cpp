// record(): what an agent typed. Without evidence it is a claim; with a verdict of ours it becomes an experiment.
#include <utility>

#include "core/base/parse_json.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/service.h"
#include "orchestrator/campaign/transitions.h"

namespace amk {
namespace {

struct Typed {
  CampaignId campaign{};
  RecordRequest request;
  Outcome status = Outcome::Lost;
  std::string config_text;  // empty: none given
  std::string content;      // canonical, what a repeated key must equal
  std::int64_t wall_us = 0, boot_us = 0, incarnation = 0;
};

Json content_of(const RecordRequest& r) {
  return {{"status", r.status},
          {"latency_us", r.latency_us ? Json(*r.latency_us) : Json(nullptr)},
          {"pct_roofline", r.pct_roofline ? Json(*r.pct_roofline) : Json(nullptr)},
          {"kind", r.kind},
          {"config", r.config ? *r.config : Json(nullptr)},
          {"description", r.description},
          {"verdict_id", r.verdict_id}};
}

tl::unexpected<Error> refused(ErrorKind kind, std::string_view reason, std::string message, Json extra = Json::object()) {
  extra["reason"] = reason;
  return fail(kind, std::move(message), std::move(extra));
}

Status insert_claim(sql::Connection& c, const Typed& t, std::optional<ExperimentId> experiment, std::string_view refusal, const Json& reply) {
  std::optional<std::int64_t> row;
  if (experiment) row = raw(*experiment);
  // A refusal does not use the key up: the same call may succeed later, with evidence.
  std::optional<std::string> key;
  if (refusal.empty() && !t.request.idempotency_key.empty()) key = t.request.idempotency_key;
  AMK_CHECK(
      c.run("INSERT INTO claims(campaign, idempotency_key, request, experiment, refused, reply, recorded_wall_us) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            raw(t.campaign), key, t.content, row, refusal, canonical_dump(reply), t.wall_us));
  return {};
}

// The first call's reply; null when this is the first.
Result<Json> repeated(sql::Connection& c, const Typed& t) {
  if (t.request.idempotency_key.empty()) return nullptr;
  AMK_TRY(row, c.query("SELECT request, reply FROM claims WHERE campaign = ?1 AND idempotency_key = ?2", raw(t.campaign), t.request.idempotency_key));
  AMK_TRY(found, row.next());
  if (!found) return nullptr;
  if (row.view(0) != t.content)
    return refused(ErrorKind::Conflict, "key-reused", "idempotency_key \"" + t.request.idempotency_key + "\" was used for another record",
                   {{"field", "idempotency_key"}});
  AMK_TRY(reply, parse_json(row.view(1), "stored reply"));
  reply["repeated"] = true;
  return reply;
}

// The verdict this record rests on; nullopt when there is none and none was named.
Result<std::optional<rows::StoredVerdict>> evidence(sql::Connection& c, const Typed& t) {
  const std::string& id = t.request.verdict_id;
  if (id.empty()) {
    if (t.config_text.empty()) return std::nullopt;
    AMK_TRY(config, rows::find_config(c, t.request.schedule_id, t.config_text));
    if (!config) return std::nullopt;
    return rows::newest_unused_verdict(c, t.campaign, *config);
  }
  AMK_TRY(found, rows::find_verdict(c, id));
  const Json named = {{"field", "verdict_id"}, {"value", id}};
  if (!found)
    return refused(ErrorKind::InvalidArgument, "unknown-verdict",
                   "verdict_id \"" + id.substr(0, 100) + "\" was never issued here; amk_eval issues one", named);
  if (found->campaign != t.campaign)
    return refused(ErrorKind::InvalidArgument, "other-campaign",
                   "verdict " + id + " was issued in campaign " + to_string(found->campaign) + ", not " + to_string(t.campaign), named);
  if (!t.config_text.empty() && canonical_dump(found->verdict.config) != t.config_text)
    return refused(ErrorKind::InvalidArgument, "other-config",
                   "verdict " + id + " was issued for another config (" + found->verdict.schedule_id + ")", named);
  if (found->used) {
    AMK_TRY(experiment, rows::experiment_of_verdict(c, *found));
    Json which = named;
    which["experiment"] = experiment ? Json(to_string(*experiment)) : Json(nullptr);
    return refused(ErrorKind::Conflict, "already-recorded",
                   "verdict " + id + " has been recorded already" + (experiment ? ", as experiment " + to_string(*experiment) : "") +
                       "; one verdict backs one record",
                   which);
  }
  return found;
}

// The newest experiment of this campaign that ended with a verdict for the claimed config.
Result<std::optional<ExperimentId>> recorded_before(sql::Connection& c, const Typed& t) {
  if (t.config_text.empty()) return std::nullopt;
  AMK_TRY(config, rows::find_config(c, t.request.schedule_id, t.config_text));
  if (!config) return std::nullopt;
  AMK_TRY(row, c.query("SELECT id FROM experiments WHERE campaign = ?1 AND config = ?2 AND verdict IS NOT NULL ORDER BY id DESC LIMIT 1",
                       raw(t.campaign), *config));
  AMK_TRY(found, row.next());
  return found ? std::optional(ExperimentId{row.i64(0)}) : std::nullopt;
}

// What the typed status and the verdict make together.
Result<Judgement> reconcile(const Typed& t, const Judgement& judged, const Verdict& verdict) {
  if (t.status == judged.outcome) return judged;
  const Json named = {{"field", "status"},
                      {"value", t.request.status},
                      {"verdict_status", to_string(verdict.status)},
                      {"outcome", to_string(judged.outcome)},
                      {"why", judged.reason}};
  if (t.status == Outcome::Kept) {
    const bool passes = judged.outcome == Outcome::Revert || judged.outcome == Outcome::Inconclusive;
    const std::string reason = judged.reason == "stale-incumbent" || judged.reason == "not-compared" ? "stale-incumbent"
                               : passes                                                              ? "not-faster"
                               : judged.quarantined                                                  ? "withheld"
                                                                                                     : "not-correct";
    return refused(ErrorKind::Conflict, reason,
                   "not kept: the verdict says " + std::string(to_string(judged.outcome)) + " (" + judged.reason +
                       "); kept means correct and at least 1% faster than the best, clear of noise",
                   named);
  }
  // Declining a correct candidate is the agent's right; calling it something the evaluator did not see is not.
  const bool correct = judged.outcome == Outcome::Kept || judged.outcome == Outcome::Revert || judged.outcome == Outcome::Inconclusive;
  if (correct && (t.status == Outcome::Revert || t.status == Outcome::Inconclusive)) return Judgement{t.status, "declined", false};
  return refused(ErrorKind::InvalidArgument, "status-contradicts-verdict",
                 "status \"" + t.request.status + "\" contradicts the verdict, which says " + std::string(to_string(judged.outcome)), named);
}

Json reply_of(const rows::Campaign& campaign, std::string_view recorded) {
  Json out = {{"campaign", to_string(campaign.info.id)},
              {"recorded", recorded},
              {"state", to_string(campaign.info.state)},
              {"non_keeps", campaign.non_keeps}};
  if (campaign.info.state == CampaignState::Done) out["done_reason"] = campaign.info.done_reason;
  return out;
}

Result<Json> record_with(sql::Connection& c, const Typed& t, rows::Campaign& campaign, const rows::StoredVerdict& stored) {
  AMK_CHECK(transitions::refuse_done(campaign));
  AMK_TRY(leader, rows::leader_of(c, t.campaign));
  std::optional<Incumbent> incumbent;
  if (leader) incumbent = Incumbent{leader->schedule_id, leader->latency_us};
  AMK_TRY(judged, judge(stored.verdict, campaign.info.key.device_kind, incumbent));
  AMK_TRY(judgement, reconcile(t, judged, stored.verdict));

  BeginRequest begin;
  begin.schedule_id = stored.verdict.schedule_id;
  begin.loop = "agent";
  begin.worker = "agent";
  begin.tag = t.request.kind.substr(0, 128);
  begin.description = t.request.description;
  begin.lease_us = 1;
  AMK_TRY(started, transitions::add_experiment(c, campaign, begin, canonical_dump(stored.verdict.config), true, t.incarnation, t.wall_us, t.boot_us));
  transitions::Ending ending;
  ending.experiment = started.experiment;
  ending.config = started.config;
  ending.judgement = judgement;
  ending.verdict_row = stored.id;
  ending.verdict = &stored.verdict;
  ending.generation = 1;
  ending.wall_us = t.wall_us;
  AMK_CHECK(transitions::end_experiment(c, campaign, ending));
  AMK_CHECK(c.run("UPDATE verdicts SET used = 1 WHERE id = ?1", stored.id));
  AMK_CHECK(transitions::advance(c, campaign, 0));
  Json reply = reply_of(campaign, to_string(judgement.outcome));
  reply["experiment"] = to_string(started.experiment);
  reply["verdict_id"] = stored.verdict.verdict_id;
  reply["why"] = judgement.reason;
  reply["is_best"] = judgement.outcome == Outcome::Kept;
  if (stored.verdict.latency_us && judgement.outcome != Outcome::Failed) reply["latency_us"] = *stored.verdict.latency_us;
  AMK_CHECK(insert_claim(c, t, started.experiment, "", reply));
  return reply;
}

Result<Result<Json>> record_in(sql::Connection& c, const Typed& t) {
  AMK_TRY(campaign, rows::load_campaign(c, t.campaign));
  AMK_TRY(again, repeated(c, t));
  if (!again.is_null()) return Result<Json>(std::move(again));
  Result<std::optional<rows::StoredVerdict>> found = evidence(c, t);
  // A refusal must leave no half of an experiment behind: what was written before it is undone, then the attempt is noted.
  AMK_CHECK(c.run("SAVEPOINT recording"));
  Result<Json> reply = fail(ErrorKind::Internal, "not recorded");
  rows::Campaign changed = campaign;
  if (!found) {
    reply = tl::unexpected<Error>(found.error());
  } else if (*found) {
    reply = record_with(c, t, changed, **found);
  } else {
    reply = reply_of(changed, "claim");
    (*reply)["why"] =
        t.status == Outcome::Kept
            ? "no unused verdict of this campaign backs it: numbers that are typed never make a best; amk_eval this config, then record it"
            : "no unused verdict of this campaign backs it: it is noted, and counts for nothing";
    // A loop records what it judges: its best is an experiment already.
    AMK_TRY(experiment, recorded_before(c, t));
    if (experiment) {
      (*reply)["already_recorded_as"] = to_string(*experiment);
      (*reply)["why"] =
          "this config was judged and recorded already, as experiment " + to_string(*experiment) + "; the claim is noted, and counts for nothing";
    }
    ++changed.claims;
    Status noted = insert_claim(c, t, std::nullopt, "", *reply);
    if (!noted) reply = tl::unexpected<Error>(std::move(noted).error());
  }
  if (!reply) {
    if (sql::is_machine_failure(reply.error())) return tl::unexpected<Error>(reply.error());
    AMK_CHECK(c.run("ROLLBACK TO recording"));
    AMK_CHECK(c.run("RELEASE recording"));
    const std::string reason = reply.error().data.is_object() ? reply.error().data.value("reason", "refused") : "refused";
    AMK_CHECK(insert_claim(c, t, std::nullopt, reason, to_json(reply.error())));
    return reply;
  }
  AMK_CHECK(c.run("RELEASE recording"));
  AMK_CHECK(rows::save_campaign(c, changed));
  return reply;
}

}  // namespace

Result<Json> CampaignService::record(CampaignId id, const RecordRequest& request) {
  auto typed = std::make_shared<Typed>();
  AMK_TRY(status, outcome_from(request.status));
  if (request.latency_us && !(*request.latency_us > 0)) return bad_field("latency_us", *request.latency_us, "a number more than 0");
  if (request.pct_roofline && !(*request.pct_roofline >= 0 && *request.pct_roofline <= 100))
    return bad_field("pct_roofline", *request.pct_roofline, "a number from 0 to 100");
  if (request.description.size() > 8192) return bad_field("description", request.description, "at most 8192 bytes");
  if (request.kind.size() > 256) return bad_field("kind", request.kind, "at most 256 bytes");
  if (request.verdict_id.size() > 256) return bad_field("verdict_id", request.verdict_id, "an id that amk_eval issued");
  if (request.idempotency_key.size() > 256) return bad_field("idempotency_key", request.idempotency_key, "at most 256 bytes");
  if (request.config) {
    if (!request.config->is_object()) return bad_field("config", *request.config, "an object");
    typed->config_text = canonical_dump(*request.config);
    if (typed->config_text.size() > (1u << 20)) return bad_field("config", "…", "at most 1 MiB of JSON");
    if (request.schedule_id.empty()) return bad_field("schedule_id", request.schedule_id, "the id of config");
  }
  typed->campaign = id;
  typed->request = request;
  typed->status = status;
  typed->content = canonical_dump(content_of(request));
  typed->wall_us = impl_->wall_us();
  typed->boot_us = impl_->boot_us();
  typed->incarnation = impl_->store.incarnation();
  AMK_TRY(reply, impl_->write_either<Json>(
                     "recording a claim", [typed](sql::Connection& c) { return record_in(c, *typed); }, OnDiskFull::Keep));
  if (reply.contains("experiment") && !reply.contains("repeated")) impl_->ended();
  return reply;
}

}  // namespace amk
