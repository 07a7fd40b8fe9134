#include "core/base/parse_json.h"
#include "orchestrator/campaign/rows.h"

namespace amk::rows {
namespace {

// What is stored is what can be read: a policy that load_campaign() refuses would make the campaign unusable for ever.
Result<std::string> policy_text(const CampaignPolicy& policy) {
  const Json json = to_json(policy);
  AMK_CHECK(policy_from_json(json));
  return canonical_dump(json);
}

}  // namespace

Result<Campaign> load_campaign(sql::Connection& c, CampaignId id) {
  AMK_TRY(
      row,
      c.query(
          "SELECT workload, gpu, device_kind, regime, policy, state, done_reason, revision, created_wall_us, last_seq, queued, running, kept, "
          "revert, inconclusive, failed, crash, timeout, rejected, lost, quarantined, claims, non_keeps, reopened_after, spent_us, unattributed_us "
          "FROM campaigns WHERE id = ?1",
          raw(id)));
  AMK_TRY(found, row.next());
  if (!found)
    return fail(ErrorKind::NotFound, "no campaign " + to_string(id) + "; amk_orchestrate_status lists them",
                {{"field", "campaign"}, {"value", to_string(id)}});
  Campaign out;
  out.info.id = id;
  out.info.key = {row.text(0), row.text(1), row.text(2), row.text(3)};
  AMK_TRY(policy_json, parse_json(row.view(4), "stored policy of " + to_string(id)));
  AMK_TRY(policy, policy_from_json(policy_json));
  out.info.policy = policy;
  out.info.state = static_cast<CampaignState>(row.i64(5));
  out.info.done_reason = row.text(6);
  out.info.revision = row.i64(7);
  out.created_wall_us = row.i64(8);
  out.last_seq = row.i64(9);
  out.queued = row.i64(10);
  out.running = row.i64(11);
  for (int i = 0; i < kOutcomes; ++i) out.outcomes[static_cast<std::size_t>(i)] = row.i64(12 + i);
  out.quarantined = row.i64(20);
  out.claims = row.i64(21);
  out.non_keeps = row.i64(22);
  out.reopened_after = row.i64(23);
  out.spent_us = row.i64(24);
  out.unattributed_us = row.i64(25);
  return out;
}

Result<std::optional<CampaignId>> find_campaign(sql::Connection& c, const CampaignKey& key) {
  AMK_TRY(id, c.value_i64("SELECT id FROM campaigns WHERE workload = ?1 AND gpu = ?2 AND device_kind = ?3 AND regime = ?4", key.workload, key.gpu,
                          key.device_kind, key.regime));
  return id ? std::optional(CampaignId{*id}) : std::nullopt;
}

Result<CampaignId> insert_campaign(sql::Connection& c, const CampaignKey& key, const CampaignPolicy& policy, std::int64_t wall_us) {
  AMK_TRY(text, policy_text(policy));
  AMK_CHECK(
      c.run("INSERT INTO campaigns(workload, gpu, device_kind, regime, policy, changed, created_wall_us) "
            "VALUES(?1, ?2, ?3, ?4, ?5, (SELECT ifnull(max(changed), 0) + 1 FROM campaigns), ?6)",
            key.workload, key.gpu, key.device_kind, key.regime, text, wall_us));
  return CampaignId{c.last_insert_id()};
}

Status save_campaign(sql::Connection& c, Campaign& campaign) {
  AMK_TRY(policy, policy_text(campaign.info.policy));
  ++campaign.info.revision;
  const auto& n = campaign.outcomes;
  AMK_CHECK(c.run(
      "UPDATE campaigns SET policy = ?2, state = ?3, done_reason = ?4, revision = ?5, "
      "changed = CASE WHEN changed = (SELECT max(changed) FROM campaigns) THEN changed ELSE (SELECT max(changed) + 1 FROM campaigns) END, "
      "last_seq = ?6, queued = ?7, running = ?8, kept = ?9, revert = ?10, inconclusive = ?11, failed = ?12, crash = ?13, timeout = ?14, "
      "rejected = ?15, lost = ?16, quarantined = ?17, claims = ?18, non_keeps = ?19, reopened_after = ?20, spent_us = ?21, unattributed_us = ?22 "
      "WHERE id = ?1",
      raw(campaign.info.id), policy, static_cast<std::int64_t>(campaign.info.state), campaign.info.done_reason, campaign.info.revision,
      campaign.last_seq, campaign.queued, campaign.running, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], campaign.quarantined, campaign.claims,
      campaign.non_keeps, campaign.reopened_after, campaign.spent_us, campaign.unattributed_us));
  return {};
}

Result<std::optional<std::int64_t>> find_config(sql::Connection& c, std::string_view schedule_id, std::string_view text) {
  AMK_TRY(row, c.query("SELECT id, text FROM configs WHERE schedule_id = ?1", schedule_id));
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) return std::nullopt;
    if (row.view(1) == text) return row.i64(0);
  }
}

Result<std::int64_t> intern_config(sql::Connection& c, std::string_view schedule_id, std::string_view text) {
  AMK_TRY(found, find_config(c, schedule_id, text));
  if (found) return *found;
  AMK_CHECK(c.run("INSERT INTO configs(schedule_id, text) VALUES(?1, ?2)", schedule_id, text));
  return c.last_insert_id();
}

}  // namespace amk::rows
