#include "orchestrator/campaign/transitions.h"

namespace amk::transitions {
namespace {

std::optional<std::string> optional_text(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

bool passes(Outcome outcome) { return outcome == Outcome::Kept || outcome == Outcome::Revert || outcome == Outcome::Inconclusive; }

std::string latency_kind_text(LatencyKind kind) {
  const Json json = to_json(kind);
  return json.is_string() ? json.get<std::string>() : std::string();
}

}  // namespace

std::string_view correctness_word(Outcome outcome) {
  switch (outcome) {
    case Outcome::Kept:
    case Outcome::Revert:
    case Outcome::Inconclusive:
      return "PASS";
    case Outcome::Failed:
      return "FAIL";
    case Outcome::Crash:
      return "CRASH";
    case Outcome::Timeout:
      return "TIMEOUT";
    case Outcome::Rejected:
      return "REJECTED";
    case Outcome::Lost:
      return "LOST";
  }
  return "LOST";
}

Status end_experiment(sql::Connection& c, rows::Campaign& campaign, const Ending& e) {
  const Outcome outcome = e.judgement.outcome;
  const bool pass = passes(outcome) && e.verdict != nullptr;
  AMK_TRY(end_seq, rows::next_end_seq(c));
  std::optional<double> latency_us, bound_us, pct;
  std::string kind, device;
  if (e.verdict != nullptr) {
    device = e.verdict->device;
    bound_us = e.verdict->bound_us;
    if (pass && e.verdict->latency_us) {
      latency_us = e.verdict->latency_us;
      kind = latency_kind_text(e.verdict->latency_kind);
      pct = e.verdict->pct_of_roofline;
    }
  }
  AMK_TRY(changed,
          c.run("UPDATE experiments SET state = 2, outcome = ?2, end_seq = ?3, reason = ?4, correctness = ?5, latency_us = ?6, latency_kind = ?7, "
                "bound_us = ?8, pct_of_roofline = ?9, quarantined = ?10, device = ?11, verdict = ?12, generation = ?13, ended_wall_us = ?14, "
                "duration_us = ?15, charged_us = ?16, phases = ?17 WHERE id = ?1 AND state = 1",
                raw(e.experiment), static_cast<std::int64_t>(outcome), end_seq, e.judgement.reason, correctness_word(outcome), latency_us, kind,
                bound_us, pct, e.judgement.quarantined, device, e.verdict_row, e.generation, e.wall_us, e.duration_us, e.charged_us, e.phases));
  if (changed != 1) return fail(ErrorKind::Internal, "ending " + to_string(e.experiment) + ": it was not running");
  --campaign.running;
  ++campaign.outcomes[static_cast<std::size_t>(outcome)];
  campaign.spent_us += e.charged_us;
  if (e.judgement.quarantined) {
    ++campaign.quarantined;
    AMK_CHECK(rows::quarantine(c, campaign.info.id, e.config, e.verdict_row.value_or(0), e.judgement.reason));
  }
  if (outcome == Outcome::Kept) {
    campaign.non_keeps = 0;
    if (campaign.info.state == CampaignState::Baseline) campaign.info.state = CampaignState::Optimizing;
  } else if (counts_for_plateau(outcome)) {
    ++campaign.non_keeps;
  }
  return {};
}

Status advance(sql::Connection& c, rows::Campaign& campaign, std::int64_t uncharged_us) {
  if (campaign.info.state == CampaignState::Done) return {};
  Standing standing;
  standing.non_keeps = campaign.non_keeps;
  standing.spent_us = campaign.spent_us + uncharged_us;
  AMK_TRY(leader, rows::leader_of(c, campaign.info.id));
  if (leader) {
    standing.has_best = true;
    standing.best_us = leader->latency_us;
    standing.bound_us = leader->bound_us;
    if (campaign.info.policy.speedup_target) {
      AMK_TRY(speedup, rows::speedup_of(c, campaign.info.id));
      standing.speedup = speedup;
    }
  }
  if (const auto reason = stop_reason(campaign.info.policy, standing)) {
    campaign.info.state = CampaignState::Done;
    campaign.info.done_reason = *reason;
  }
  return {};
}

Status refuse_done(const rows::Campaign& campaign) {
  if (campaign.info.state != CampaignState::Done) return {};
  return fail(ErrorKind::Conflict, "campaign " + to_string(campaign.info.id) + " is done (" + campaign.info.done_reason + "); reopen it to go on",
              {{"reason", "campaign-done"}, {"campaign", to_string(campaign.info.id)}, {"done_reason", campaign.info.done_reason}});
}

Result<Started> add_experiment(sql::Connection& c, rows::Campaign& campaign, const BeginRequest& r, const std::string& config_text, bool running,
                               std::int64_t incarnation, std::int64_t wall_us, std::int64_t boot_us) {
  Started out;
  AMK_TRY(config, rows::intern_config(c, r.schedule_id, config_text));
  out.config = config;
  AMK_CHECK(rows::refuse_quarantined(c, campaign.info.id, config));
  out.seq = ++campaign.last_seq;
  const int state = running ? 1 : 0;
  AMK_CHECK(
      c.run("INSERT INTO experiments(campaign, seq, idempotency_key, state, requeue, generation, attempts, incarnation, lease_until_us, config, "
            "kernel_id, tag, loop, strategy, description, worker, begun_wall_us, begun_boot_us) "
            "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            raw(campaign.info.id), out.seq, optional_text(r.idempotency_key), state, !running, state, running ? incarnation : 0,
            running ? boot_us + r.lease_us : 0, config, r.kernel_id, r.tag, r.loop, r.strategy, r.description, r.worker, running ? wall_us : 0,
            running ? boot_us : 0));
  out.experiment = ExperimentId{c.last_insert_id()};
  ++(running ? campaign.running : campaign.queued);
  return out;
}

Result<rows::Campaign> recount(sql::Connection& c, CampaignId id) {
  AMK_TRY(stored, rows::load_campaign(c, id));
  rows::Campaign counted = stored;
  counted.queued = counted.running = counted.quarantined = counted.last_seq = counted.non_keeps = 0;
  counted.outcomes.fill(0);
  counted.spent_us = counted.unattributed_us;
  std::int64_t last_kept = 0;
  {
    AMK_TRY(
        row,
        c.query("SELECT state, ifnull(outcome, -1), count(*), sum(quarantined), sum(charged_us), max(seq), ifnull(max(end_seq), 0) FROM experiments "
                "WHERE campaign = ?1 GROUP BY 1, 2",
                raw(id)));
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) break;
      const std::int64_t n = row.i64(2);
      if (row.i64(0) == 0)
        counted.queued += n;
      else if (row.i64(0) == 1)
        counted.running += n;
      else
        counted.outcomes[static_cast<std::size_t>(row.i64(1))] += n;
      counted.quarantined += row.i64(3);
      counted.spent_us += row.i64(4);
      counted.last_seq = std::max(counted.last_seq, row.i64(5));
      if (row.i64(1) == 0) last_kept = row.i64(6);
    }
  }
  const std::int64_t after = std::max(last_kept, stored.reopened_after);
  AMK_TRY(non_keeps, c.value_i64("SELECT count(*) FROM experiments WHERE campaign = ?1 AND end_seq > ?2 AND outcome NOT IN (0, 7)", raw(id), after));
  counted.non_keeps = non_keeps.value_or(0);
  AMK_TRY(claims, c.value_i64("SELECT count(*) FROM claims WHERE campaign = ?1 AND experiment IS NULL AND refused = ''", raw(id)));
  counted.claims = claims.value_or(0);
  // A finished campaign stays done whatever its rows say; an open one has a baseline or does not.
  if (stored.info.state != CampaignState::Done) counted.info.state = counted.outcomes[0] > 0 ? CampaignState::Optimizing : CampaignState::Baseline;
  return counted;
}

}  // namespace amk::transitions
