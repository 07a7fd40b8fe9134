// status() and next(): where a campaign stands, and what to do.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/hash.h"
#include "core/base/number_text.h"
#include "core/base/parse_json.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/json.h"
#include "orchestrator/campaign/service.h"
#include "orchestrator/campaign/transitions.h"

namespace amk {
namespace {

constexpr int kCampaignsListed = 50;

double seconds(std::int64_t us) { return static_cast<double>(us) / 1e6; }

Result<Json> status_of(sql::Connection& c, CampaignId id, std::int64_t uncharged_us) {
  AMK_TRY(campaign, rows::load_campaign(c, id));
  AMK_TRY(best, rows::best_of(c, id));
  AMK_TRY(baseline, rows::baseline_of(c, id));
  const CampaignPolicy& policy = campaign.info.policy;
  Json out = key_json(campaign.info);
  out["policy"] = to_json(policy);
  out["experiments"] = {{"total", campaign.ended() + campaign.running + campaign.queued},
                        {"ended", campaign.ended()},
                        {"running", campaign.running},
                        {"queued", campaign.queued}};
  out["counts"] = counts_json(campaign);
  out["claims"] = campaign.claims;
  out["quarantined"] = campaign.quarantined;
  out["baseline"] = point_json(baseline);
  out["best"] = point_json(best);
  out["speedup_over_own_baseline"] = or_null(speedup(baseline, best));
  out["plateau"] = {{"non_keeps", campaign.non_keeps}, {"limit", policy.plateau > 0 ? Json(policy.plateau) : Json(nullptr)}};
  out["time"] = {{"spent_s", seconds(campaign.spent_us + uncharged_us)},
                 {"budget_s", policy.budget_us ? Json(seconds(*policy.budget_us)) : Json(nullptr)}};
  out["created"] = utc_text(campaign.created_wall_us);
  return out;
}

Result<Json> list_of(sql::Connection& c) {
  std::vector<CampaignId> ids;
  {
    AMK_TRY(row, c.query("SELECT id FROM campaigns ORDER BY changed DESC LIMIT ?1", kCampaignsListed));
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) break;
      ids.push_back(CampaignId{row.i64(0)});
    }
  }
  Json list = Json::array();
  for (const CampaignId id : ids) {
    AMK_TRY(campaign, rows::load_campaign(c, id));
    AMK_TRY(leader, rows::leader_of(c, id));
    Json entry = key_json(campaign.info);
    entry["ended"] = campaign.ended();
    entry["kept"] = campaign.outcomes[0];
    entry["best_latency_us"] = leader ? Json(leader->latency_us) : Json(nullptr);
    list.push_back(std::move(entry));
  }
  return list;
}

// --- next

struct Region {
  const char* name;
  const char* advice;
};
// Of a step of a model, then of a GEMM (kernels/det_gemm/cost_model.h).
constexpr std::array<Region, 11> kRegions{{
    {"attention", "attention takes the most: try tiling.attention.kv_block, combine+o and qkv+rope+append in fusion_grouping, kernel_knobs.counters"},
    {"mlp", "the MLP takes the most: try tiling.gemv.N_tile, smem_bytes_per_block, kernel_knobs.chunk_bytes and inflight_chunks, weight_layout"},
    {"lm_head", "the LM head takes the most: try tiling.gemv.N_tile, sm_assignment, lm_head+argmax in fusion_grouping"},
    {"sync", "waiting between instructions takes the most: try pipelining_depth, fusion_grouping, kernel_knobs.publish and counters"},
    {"matrix", "the matrix units bind: try tile.m and tile.n, consumers, swap, defer"},
    {"ingest", "copies into shared memory bind: try larger tile.m and tile.n, cluster.m and cluster.n (multicast)"},
    {"l2", "reads through L2 bind: try cluster.m and cluster.n (multicast), larger tiles, raster.group and raster.along"},
    {"memory", "device memory binds: try l2.x, l2.y and l2.fetch, raster.group, swap where there are few tokens"},
    {"latency", "round trips to memory bind: try more stages, tile.k, smaller tiles so that more blocks run"},
    {"stages", "what a stage costs whatever its size binds: try a larger tile.k, producer, no cluster"},
    {"launch", "launch, first bytes and the last tile's epilogue take the most: try overlap, epilogue, producer, smaller tiles"},
}};

// {"attention": {"us", "share"}, …} of the best verdict, and advice for the largest region that has any.
struct Where {
  Json regions = nullptr;
  std::string focus, advice;
};
Where where_time_goes(const Json& regions) {
  Where out;
  if (!regions.is_object() || regions.empty()) return out;
  double total = 0, largest = 0;
  for (const auto& [name, us] : regions.items())
    if (us.is_number()) total += us.get<double>();
  if (!(total > 0)) return out;
  out.regions = Json::object();
  for (const auto& [name, us] : regions.items())
    if (us.is_number()) out.regions[name] = {{"us", us}, {"share", us.get<double>() / total}};
  for (const Region& region : kRegions) {
    const double us = regions.contains(region.name) && regions[region.name].is_number() ? regions[region.name].get<double>() : 0;
    if (us > largest) {
      largest = us;
      out.focus = region.name;
      out.advice = region.advice;
    }
  }
  return out;
}

std::string explain(const CampaignPolicy& policy, const std::string& reason) {
  if (reason == "plateau") return std::to_string(policy.plateau) + " experiments in a row were not kept";
  if (reason == "no-correct-baseline")
    return std::to_string(policy.plateau) + " experiments in a row failed before any was correct: look at their reasons";
  if (reason == "near-floor") return "the best is within " + with_digits(policy.within_floor * 100, 6) + "% of the physical floor";
  if (reason == "budget")
    return "the time budget of " + with_digits(policy.budget_us ? seconds(*policy.budget_us) : 0.0, 6) + " s in this campaign is spent";
  if (reason == "speedup-target")
    return "the speedup target of " + with_digits(policy.speedup_target.value_or(0), 6) + " over the own baseline is reached";
  return reason;
}

struct Picture {
  rows::Campaign campaign;
  std::optional<Experiment> best;
  Json regions = nullptr;
};

Result<Picture> picture_of(sql::Connection& c, CampaignId id) {
  Picture out;
  AMK_TRY(campaign, rows::load_campaign(c, id));
  out.campaign = std::move(campaign);
  AMK_TRY(best, rows::best_of(c, id));
  out.best = std::move(best);
  if (out.best && !out.best->verdict_id.empty()) {
    AMK_TRY(verdict, rows::find_verdict(c, out.best->verdict_id));
    if (verdict) out.regions = verdict->verdict.regions;
  }
  return out;
}

Json advice_of(const Picture& p, bool disk_full) {
  const rows::Campaign& campaign = p.campaign;
  const CampaignPolicy& policy = campaign.info.policy;
  Json out = {{"campaign", to_string(campaign.info.id)}, {"state", to_string(campaign.info.state)}};
  if (disk_full) {
    out["action"] = "stop";
    out["reason"] = "disk-full";
    out["why"] = "the workspace's disk is full: nothing new is started until there is space; finished results wait in memory";
    return out;
  }
  if (campaign.info.state == CampaignState::Done) {
    out["action"] = "stop";
    out["reason"] = campaign.info.done_reason;
    out["why"] = explain(policy, campaign.info.done_reason) + "; reopen the campaign to go on";
  } else if (campaign.info.state == CampaignState::Baseline) {
    out["action"] = "continue";
    out["reason"] = "no-baseline";
    out["why"] = "nothing correct has been evaluated yet: evaluate the default config first, it becomes the baseline";
  } else {
    out["action"] = "continue";
    out["reason"] = campaign.non_keeps == 0 ? "improved" : "searching";
    out["why"] = std::to_string(campaign.non_keeps) + " experiments since the last that was kept";
    if (policy.plateau > 0)
      out["why"] = out["why"].get<std::string>() + "; " + std::to_string(policy.plateau - campaign.non_keeps) + " more end the campaign";
  }
  const Where where = where_time_goes(p.regions);
  out["where"] = where.regions;
  if (!where.regions.is_null()) out["where_by"] = "cost model";  // measured only by amk trace
  out["focus"] = or_null(where.focus);
  out["advice"] = or_null(where.advice);
  if (p.best) {
    out["best"] = {{"schedule_id", p.best->schedule_id},
                   {"latency_us", or_null(p.best->latency_us)},
                   {"latency_kind", or_null(p.best->latency_kind)},
                   {"pct_of_roofline", or_null(p.best->pct_of_roofline)}};
  } else {
    out["best"] = nullptr;
  }
  return out;
}

}  // namespace

Result<Json> CampaignService::status(std::optional<CampaignId> id) const {
  const auto time = impl_->time;
  return impl_->store.read<Json>([id, time](sql::Connection& c) -> Result<Json> {
    if (id) return status_of(c, *id, time->uncharged(*id));
    AMK_TRY(list, list_of(c));
    Json out = {{"campaign", nullptr}};
    if (!list.empty()) {
      AMK_TRY(last, campaign_id_from(list[0]["campaign"].get<std::string>()));
      AMK_TRY(full, status_of(c, last, time->uncharged(last)));
      out = std::move(full);
    }
    AMK_TRY(count, c.value_i64("SELECT count(*) FROM campaigns"));
    out["campaigns"] = std::move(list);
    out["campaigns_total"] = count.value_or(0);
    return out;
  });
}

Result<Json> CampaignService::next(CampaignId id) {
  const auto look = [&] { return impl_->store.read<Picture>([id](sql::Connection& c) { return picture_of(c, id); }); };
  AMK_TRY(picture, look());
  // A budget may have run out since the last experiment ended. Only then is there something to write: a commit waits for the disk.
  const CampaignInfo& info = picture.campaign.info;
  if (info.state != CampaignState::Done && info.policy.budget_us &&
      picture.campaign.spent_us + impl_->time->uncharged(id) >= *info.policy.budget_us && !impl_->store.disk_full()) {
    AMK_CHECK(impl_->charge_time(id));
    AMK_TRY(now, look());
    picture = std::move(now);
  }
  Json advice = advice_of(picture, impl_->store.disk_full());
  // Counts that move with every experiment belong to the advice: it is the same only when nothing happened.
  const std::string advice_id = "a" + hash128_hex(canonical_dump(advice) + "|" + std::to_string(picture.campaign.ended())).substr(0, 16);
  bool unchanged = false;
  {
    const std::lock_guard lock(impl_->advice_mutex);
    std::string& given = impl_->advice_given[id];
    unchanged = given == advice_id;
    given = advice_id;
  }
  if (unchanged) advice = {{"campaign", advice["campaign"]}, {"state", advice["state"]}, {"action", advice["action"]}, {"reason", advice["reason"]}};
  advice["advice_id"] = advice_id;
  advice["unchanged"] = unchanged;
  return advice;
}

}  // namespace amk
