#include <algorithm>

#include "core/base/parse_json.h"
#include "orchestrator/campaign/rows.h"

namespace amk::rows {

Result<Experiment> read_experiment(const sql::Query& row) {
  Experiment e;
  e.id = ExperimentId{row.i64(0)};
  e.campaign = CampaignId{row.i64(1)};
  e.seq = row.i64(2);
  e.state = static_cast<ExperimentState>(row.i64(3));
  if (!row.null(4)) e.outcome = static_cast<Outcome>(row.i64(4));
  e.reason = row.text(5);
  e.correctness = row.text(6);
  e.schedule_id = row.text(7);
  e.kernel_id = row.text(8);
  e.tag = row.text(9);
  e.loop = row.text(10);
  e.strategy = row.text(11);
  e.description = row.text(12);
  e.worker = row.text(13);
  if (!row.null(14)) e.verdict_id = verdict_id_text(row.i64(14), row.view(15));
  e.device = row.text(16);
  AMK_TRY(config, parse_json(row.view(17), "stored config of " + to_string(e.id)));
  e.config = std::move(config);
  e.latency_us = row.opt_f64(18);
  e.bound_us = row.opt_f64(19);
  e.pct_of_roofline = row.opt_f64(20);
  e.latency_kind = row.text(21);
  e.quarantined = row.i64(22) != 0;
  e.generation = row.i64(23);
  e.attempts = row.i64(24);
  e.begun_wall_us = row.i64(25);
  e.ended_wall_us = row.i64(26);
  e.duration_us = row.i64(27);
  if (!row.view(28).empty()) {
    AMK_TRY(phases, parse_json(row.view(28), "stored phases of " + to_string(e.id)));
    e.phases = std::move(phases);
  }
  return e;
}

namespace {

Result<std::optional<Experiment>> first_of(sql::Query& query) {
  AMK_TRY(found, query.next());
  if (!found) return std::nullopt;
  AMK_TRY(experiment, read_experiment(query));
  return std::optional(std::move(experiment));
}

}  // namespace

Result<std::optional<Experiment>> find_experiment(sql::Connection& c, ExperimentId id) {
  AMK_TRY(row, c.query(AMK_EXPERIMENT_SELECT "WHERE e.id = ?1", raw(id)));
  return first_of(row);
}

Result<Experiment> load_experiment(sql::Connection& c, ExperimentId id) {
  AMK_TRY(found, find_experiment(c, id));
  if (!found) return fail(ErrorKind::NotFound, "no experiment " + to_string(id), {{"field", "experiment"}, {"value", to_string(id)}});
  return std::move(*found);
}

// Outcome 0 is kept. The index (campaign, outcome, end_seq) answers both from one end.
Result<std::optional<Experiment>> best_of(sql::Connection& c, CampaignId id) {
  AMK_TRY(row, c.query(AMK_EXPERIMENT_SELECT "WHERE e.campaign = ?1 AND e.outcome = 0 AND e.end_seq IS NOT NULL ORDER BY e.end_seq DESC LIMIT 1",
                       raw(id)));
  return first_of(row);
}

Result<std::optional<Experiment>> baseline_of(sql::Connection& c, CampaignId id) {
  AMK_TRY(row,
          c.query(AMK_EXPERIMENT_SELECT "WHERE e.campaign = ?1 AND e.outcome = 0 AND e.end_seq IS NOT NULL ORDER BY e.end_seq LIMIT 1", raw(id)));
  return first_of(row);
}

Result<std::optional<Leader>> leader_of(sql::Connection& c, CampaignId id) {
  AMK_TRY(row, c.query("SELECT k.schedule_id, e.latency_us, e.bound_us FROM experiments e JOIN configs k ON k.id = e.config "
                       "WHERE e.campaign = ?1 AND e.outcome = 0 AND e.end_seq IS NOT NULL ORDER BY e.end_seq DESC LIMIT 1",
                       raw(id)));
  AMK_TRY(found, row.next());
  if (!found) return std::nullopt;
  return Leader{row.text(0), row.f64(1), row.opt_f64(2).value_or(0)};
}

Result<double> speedup_of(sql::Connection& c, CampaignId id) {
  AMK_TRY(row, c.query("SELECT e.latency_us, v.json FROM experiments e JOIN verdicts v ON v.id = e.verdict "
                       "WHERE e.campaign = ?1 AND e.outcome = 0 AND e.end_seq IS NOT NULL ORDER BY e.end_seq",
                       raw(id)));
  double first_us = 0, last_us = 0, chained = 1;
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) break;
    last_us = row.f64(0);
    if (first_us > 0 && chained > 0) {
      AMK_TRY(verdict, parse_json(row.view(1), "stored verdict"));
      const Json versus = verdict.value("versus", Json(nullptr));
      const Json ratio = versus.is_object() ? versus.value("ratio", Json(nullptr)) : Json(nullptr);
      chained *= ratio.is_number() ? ratio.get<double>() : 0;
    }
    if (first_us <= 0) first_us = last_us;
  }
  if (first_us <= 0) return 0.0;
  return chained > 0 ? chained : first_us / last_us;
}

Result<std::vector<EndedPlace>> ended_places(sql::Connection& c, CampaignId id, std::int64_t end_seq, std::int64_t upto) {
  AMK_TRY(row, c.query("SELECT end_seq, id FROM experiments INDEXED BY experiments_outcome "
                       "WHERE campaign = ?1 AND outcome IN (0, 1, 2, 3, 4, 5, 6, 7) AND end_seq > ?2 AND end_seq <= ?3",
                       raw(id), end_seq, upto));
  std::vector<EndedPlace> out;
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) break;
    out.push_back({row.i64(0), row.i64(1)});
  }
  std::sort(out.begin(), out.end(), [](const EndedPlace& a, const EndedPlace& b) { return a.end_seq < b.end_seq; });
  return out;
}

Result<std::int64_t> next_end_seq(sql::Connection& c) {
  AMK_TRY(last, c.value_i64("SELECT max(end_seq) FROM experiments WHERE end_seq IS NOT NULL"));
  return last.value_or(0) + 1;
}

}  // namespace amk::rows
