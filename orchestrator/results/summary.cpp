// Results::grouped, best, config_diff: from the campaigns' rows and indices, never by counting experiments.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

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

// An experiment by its id, or the newest ended one with this schedule_id that has a latency, else the newest.
Result<Experiment> side(sql::Connection& c, std::string_view field, std::string_view text) {
  if (const auto id = experiment_id_from(text)) return rows::load_experiment(c, *id);
  AMK_TRY(id, c.value_i64("SELECT e.id FROM configs k JOIN experiments e ON e.config = k.id WHERE k.schedule_id = ?1 "
                          "ORDER BY e.latency_us IS NULL, e.end_seq DESC LIMIT 1",
                          text));
  if (!id)
    return fail(ErrorKind::NotFound, std::string(field) + ": no experiment has schedule_id " + std::string(text.substr(0, 200)),
                {{"field", field}, {"value", text}});
  return rows::load_experiment(c, ExperimentId{*id});
}

}  // namespace

Result<Json> Results::grouped(std::string_view by) const {
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
      AMK_TRY(leader, rows::leader_of(c, campaign.info.id));
      AMK_TRY(baseline, rows::baseline_latency_us(c, campaign.info.id));
      if (leader && baseline > 0) group.best_speedup = std::max(group.best_speedup.value_or(0), baseline / leader->latency_us);
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

Result<Json> Results::best() const {
  return store_.read<Json>([](sql::Connection& c) -> Result<Json> {
    AMK_TRY(campaigns, all_campaigns(c));
    Json out = Json::array();
    for (const rows::Campaign& campaign : campaigns) {
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
    AMK_TRY(left, side(c, "diff[0]", a));
    AMK_TRY(right, side(c, "diff[1]", b));
    Json out = {{"a", point_json(left)}, {"b", point_json(right)}, {"differs", amk::config_diff(left.config, right.config)}, {"ratio", nullptr}};
    for (const char* which : {"a", "b"}) out[which].erase("config");
    // A ratio across campaigns, or of a prediction and a measurement, would compare what is not alike.
    const bool alike = left.campaign == right.campaign && left.latency_kind == right.latency_kind && left.device == right.device;
    if (alike && left.latency_us && right.latency_us) out["ratio"] = *left.latency_us / *right.latency_us;
    return out;
  });
}

}  // namespace amk
