#include "orchestrator/results/row_json.h"

#include "orchestrator/campaign/json.h"

namespace amk {

Json row_json(const Experiment& e, const CampaignInfo& campaign) {
  Json out = {{"experiment", to_string(e.id)},
              {"campaign", to_string(e.campaign)},
              {"seq", e.seq},
              {"model", campaign.key.workload},
              {"gpu", campaign.key.gpu},
              {"device_kind", campaign.key.device_kind},
              {"regime", campaign.key.regime},
              {"outcome", e.outcome ? Json(to_string(*e.outcome)) : Json(nullptr)},
              {"correctness", e.correctness},
              {"schedule_id", e.schedule_id},
              {"ended", utc_text(e.ended_wall_us)}};
  const auto add = [&out](const char* key, const std::string& text) {
    if (!text.empty()) out[key] = text;
  };
  add("reason", e.reason);
  add("kernel_id", e.kernel_id);
  add("loop", e.loop);
  add("strategy", e.strategy);
  add("latency_kind", e.latency_kind);
  add("verdict_id", e.verdict_id);
  add("device", e.device);
  add("description", e.description);
  if (e.latency_us) out["latency_us"] = *e.latency_us;
  if (e.bound_us) out["bound_us"] = *e.bound_us;
  if (e.pct_of_roofline) out["pct_of_roofline"] = *e.pct_of_roofline;
  if (e.quarantined) out["quarantined"] = true;
  return out;
}

Result<const CampaignInfo*> CampaignCache::get(sql::Connection& c, CampaignId id) {
  auto found = known_.find(id);
  if (found == known_.end()) {
    AMK_TRY(campaign, rows::load_campaign(c, id));
    found = known_.emplace(id, std::move(campaign.info)).first;
  }
  return &found->second;
}

}  // namespace amk
