// How experiments and campaigns look from outside (schemas/experiment.schema.json, schemas/campaign.schema.json).
#include "orchestrator/campaign/json.h"

#include <time.h>

#include <cstdio>

namespace amk {

std::string utc_text(std::int64_t wall_us) {
  const std::time_t seconds = static_cast<std::time_t>(wall_us / 1'000'000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02dZ", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                parts.tm_min, parts.tm_sec);
  return text;
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json to_json(const Experiment& e) {
  return {{"experiment", to_string(e.id)},
          {"campaign", to_string(e.campaign)},
          {"seq", e.seq},
          {"state", to_string(e.state)},
          {"outcome", e.outcome ? Json(to_string(*e.outcome)) : Json(nullptr)},
          {"reason", or_null(e.reason)},
          {"correctness", or_null(e.correctness)},
          {"schedule_id", e.schedule_id},
          {"config", e.config},
          {"kernel_id", or_null(e.kernel_id)},
          {"tag", or_null(e.tag)},
          {"loop", or_null(e.loop)},
          {"strategy", or_null(e.strategy)},
          {"description", e.description},
          {"worker", or_null(e.worker)},
          {"verdict_id", or_null(e.verdict_id)},
          {"device", or_null(e.device)},
          {"latency_us", or_null(e.latency_us)},
          {"latency_kind", or_null(e.latency_kind)},
          {"bound_us", or_null(e.bound_us)},
          {"pct_of_roofline", or_null(e.pct_of_roofline)},
          {"quarantined", e.quarantined},
          {"attempts", e.attempts},
          {"begun", e.begun_wall_us > 0 ? Json(utc_text(e.begun_wall_us)) : Json(nullptr)},
          {"ended", e.ended_wall_us > 0 ? Json(utc_text(e.ended_wall_us)) : Json(nullptr)},
          {"duration_s", static_cast<double>(e.duration_us) / 1e6},
          {"phases", e.phases}};
}

Json point_json(const std::optional<Experiment>& e) {
  if (!e) return nullptr;
  return {{"experiment", to_string(e->id)},       {"seq", e->seq},
          {"schedule_id", e->schedule_id},        {"config", e->config},
          {"latency_us", or_null(e->latency_us)}, {"latency_kind", or_null(e->latency_kind)},
          {"bound_us", or_null(e->bound_us)},     {"pct_of_roofline", or_null(e->pct_of_roofline)},
          {"verdict_id", or_null(e->verdict_id)}, {"device", or_null(e->device)},
          {"description", e->description},        {"ended", utc_text(e->ended_wall_us)}};
}

Json key_json(const CampaignInfo& info) {
  return {{"campaign", to_string(info.id)},           {"workload", info.key.workload}, {"gpu", info.key.gpu},
          {"device_kind", info.key.device_kind},      {"regime", info.key.regime},     {"state", to_string(info.state)},
          {"done_reason", or_null(info.done_reason)}, {"revision", info.revision}};
}

Json counts_json(const rows::Campaign& campaign) {
  Json out = Json::object();
  for (int i = 0; i < kOutcomes; ++i) out[std::string(to_string(static_cast<Outcome>(i)))] = campaign.outcomes[static_cast<std::size_t>(i)];
  return out;
}

std::optional<double> speedup(const std::optional<Experiment>& baseline, const std::optional<Experiment>& best) {
  if (!baseline || !best || !baseline->latency_us || !best->latency_us) return std::nullopt;
  return *baseline->latency_us / *best->latency_us;
}

}  // namespace amk
