// Campaigns: one search for a faster config of one workload on one GPU. States: baseline -> optimizing -> done(reason), back by reopen().
// Everything here is derived from committed rows; whatever an agent types is a claim, and only a verdict that issue() or finish() stored
// can make a best. Thread-safe. One service a store: it keeps the account of time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchestrator/campaign/policy.h"
#include "orchestrator/store/store.h"
#include "orchestrator/store/types.h"

namespace amk {

// A row of `experiments`, with its key fields. Latency is present only with a correctness PASS.
struct Experiment {
  ExperimentId id{};
  CampaignId campaign{};
  std::int64_t seq = 0;  // 1, 2, … within the campaign, in the order of begin()
  ExperimentState state = ExperimentState::Queued;
  std::optional<Outcome> outcome;  // Ended
  std::string reason;
  std::string correctness;  // PASS, FAIL, REJECTED, TIMEOUT, CRASH, LOST; empty before the end
  std::string schedule_id, kernel_id, tag, loop, strategy, description, worker, verdict_id;
  std::string device;            // "cpu" or the GPU's UUID
  Json config = Json::object();  // canonical
  std::optional<double> latency_us, bound_us, pct_of_roofline;
  std::string latency_kind;  // "measured-gpu", "predicted" or empty
  bool quarantined = false;
  std::int64_t generation = 0, attempts = 0;
  std::int64_t begun_wall_us = 0, ended_wall_us = 0;
  std::int64_t duration_us = 0;  // boot clock
  Json phases = nullptr;         // {"build_us": …, "gate_us": …}, as the caller measured
};
Json to_json(const Experiment& experiment);  // schemas/experiment.schema.json

struct BeginRequest {
  Json config;  // canonical
  std::string schedule_id;
  std::string kernel_id, tag, loop, strategy;
  std::string description;              // the hypothesis, one line
  std::string worker;                   // who evaluates, for display
  std::string idempotency_key;          // a repeated begin with this key returns the first ticket; empty: none
  std::int64_t lease_us = 600'000'000;  // no report or renewal for so long: the worker is taken for lost
};

struct Ticket {
  CampaignId campaign{};
  ExperimentId experiment{};
  std::int64_t seq = 0;
  std::int64_t generation = 0;
  bool repeated = false;  // the idempotency key had been used: this is the first call's ticket
};

struct Recorded {
  Experiment experiment;
  bool is_best = false;
  CampaignState state = CampaignState::Baseline;
  std::string done_reason;  // state == Done
  bool repeated = false;    // this ticket had been reported before: the first result
};

struct CampaignInfo {
  CampaignId id{};
  CampaignKey key;
  CampaignPolicy policy;
  CampaignState state = CampaignState::Baseline;
  std::string done_reason;
  std::int64_t revision = 0;  // grows with every change of the campaign
};

// What an agent typed (amk_orchestrate_record).
struct RecordRequest {
  std::string status;  // an outcome word, required
  std::optional<double> latency_us, pct_roofline;
  std::string kind;            // free text
  std::optional<Json> config;  // canonical
  std::string schedule_id;     // of config
  std::string description;
  std::string verdict_id;  // empty: the newest unused verdict for config in this campaign
  std::string idempotency_key;
};

class CampaignService {
 public:
  // Also settles what an earlier daemon left running: its experiments go back to their queue or are lost, counted against nobody.
  static Result<std::unique_ptr<CampaignService>> create(Store& store);
  ~CampaignService();

  // Finds or creates. An existing campaign keeps its policy; set_policy() changes it.
  Result<CampaignInfo> open(const CampaignKey& key, const CampaignPolicy& policy = {});
  Result<std::optional<CampaignInfo>> find(const CampaignKey& key) const;  // creates none
  Result<CampaignInfo> info(CampaignId id) const;
  // "c12", or empty for the campaign that changed last. NotFound names what exists.
  Result<CampaignId> resolve(std::string_view text) const;
  Result<CampaignInfo> set_policy(CampaignId id, const CampaignPolicy& policy);
  // Done -> optimizing (or baseline, when none was kept). The plateau counter starts anew; a spent budget must be raised by `policy`.
  Result<CampaignInfo> reopen(CampaignId id, const std::optional<CampaignPolicy>& policy = {});

  // --- Experiments. begin() and finish() are what loops use; enqueue() and claim_next() are for several workers on a common list.
  // Conflict {"reason": "campaign-done"}; Rejected {"reason": "quarantined"}; Unavailable {"reason": "disk-full"}.
  Result<Ticket> begin(CampaignId id, const BeginRequest& request);
  Result<std::vector<ExperimentId>> enqueue(CampaignId id, const std::vector<BeginRequest>& requests);
  struct Claim {
    Ticket ticket;
    Json config;
  };
  Result<std::optional<Claim>> claim_next(CampaignId id, std::string_view worker, std::int64_t lease_us);  // nullopt: nothing queued
  Status renew(const Ticket& ticket, std::int64_t lease_us);
  // Stores the verdict (giving it its verdict_id), decides the outcome against the best of that moment, ends the experiment and moves the
  // state machine, in one transaction. Repeating it with the same ticket returns the first result. A ticket whose lease has passed on:
  // Conflict {"reason": "stale-lease"}; the report is kept as evidence. On a full disk: Unavailable, and the result waits in memory.
  Result<Recorded> finish(const Ticket& ticket, Verdict verdict, const Json& phases = nullptr);
  // The machine failed (worker lost, no GPU, cancelled): outcome lost, counted against nobody.
  Result<Recorded> lose(const Ticket& ticket, std::string_view reason);
  // While it lives, expire_leases() renews this lease: what a loop of this process keeps while it judges, for as long as that takes. A loop that
  // dies lets go of it with the rest of its stack.
  class [[nodiscard]] Hold {
   public:
    Hold(Hold&&) noexcept;
    Hold& operator=(Hold&&) noexcept;
    ~Hold();

   private:
    friend class CampaignService;
    struct State;
    explicit Hold(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
  };
  Hold hold(const Ticket& ticket, std::int64_t lease_us = 600'000'000);
  // Leases that ran out and that nobody holds: queued again if enqueued and tried less than three times, else lost. Returns how many. The
  // application calls it every few seconds; most calls only read.
  Result<int> expire_leases();

  // Rejected {"reason": "quarantined"} when this config came out faster than physics allows: do not evaluate it again.
  Status admissible(CampaignId id, const std::string& schedule_id, const Json& canonical_config) const;

  // --- Verdicts outside an experiment (amk_eval): stored and given an id; record() may turn it into an experiment later.
  Result<Verdict> issue(CampaignId id, Verdict verdict);
  Result<Verdict> verdict(std::string_view verdict_id) const;  // NotFound

  // --- Time. While at least one is alive (or an experiment runs), time counts as spent in the campaign.
  class Activity {
   public:
    Activity(Activity&&) noexcept;
    Activity& operator=(Activity&&) noexcept;
    ~Activity();

   private:
    friend class CampaignService;
    struct State;
    explicit Activity(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
  };
  Activity activity(CampaignId id);

  // --- Reading
  Result<std::optional<Experiment>> best(CampaignId id) const;
  Result<std::optional<Experiment>> baseline(CampaignId id) const;
  Result<double> speedup(CampaignId id) const;  // of the best over the baseline, by ratios measured in turn; 0: nothing kept yet
  Result<Experiment> experiment(ExperimentId id) const;
  // Every ended experiment after `end_seq` (0: all), in the order they ended: what strategies and the prior learn from.
  // Returns the last end_seq seen. `each` returns false to stop.
  Result<std::int64_t> replay(CampaignId id, std::int64_t end_seq, const std::function<bool(const Experiment&)>& each) const;
  Result<bool> tried(CampaignId id, const std::string& schedule_id,
                     const Json& canonical_config) const;  // ended with an outcome other than lost, running, or queued

  // --- What tools return (schemas/campaign.schema.json)
  Result<Json> status(std::optional<CampaignId> id) const;  // no id: every campaign in brief (newest 50) and the last active one in full
  Result<Json> next(CampaignId id);
  struct Report {
    std::string markdown;  // refers to the plots as "<campaign>-<name>.svg"
    Json json;
    std::vector<std::pair<std::string, std::string>> plots;  // name, SVG
  };
  Result<Report> report(CampaignId id) const;
  // A claim, or an experiment when a verdict of this campaign and config backs it. Refusals are InvalidArgument or Conflict with
  // data.reason: unknown-verdict, other-campaign, other-config, already-recorded, not-correct, withheld, not-faster, stale-incumbent,
  // status-contradicts-verdict, campaign-done; the attempt is kept as a refused claim.
  Result<Json> record(CampaignId id, const RecordRequest& request);

  // Compares what the campaign's row says with a recount from its experiments; Corrupt names the first difference.
  Status check(CampaignId id) const;

  // Called after each commit that ended experiments, on the thread that ended them (results.tsv catches up here). Set before use.
  void on_end(std::function<void()> callback);

 private:
  struct Impl;
  explicit CampaignService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace amk
