// report(): a campaign for people (markdown) and for programs (JSON), from the same rows.
#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/number_text.h"
#include "core/base/parse_json.h"
#include "core/base/text.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/config_diff.h"
#include "orchestrator/campaign/history.h"
#include "orchestrator/campaign/json.h"
#include "orchestrator/campaign/service.h"

namespace amk {
namespace {

constexpr int kStepsShown = 100;
constexpr int kListed = 20;

Result<Json> kept_steps(sql::Connection& c, CampaignId id) {
  Json steps = Json::array();
  AMK_TRY(
      row,
      c.query("SELECT e.id, e.seq, k.schedule_id, e.latency_us, e.pct_of_roofline, e.description, e.loop, v.id, v.secret, v.json, e.ended_wall_us "
              "FROM experiments e JOIN configs k ON k.id = e.config JOIN verdicts v ON v.id = e.verdict "
              "WHERE e.campaign = ?1 AND e.outcome = 0 AND e.end_seq IS NOT NULL ORDER BY e.end_seq DESC LIMIT ?2",
              raw(id), kStepsShown));
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) break;
    AMK_TRY(verdict, parse_json(row.view(9), "stored verdict"));
    steps.push_back({{"experiment", to_string(ExperimentId{row.i64(0)})},
                     {"seq", row.i64(1)},
                     {"schedule_id", row.text(2)},
                     {"latency_us", row.f64(3)},
                     {"pct_of_roofline", or_null(row.opt_f64(4))},
                     {"description", row.text(5)},
                     {"loop", row.text(6)},
                     {"verdict_id", rows::verdict_id_text(row.i64(7), row.view(8))},
                     {"versus", verdict.value("versus", Json(nullptr))},
                     {"ended", utc_text(row.i64(10))}});
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

Result<Json> listed(sql::Connection& c, CampaignId id) {
  Json out = {{"quarantined", Json::array()}, {"claims", Json::array()}};
  {
    AMK_TRY(
        row,
        c.query(
            "SELECT k.schedule_id, q.reason, v.id, v.secret FROM quarantine q JOIN configs k ON k.id = q.config JOIN verdicts v ON v.id = q.verdict "
            "WHERE q.campaign = ?1 LIMIT ?2",
            raw(id), kListed));
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) break;
      out["quarantined"].push_back(
          {{"schedule_id", row.text(0)}, {"reason", row.text(1)}, {"verdict_id", rows::verdict_id_text(row.i64(2), row.view(3))}});
    }
  }
  AMK_TRY(row, c.query("SELECT request, refused, recorded_wall_us FROM claims WHERE campaign = ?1 AND experiment IS NULL ORDER BY id DESC LIMIT ?2",
                       raw(id), kListed));
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) break;
    AMK_TRY(request, parse_json(row.view(0), "stored claim"));
    out["claims"].push_back({{"status", request.value("status", "")},
                             {"latency_us", request.value("latency_us", Json(nullptr))},
                             {"description", request.value("description", "")},
                             {"refused", or_null(row.text(1))},
                             {"recorded", utc_text(row.i64(2))}});
  }
  return out;
}

Result<Json> report_json(sql::Connection& c, CampaignId id, std::int64_t uncharged_us, History& history_of_it) {
  AMK_TRY(campaign, rows::load_campaign(c, id));
  AMK_TRY(best, rows::best_of(c, id));
  AMK_TRY(baseline, rows::baseline_of(c, id));
  Json out = key_json(campaign.info);
  out["baseline"] = point_json(baseline);
  out["best"] = point_json(best);
  out["speedup_over_own_baseline"] = or_null(speedup(baseline, best));
  out["changes_from_baseline"] = baseline && best ? config_diff(baseline->config, best->config) : Json(nullptr);
  out["counts"] = counts_json(campaign);
  out["time_spent_s"] = static_cast<double>(campaign.spent_us + uncharged_us) / 1e6;
  out["policy"] = to_json(campaign.info.policy);
  AMK_TRY(steps, kept_steps(c, id));
  // Each step was measured against the one before it, side by side: their product is free of drift between sessions.
  double chained = 1;
  bool measured = steps.size() > 1 && campaign.outcomes[0] <= kStepsShown;
  for (std::size_t i = 1; i < steps.size() && measured; ++i) {
    const Json& versus = steps[i]["versus"];
    if (versus.is_object() && versus.value("ratio", 0.0) > 0)
      chained *= versus["ratio"].get<double>();
    else
      measured = false;
  }
  out["speedup_chained"] = measured ? Json(chained) : Json(nullptr);
  out["kept"] = std::move(steps);
  out["kept_total"] = campaign.outcomes[0];
  out["regions"] = nullptr;
  if (best && !best->verdict_id.empty()) {
    AMK_TRY(verdict, rows::find_verdict(c, best->verdict_id));
    if (verdict) out["regions"] = verdict->verdict.regions;
  }
  AMK_TRY(lists, listed(c, id));
  out["quarantined"] = lists["quarantined"];
  out["quarantined_total"] = campaign.quarantined;
  out["claims"] = lists["claims"];
  out["claims_total"] = campaign.claims;
  AMK_TRY(history, history_of_it.json(c));
  out["history"] = std::move(history);
  return out;
}

// --- markdown

std::string number(const Json& value, int decimals = 3) { return value.is_number() ? with_decimals(value.get<double>(), decimals) : "–"; }

// Text of others inside a table cell or a line: no new cells, lines, links, entities or HTML of its own making, nothing that a terminal obeys.
std::string cell(const Json& value) {
  constexpr std::size_t kShown = 300;
  std::string out;
  const std::string text = value.is_string() ? value.get<std::string>() : value.is_null() ? "–" : value.dump();
  for (const char ch : one_line(cut_text(text, kShown))) {
    if (ch == '|' || ch == '`' || ch == '<' || ch == '&' || ch == '[' || ch == '*' || ch == '\\') out += '\\';
    out += ch;
  }
  return text.size() > kShown ? out + "…" : out;
}

// Plots are files beside the report, named after the campaign.
void markdown_of_history(const Json& h, const std::string& campaign, const std::function<void(const std::string&)>& line) {
  const auto plot = [&](const char* name, const char* what) {
    line("");
    line("![" + std::string(what) + "](" + campaign + "-" + name + ".svg)");
  };
  plot("best-so-far", "Best so far, with the physical floor");
  plot("outcomes", "Outcomes");
  if (!h["knob_importance"].empty()) {
    line("");
    line("## Which knobs mattered");
    line("");
    line("Share of the variance of log latency that a knob's choice explains, over the correct experiments. Knobs were moved together: a hint.");
    line("");
    line("| knob | explains | experiments | confidence |");
    line("| --- | --- | --- | --- |");
    for (const Json& k : h["knob_importance"])
      line("| " + cell(k["knob"]) + " | " + number(k["explains"], 2) + " | " + k["observations"].dump() + " | " + cell(k["confidence"]) + " |");
    plot("knobs", "Knob importance");
  }
  if (!h["time_by_phase_s"].empty()) {
    line("");
    line("## Where the time went");
    line("");
    line("| phase | seconds |");
    line("| --- | --- |");
    for (const auto& [phase, s] : h["time_by_phase_s"].items()) line("| " + cell(phase) + " | " + number(s, 1) + " |");
    plot("phases", "Time per phase");
  }
  if (!h["hypotheses"].empty()) {
    line("");
    line("## Hypotheses and what became of them");
    line("");
    line("| hypothesis | outcome | latency µs | config | evidence |");
    line("| --- | --- | --- | --- | --- |");
    for (const Json& e : h["hypotheses"])
      line("| " + cell(e["hypothesis"]) + " | " + cell(e["outcome"]) + " | " + number(e["latency_us"]) + " | " + cell(e["schedule_id"]) + " | " +
           cell(e["verdict_id"]) + " |");
  }
}

std::string markdown_of(const Json& r) {
  std::string out;
  const auto line = [&out](const std::string& text) { (out += text) += '\n'; };
  line("# " + cell(r["workload"]) + " on " + cell(r["gpu"]) + " (" + cell(r["device_kind"]) + ", " + cell(r["regime"]) + ")");
  line("");
  line("Campaign " + cell(r["campaign"]) + ": " + cell(r["state"]) + (r["done_reason"].is_string() ? " (" + cell(r["done_reason"]) + ")" : "") +
       ". " + number(r["time_spent_s"], 1) + " s spent.");
  line("");
  if (r["best"].is_null()) {
    line("No candidate has been correct yet.");
  } else {
    line("| | config | latency µs | kind | % of floor reached | evidence |");
    line("| --- | --- | --- | --- | --- | --- |");
    for (const char* which : {"baseline", "best"}) {
      const Json& p = r[which];
      line("| " + std::string(which) + " | " + cell(p["schedule_id"]) + " | " + number(p["latency_us"]) + " | " + cell(p["latency_kind"]) + " | " +
           number(p["pct_of_roofline"], 1) + " | " + cell(p["verdict_id"]) + " |");
    }
    line("");
    line("Speedup over this tool's own baseline: " + number(r["speedup_over_own_baseline"]) + "×" +
         (r["speedup_chained"].is_number() ? " (product of the side-by-side comparisons: " + number(r["speedup_chained"]) + "×)" : "") + ".");
    if (r["best"]["latency_kind"] == "predicted") line("These latencies are predicted by the cost model, not measured.");
    if (r["changes_from_baseline"].is_object() && !r["changes_from_baseline"].empty()) {
      line("");
      line("## What changed from baseline to best");
      line("");
      line("| knob | baseline | best |");
      line("| --- | --- | --- |");
      for (const auto& [knob, both] : r["changes_from_baseline"].items())
        line("| " + cell(knob) + " | " + cell(both[0]) + " | " + cell(both[1]) + " |");
    }
    if (r["regions"].is_object() && !r["regions"].empty()) {
      line("");
      line("## Where the best spends its time");
      line("");
      line(r["best"]["latency_kind"] == "predicted" ? "As predicted by the cost model:"
                                                    : "The cost model's shares of what was measured (`amk trace` measures them):");
      line("");
      line("| region | µs |");
      line("| --- | --- |");
      for (const auto& [region, us] : r["regions"].items()) line("| " + cell(region) + " | " + number(us) + " |");
    }
    line("");
    line("## Kept, in order");
    line("");
    line("| # | config | latency µs | ratio to the best before (95% interval) | what | evidence |");
    line("| --- | --- | --- | --- | --- | --- |");
    for (const Json& s : r["kept"]) {
      std::string ratio = "–";
      if (s["versus"].is_object()) {
        ratio = number(s["versus"].value("ratio", Json(nullptr)));
        const Json ci = s["versus"].value("ci95", Json(nullptr));
        if (ci.is_array() && ci.size() == 2) ratio += " (" + number(ci[0]) + "–" + number(ci[1]) + ")";
      }
      line("| " + s["seq"].dump() + " | " + cell(s["schedule_id"]) + " | " + number(s["latency_us"]) + " | " + ratio + " | " +
           cell(s["description"]) + " | " + cell(s["verdict_id"]) + " |");
    }
  }
  line("");
  line("## Outcomes");
  line("");
  line("| outcome | experiments |");
  line("| --- | --- |");
  for (const auto& [outcome, n] : r["counts"].items()) line("| " + outcome + " | " + n.dump() + " |");
  line("");
  line("Lost experiments are the machine's failures and count against no candidate.");
  markdown_of_history(r["history"], cell(r["campaign"]), line);
  if (!r["quarantined"].empty()) {
    line("");
    line("## Quarantined");
    line("");
    line("Faster than the physical floor, so not believed and not evaluated again:");
    line("");
    for (const Json& q : r["quarantined"]) line("- " + cell(q["schedule_id"]) + " (" + cell(q["reason"]) + "; " + cell(q["verdict_id"]) + ")");
  }
  if (!r["claims"].empty()) {
    line("");
    line("## Claims without evidence");
    line("");
    line("Typed by agents; nothing above rests on them:");
    line("");
    for (const Json& claim : r["claims"])
      line("- " + cell(claim["status"]) + " " + number(claim["latency_us"]) + " µs: " + cell(claim["description"]) +
           (claim["refused"].is_string() ? " (refused: " + cell(claim["refused"]) + ")" : ""));
  }
  return out;
}

}  // namespace

Result<CampaignService::Report> CampaignService::report(CampaignId id) const {
  const std::shared_ptr<History> history = impl_->histories.of(id);
  const std::lock_guard lock(history->mutex);
  for (;;) {
    AMK_TRY(more, impl_->store.read<bool>([&](sql::Connection& c) { return history->read_on(c); }));
    if (!more) break;
  }
  AMK_TRY(json, impl_->store.read<Json>([&](sql::Connection& c) { return report_json(c, id, impl_->time->uncharged(id), *history); }));
  Report out;
  out.markdown = markdown_of(json);
  out.plots = report_plots(json);
  out.json = std::move(json);
  return out;
}

}  // namespace amk
