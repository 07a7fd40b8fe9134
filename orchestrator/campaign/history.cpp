#include "orchestrator/campaign/history.h"

#include <algorithm>
#include <cmath>

#include "core/base/parse_json.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/json.h"
#include "orchestrator/campaign/phase_sum.h"

namespace amk {
namespace {

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
                       "JOIN configs k ON k.id = v.config LEFT JOIN experiments e INDEXED BY experiments_config "
                       "ON e.config = v.config AND e.campaign = v.campaign AND e.verdict = v.id "
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

// One ended experiment.
Status History::count(sql::Connection& c, std::int64_t experiment) {
  AMK_TRY(row, c.query("SELECT e.outcome, e.latency_us, e.bound_us, e.quarantined, e.phases, e.duration_us, k.text FROM experiments e "
                       "JOIN configs k ON k.id = e.config WHERE e.id = ?1",
                       experiment));
  AMK_TRY(found, row.next());
  if (!found) return fail(ErrorKind::Corrupt, "experiment " + to_string(ExperimentId{experiment}) + " is in an index of the store only");
  // What may fail comes first: an experiment counts whole or not at all, and the next report goes on where this one failed.
  Json named = nullptr;
  if (!row.view(4).empty()) {
    AMK_TRY(parsed, parse_json(row.view(4), "stored phases"));
    named = std::move(parsed);
  }
  const auto latency = row.opt_f64(1);
  if (latency && row.i64(3) == 0) AMK_CHECK(importance_.add_config(row.view(6), *latency));
  add_phases(named, row.i64(5), phases_s_);
  ++n_;
  if (const auto bound = row.opt_f64(2)) floor_us_ = *bound;
  if (static_cast<Outcome>(row.i64(0)) == Outcome::Kept && latency)
    course_.push_back({{"experiment", to_string(ExperimentId{experiment})}, {"n", n_}, {"latency_us", *latency}});
  if (course_.size() > kCourseShown) course_.pop_front();
  return {};
}

Result<bool> History::read_on(sql::Connection& c) {
  AMK_TRY(next, rows::next_end_seq(c));
  if (upto_ >= next - 1) return false;
  const std::int64_t last = std::min(next - 1, upto_ + window_);
  AMK_TRY(places, rows::ended_places(c, id_, upto_, last));
  for (const rows::EndedPlace& place : places) {
    AMK_CHECK(count(c, place.id));
    upto_ = place.end_seq;
  }
  upto_ = last;
  return true;
}

Result<Json> History::json(sql::Connection& c) {
  for (;;) {
    AMK_TRY(more, read_on(c));
    if (!more) break;
  }
  Json out = {{"course", Json::array()}, {"experiments_read", n_}, {"floor_us", floor_us_ > 0 ? Json(floor_us_) : Json(nullptr)}};
  for (const Json& step : course_) out["course"].push_back(step);
  out["knob_importance"] = Json::array();
  for (const KnobShare& share : importance_.ranked(kKnobsShown)) out["knob_importance"].push_back(to_json(share));
  out["time_by_phase_s"] = Json::object();
  for (const auto& [name, s] : phases_s_)
    if (s > 0) out["time_by_phase_s"][name] = s;
  AMK_TRY(believed, hypotheses(c, id_));
  out["hypotheses"] = std::move(believed);
  return out;
}

std::shared_ptr<History> Histories::of(CampaignId id) {
  const std::lock_guard lock(mutex_);
  for (auto it = kept_.begin(); it != kept_.end(); ++it)
    if (it->first == id) {
      kept_.splice(kept_.begin(), kept_, it);
      return kept_.front().second;
    }
  kept_.emplace_front(id, std::make_shared<History>(id));
  if (kept_.size() > kKept) kept_.pop_back();
  return kept_.front().second;
}

}  // namespace amk
