// Results::grouped, best, config_diff: from the campaigns' rows and indices, never by counting experiments.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/base/text.h"
#include "orchestrator/campaign/config_diff.h"
#include "orchestrator/campaign/json.h"
#include "orchestrator/campaign/rows.h"
#include "orchestrator/results/results.h"

namespace amk {
namespace {

Result<std::vector<rows::Campaign>> all_campaigns(sql::Connection& c) {
  std::vector<CampaignId> ids;
  {
    AMK_TRY(row, c.query("SELECT id FROM campaigns ORDER BY id"));
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) break;
      ids.push_back(CampaignId{row.i64(0)});
    }
  }
  std::vector<rows::Campaign> out;
  for (const CampaignId id : ids) {
    AMK_TRY(campaign, rows::load_campaign(c, id));
    out.push_back(std::move(campaign));
  }
  return out;
}

struct Group {
  std::array<std::int64_t, kOutcomes> outcomes{};
  std::int64_t campaigns = 0;
  std::optional<double> best_speedup;
};

// An experiment by its id, or of those with this schedule_id that ended: one of the campaign `where` if there is any, one that has a latency, the
// newest.
Result<Experiment> side(sql::Connection& c, std::string_view field, std::string_view text, std::optional<CampaignId> where) {
  if (const auto id = experiment_id_from(text)) return rows::load_experiment(c, *id);
  AMK_TRY(id, c.value_i64("SELECT e.id FROM configs k JOIN experiments e ON e.config = k.id WHERE k.schedule_id = ?1 "
                          "ORDER BY e.campaign != ?2, e.latency_us IS NULL, e.end_seq DESC LIMIT 1",
                          text, where ? raw(*where) : 0));
  if (!id)
    return fail(ErrorKind::NotFound, std::string(field) + ": no experiment has schedule_id " + std::string(cut_text(text, 200)),
                {{"field", field}, {"value", text}});
  return rows::load_experiment(c, ExperimentId{*id});
}

// Where the two can be compared: a config is evaluated in many campaigns, the default one in all of them.
Result<std::optional<CampaignId>> common_campaign(sql::Connection& c, std::string_view a, std::string_view b) {
  for (const std::string_view text : {a, b})
    if (const auto id = experiment_id_from(text)) {
      AMK_TRY(experiment, rows::load_experiment(c, *id));
      return experiment.campaign;
    }
  AMK_TRY(id, c.value_i64("SELECT x.campaign FROM configs j JOIN experiments x ON x.config = j.id JOIN experiments y ON y.campaign = x.campaign "
                          "JOIN configs k ON y.config = k.id WHERE j.schedule_id = ?1 AND k.schedule_id = ?2 AND x.latency_us IS NOT NULL "
                          "AND y.latency_us IS NOT NULL ORDER BY x.end_seq DESC LIMIT 1",
                          a, b));
  return id ? std::optional(CampaignId{*id}) : std::nullopt;
}

// What the evaluator measured when it held `candidate` against `incumbent`, in turn on one GPU: {ratio: incumbent / candidate, ci95}, or null.
Result<Json> in_turn(sql::Connection& c, const Experiment& incumbent, const Experiment& candidate, bool inverse) {
  if (candidate.verdict_id.empty()) return Json(nullptr);
  AMK_TRY(found, rows::find_verdict(c, candidate.verdict_id));
  if (!found || !found->verdict.versus || found->verdict.versus->incumbent != incumbent.schedule_id) return Json(nullptr);
  const Versus& v = *found->verdict.versus;
  if (!inverse) return Json{{"ratio", v.ratio}, {"ci95", {v.ci_low, v.ci_high}}};
  if (!(v.ratio > 0 && v.ci_low > 0 && v.ci_high > 0)) return Json(nullptr);
  return Json{{"ratio", 1 / v.ratio}, {"ci95", {1 / v.ci_high, 1 / v.ci_low}}};
}

}  // namespace

Result<Json> Results::grouped(std::string_view by) const {
  if (by == "workload") by = "model";
  if (by != "model" && by != "gpu" && by != "device_kind" && by != "regime" && by != "outcome")
    return bad_field("group", by, "model, gpu, device_kind, regime, outcome");
  return store_.read<Json>([by](sql::Connection& c) -> Result<Json> {
    AMK_TRY(campaigns, all_campaigns(c));
    Json out = Json::array();
    if (by == "outcome") {
      for (int i = 0; i < kOutcomes; ++i) {
        std::int64_t n = 0;
        for (const rows::Campaign& campaign : campaigns) n += campaign.outcomes[static_cast<std::size_t>(i)];
        out.push_back({{"outcome", to_string(static_cast<Outcome>(i))}, {"experiments", n}});
      }
      return out;
    }
    std::map<std::string, Group> groups;
    for (const rows::Campaign& campaign : campaigns) {
      const CampaignKey& key = campaign.info.key;
      Group& group = groups[by == "model" ? key.workload : by == "gpu" ? key.gpu : by == "device_kind" ? key.device_kind : key.regime];
      ++group.campaigns;
      for (std::size_t i = 0; i < group.outcomes.size(); ++i) group.outcomes[i] += campaign.outcomes[i];
      AMK_TRY(speedup, rows::speedup_of(c, campaign.info.id));
      if (speedup > 0) group.best_speedup = std::max(group.best_speedup.value_or(0), speedup);
    }
    for (const auto& [name, group] : groups) {
      Json counts = Json::object();
      std::int64_t total = 0;
      for (int i = 0; i < kOutcomes; ++i) {
        const std::int64_t n = group.outcomes[static_cast<std::size_t>(i)];
        total += n;
        counts[std::string(to_string(static_cast<Outcome>(i)))] = n;
      }
      out.push_back({{std::string(by), name},
                     {"campaigns", group.campaigns},
                     {"experiments", total},
                     {"counts", std::move(counts)},
                     {"best_speedup_over_own_baseline", or_null(group.best_speedup)}});
    }
    return out;
  });
}

Result<Json> Results::best(const ResultsQuery& q) const {
  return store_.read<Json>([&q](sql::Connection& c) -> Result<Json> {
    AMK_TRY(campaigns, all_campaigns(c));
    Json out = Json::array();
    for (const rows::Campaign& campaign : campaigns) {
      const CampaignKey& key = campaign.info.key;
      if ((!q.workload.empty() && q.workload != key.workload) || (!q.gpu.empty() && q.gpu != key.gpu) ||
          (q.campaign && *q.campaign != campaign.info.id))
        continue;
      AMK_TRY(best, rows::best_of(c, campaign.info.id));
      if (!best) continue;
      AMK_TRY(baseline, rows::baseline_of(c, campaign.info.id));
      Json entry = point_json(best);
      entry.update(key_json(campaign.info));
      entry["model"] = campaign.info.key.workload;
      entry["speedup_over_own_baseline"] = or_null(speedup(baseline, best));
      out.push_back(std::move(entry));
    }
    return out;
  });
}

Result<Json> Results::config_diff(std::string_view a, std::string_view b) const {
  return store_.read<Json>([a, b](sql::Connection& c) -> Result<Json> {
    AMK_TRY(where, common_campaign(c, a, b));
    AMK_TRY(left, side(c, "diff[0]", a, where));
    AMK_TRY(right, side(c, "diff[1]", b, where));
    Json out = {{"a", point_json(left)},
                {"b", point_json(right)},
                {"differs", amk::config_diff(left.config, right.config)},
                {"ratio", nullptr},
                {"in_turn", nullptr}};
    for (const char* which : {"a", "b"}) out[which].erase("config");
    // A ratio across campaigns, or of a prediction and a measurement, would compare what is not alike.
    const bool alike = left.campaign == right.campaign && left.latency_kind == right.latency_kind && left.device == right.device;
    if (alike && left.latency_us && right.latency_us) out["ratio"] = *left.latency_us / *right.latency_us;
    if (left.campaign == right.campaign) {
      AMK_TRY(forth, in_turn(c, left, right, false));
      out["in_turn"] = std::move(forth);
      if (out["in_turn"].is_null()) {
        AMK_TRY(back, in_turn(c, right, left, true));
        out["in_turn"] = std::move(back);
      }
    }
    return out;
  });
}

}  // namespace amk
