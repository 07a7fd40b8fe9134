#include "orchestrator/campaign/history.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/parse_json.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/json.h"
#include "orchestrator/campaign/knob_importance.h"
#include "orchestrator/campaign/phase_sum.h"

namespace amk {
namespace {

constexpr int kRead = 20'000;              // the newest experiments; a report of a longer campaign says so
constexpr std::size_t kCourseShown = 400;  // kept steps
constexpr std::size_t kKnobsShown = 8;
constexpr std::size_t kHypothesesShown = 30;
constexpr std::string_view kHypothesisMark = "hypothesis: ";  // how amk_eval's text stands in a verdict's notes

std::string hypothesis_in(const Json& verdict) {
  const std::string notes = verdict.value("notes", "");
  const std::size_t at = notes.find(kHypothesisMark);
  return at == std::string::npos ? "" : notes.substr(at + kHypothesisMark.size());
}

// Verdicts that were asked for with a hypothesis, recorded or not: newest first among the last few thousand verdicts of the store.
Result<Json> hypotheses(sql::Connection& c, CampaignId id) {
  Json out = Json::array();
  AMK_TRY(row, c.query("SELECT v.id, v.secret, v.json, k.schedule_id, e.outcome, e.latency_us, e.description, e.id FROM verdicts v "
                       "JOIN configs k ON k.id = v.config LEFT JOIN experiments e ON e.verdict = v.id "
                       "WHERE v.id > (SELECT COALESCE(MAX(id), 0) - 5000 FROM verdicts) AND v.campaign = ?1 "
                       "AND (instr(v.json, ?2) > 0 OR COALESCE(e.description, '') != '') ORDER BY v.id DESC LIMIT ?3",
                       raw(id), kHypothesisMark, static_cast<std::int64_t>(kHypothesesShown)));
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) return out;
    AMK_TRY(verdict, parse_json(row.view(2), "stored verdict"));
    const std::string asked = hypothesis_in(verdict), said = row.null(6) ? "" : row.text(6);
    const std::string text = asked.empty() ? said : said.empty() || said == asked ? asked : asked + "; " + said;
    if (text.empty()) continue;
    Json entry = {{"hypothesis", text}, {"schedule_id", row.text(3)}, {"verdict_id", rows::verdict_id_text(row.i64(0), row.view(1))}};
    entry["outcome"] = row.null(4) ? Json("not recorded") : Json(to_string(static_cast<Outcome>(row.i64(4))));
    const bool experiment = !row.null(7);
    entry["experiment"] = experiment ? Json(to_string(ExperimentId{row.i64(7)})) : Json(nullptr);
    entry["latency_us"] = experiment ? or_null(row.opt_f64(5)) : verdict.value("latency_us", Json(nullptr));
    out.push_back(std::move(entry));
  }
}

}  // namespace

Result<Json> history_json(sql::Connection& c, CampaignId id) {
  Json course = Json::array();
  std::map<std::string, double> phases;
  KnobImportance importance;
  double floor_us = 0;
  std::int64_t n = 0;
  {
    // The newest kRead, in the order in which they ended.
    AMK_TRY(row,
            c.query("SELECT id, outcome, latency_us, bound_us, quarantined, phases, duration_us, text FROM (SELECT e.id, e.outcome, e.latency_us, "
                    "e.bound_us, e.quarantined, e.phases, e.duration_us, k.text, e.end_seq FROM experiments e JOIN configs k ON k.id = e.config "
                    "WHERE e.campaign = ?1 AND e.end_seq IS NOT NULL ORDER BY e.end_seq DESC LIMIT ?2) ORDER BY end_seq",
                    raw(id), kRead));
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) break;
      ++n;
      const auto latency = row.opt_f64(2);
      if (const auto bound = row.opt_f64(3)) floor_us = *bound;
      if (static_cast<Outcome>(row.i64(1)) == Outcome::Kept && latency)
        course.push_back({{"experiment", to_string(ExperimentId{row.i64(0)})}, {"n", n}, {"latency_us", *latency}});
      Json named = nullptr;
      if (!row.view(5).empty()) {
        AMK_TRY(parsed, parse_json(row.view(5), "stored phases"));
        named = std::move(parsed);
      }
      add_phases(named, row.i64(6), phases);
      if (latency && row.i64(4) == 0) {
        AMK_TRY(config, parse_json(row.view(7), "stored config"));
        importance.add(config_leaves(config), *latency);
      }
    }
  }
  while (course.size() > kCourseShown) course.erase(course.begin());
  Json out = {{"course", std::move(course)}, {"experiments_read", n}, {"floor_us", floor_us > 0 ? Json(floor_us) : Json(nullptr)}};
  out["knob_importance"] = Json::array();
  for (const KnobShare& share : importance.ranked(kKnobsShown)) out["knob_importance"].push_back(to_json(share));
  out["time_by_phase_s"] = Json::object();
  for (const auto& [name, s] : phases)
    if (s > 0) out["time_by_phase_s"][name] = s;
  AMK_TRY(believed, hypotheses(c, id));
  out["hypotheses"] = std::move(believed);
  return out;
}

}  // namespace amk
