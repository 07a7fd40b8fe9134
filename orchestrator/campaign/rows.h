// The campaign tables as values. Every function works inside the caller's transaction; none decides anything.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/campaign/campaign.h"
#include "orchestrator/store/sqlite.h"

namespace amk::rows {

// A row of `campaigns`: identity, rules, and the counts derived from its experiments.
struct Campaign {
  CampaignInfo info;
  std::int64_t created_wall_us = 0;
  std::int64_t last_seq = 0, queued = 0, running = 0;
  std::array<std::int64_t, kOutcomes> outcomes{};
  std::int64_t quarantined = 0, claims = 0, non_keeps = 0, reopened_after = 0, spent_us = 0, unattributed_us = 0;

  std::int64_t ended() const {
    std::int64_t sum = 0;
    for (std::int64_t n : outcomes) sum += n;
    return sum;
  }
};
Result<Campaign> load_campaign(sql::Connection& c, CampaignId id);  // NotFound
Result<std::optional<CampaignId>> find_campaign(sql::Connection& c, const CampaignKey& key);
Result<CampaignId> insert_campaign(sql::Connection& c, const CampaignKey& key, const CampaignPolicy& policy, std::int64_t wall_us);
Status save_campaign(sql::Connection& c, Campaign& campaign);  // all but the key; bumps its revision

// The id of this text among the configs, if it is there; interned when `insert`.
Result<std::optional<std::int64_t>> find_config(sql::Connection& c, std::string_view schedule_id, std::string_view text);
Result<std::int64_t> intern_config(sql::Connection& c, std::string_view schedule_id, std::string_view text);

Result<std::optional<Experiment>> find_experiment(sql::Connection& c, ExperimentId id);
Result<Experiment> load_experiment(sql::Connection& c, ExperimentId id);           // NotFound
Result<std::optional<Experiment>> best_of(sql::Connection& c, CampaignId id);      // the kept one that ended last
Result<std::optional<Experiment>> baseline_of(sql::Connection& c, CampaignId id);  // the kept one that ended first
Result<std::int64_t> next_end_seq(sql::Connection& c);
// The campaign's ended experiments after `end_seq`, and none after `upto`, in the order they ended: 16 bytes a row, from an index alone.
struct EndedPlace {
  std::int64_t end_seq = 0, id = 0;
};
Result<std::vector<EndedPlace>> ended_places(sql::Connection& c, CampaignId id, std::int64_t end_seq,
                                             std::int64_t upto = std::numeric_limits<std::int64_t>::max());
// The best without its texts: what decisions need.
struct Leader {
  std::string schedule_id;
  double latency_us = 0, bound_us = 0;  // bound 0: unknown
};
Result<std::optional<Leader>> leader_of(sql::Connection& c, CampaignId id);
// Best over baseline: the product of what each kept one gained on the one before it, measured in turn. The latencies of the two are of different
// moments; their quotient is taken only where a step has no such ratio. 0: nothing kept yet. Reads the verdict of every kept one.
Result<double> speedup_of(sql::Connection& c, CampaignId id);

// A query whose rows are experiments, for read_experiment().
#define AMK_EXPERIMENT_SELECT                                                                                                               \
  "SELECT e.id, e.campaign, e.seq, e.state, e.outcome, e.reason, e.correctness, k.schedule_id, e.kernel_id, e.tag, e.loop, e.strategy, "    \
  "e.description, e.worker, v.id, v.secret, e.device, k.text, e.latency_us, e.bound_us, e.pct_of_roofline, e.latency_kind, e.quarantined, " \
  "e.generation, e.attempts, e.begun_wall_us, e.ended_wall_us, e.duration_us, e.phases, e.end_seq "                                         \
  "FROM experiments e JOIN configs k ON k.id = e.config LEFT JOIN verdicts v ON v.id = e.verdict "
Result<Experiment> read_experiment(const sql::Query& row);
inline constexpr int kEndSeqColumn = 29;

struct StoredVerdict {
  std::int64_t id = 0;
  CampaignId campaign{};
  std::int64_t config = 0;
  bool used = false;
  Verdict verdict;
};
std::string verdict_id_text(std::int64_t id, std::string_view secret);
Result<std::int64_t> insert_verdict(sql::Connection& c, CampaignId campaign, std::int64_t config, Verdict verdict, std::string_view secret, bool used,
                                    std::int64_t wall_us);
Result<std::optional<StoredVerdict>> find_verdict(sql::Connection& c, std::string_view verdict_id);  // nullopt: never issued here
Result<std::optional<ExperimentId>> experiment_of_verdict(sql::Connection& c, const StoredVerdict& verdict);
Result<std::optional<StoredVerdict>> newest_unused_verdict(sql::Connection& c, CampaignId campaign, std::int64_t config);
Status quarantine(sql::Connection& c, CampaignId campaign, std::int64_t config, std::int64_t verdict, std::string_view reason);
Status refuse_quarantined(sql::Connection& c, CampaignId campaign, std::int64_t config);  // Rejected when it is

}  // namespace amk::rows
