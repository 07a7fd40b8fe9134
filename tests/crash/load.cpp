#include "tests/crash/load.h"

#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/random.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/results/results.h"
#include "orchestrator/store/job_records.h"
#include "tests/support/verdicts.h"

namespace amk::test {
namespace {

Json config(std::uint64_t n) { return {{"tile", n % 512}, {"n", n}}; }

class Client {
 public:
  Client(Store& store, CampaignService& service, const std::vector<CampaignId>& campaigns, AckLog& log, std::uint64_t seed, int number)
      : store_(store),
        service_(service),
        campaigns_(campaigns),
        log_(log),
        rng_(mix64(seed) + static_cast<std::uint64_t>(number)),
        seed_(seed),
        number_(number) {}

  void step() {
    const CampaignId campaign = campaigns_[rng_.below(campaigns_.size())];
    switch (rng_.below(10)) {
      case 0:
        return claim(campaign);
      case 1:
        return record(campaign);
      case 2:
        return job();
      case 3:
        return queue(campaign);
      case 4:
        return work(campaign);
      default:
        return experiment(campaign);
    }
  }

 private:
  std::string key() { return "k" + std::to_string(seed_) + "." + std::to_string(number_) + "." + std::to_string(++count_); }
  std::uint64_t fresh() { return mix64(seed_ * 1'000'003 + static_cast<std::uint64_t>(number_) * 10'007 + ++count_) >> 12; }
  double latency() { return 100 + 900 * rng_.uniform(); }

  void ack(Ack kind, CampaignId campaign, ExperimentId experiment, const std::string& key, const Recorded* recorded = nullptr) {
    AckEntry entry;
    entry.kind = kind;
    entry.campaign = raw(campaign);
    entry.experiment = raw(experiment);
    std::strncpy(entry.key, key.c_str(), sizeof entry.key - 1);
    if (recorded != nullptr) {
      entry.outcome = static_cast<int>(*recorded->experiment.outcome);
      entry.latency_us = recorded->experiment.latency_us.value_or(-1);
    }
    log_.append(entry);
  }

  void end(const Ticket& ticket, const Json& c) {
    const Verdict v = rng_.below(4) == 0 ? bad(c, VerdictStatus::Incorrect) : verdict_of(c, latency(), 1);
    const auto recorded = rng_.below(8) == 0 ? service_.lose(ticket, "worker-lost") : service_.finish(ticket, v, Json{{"gate_us", 1000}});
    if (recorded) ack(Ack::Ended, ticket.campaign, ticket.experiment, "", &*recorded);
  }

  BeginRequest request(const Json& c) {
    BeginRequest r;
    r.config = c;
    r.schedule_id = id_of(c);
    r.loop = "loop";
    r.description = "a\ttab and a\nbreak";
    r.idempotency_key = key();
    return r;
  }

  void experiment(CampaignId campaign) {
    const Json c = config(fresh());
    const BeginRequest r = request(c);
    const auto ticket = service_.begin(campaign, r);
    if (!ticket) return;
    ack(Ack::Begun, campaign, ticket->experiment, r.idempotency_key);
    if (rng_.below(6) == 0) {
      // A client that lost the answer asks again.
      const auto again = service_.begin(campaign, r);
      if (again && again->experiment != ticket->experiment) ack(Ack::Begun, campaign, again->experiment, r.idempotency_key);
    }
    if (rng_.below(10) != 0) end(*ticket, c);  // some workers never report
  }

  void queue(CampaignId campaign) {
    std::vector<BeginRequest> requests;
    for (std::uint64_t i = 0; i < 1 + rng_.below(4); ++i) requests.push_back(request(config(fresh())));
    const auto ids = service_.enqueue(campaign, requests);
    if (!ids) return;
    for (std::size_t i = 0; i < ids->size(); ++i) ack(Ack::Queued, campaign, (*ids)[i], requests[i].idempotency_key);
  }

  void work(CampaignId campaign) {
    const auto claim = service_.claim_next(campaign, "worker", 60'000'000);
    if (claim && *claim) end((*claim)->ticket, (*claim)->config);
  }

  void claim(CampaignId campaign) {
    RecordRequest r;
    r.status = "kept";
    r.latency_us = 1;
    r.idempotency_key = key();
    if (service_.record(campaign, r)) ack(Ack::Claimed, campaign, {}, r.idempotency_key);
  }

  void record(CampaignId campaign) {
    const Json c = config(fresh());
    const auto issued = service_.issue(campaign, verdict_of(c, latency(), 1));
    if (!issued) return;
    RecordRequest r;
    r.status = "revert";
    r.config = c;
    r.schedule_id = issued->schedule_id;
    r.verdict_id = issued->verdict_id;
    r.idempotency_key = key();
    const auto reply = service_.record(campaign, r);
    if (!reply) return;
    const auto id = experiment_id_from((*reply)["experiment"].get<std::string>());
    if (id) ack(Ack::Recorded, campaign, *id, r.idempotency_key);
  }

  void job() {
    JobRecords jobs(store_);
    const std::string id = "j" + key();
    if (!jobs.put({id, "amk_loop", "", false, {{"budget", 8}}, 0})) return;
    if (jobs.put({id, "amk_loop", "", true, {{"result", id}}, 0})) ack(Ack::Job, {}, {}, id);
  }

  Store& store_;
  CampaignService& service_;
  const std::vector<CampaignId>& campaigns_;
  AckLog& log_;
  Rng rng_;
  const std::uint64_t seed_;
  const int number_;
  std::uint64_t count_ = 0;
};

}  // namespace

bool run_load(const LoadOptions& options, AckLog& log) {
  auto store = Store::open(options.store);
  if (!store) return false;
  std::optional<ResultFiles> files;
  auto service = CampaignService::create(**store);
  if (!service) return false;
  if (options.exports) {
    files.emplace(**store);
    (*service)->on_end([&files] { files->poke(); });
  }
  std::vector<CampaignId> campaigns;
  for (const char* gpu : {"h100", "h200"}) {
    const auto info = (*service)->open({"toy", gpu, "cpu", "bf16-b1"}, {40, -1, {}, {}});
    if (!info) return false;
    if (info->state == CampaignState::Done) (void)(*service)->reopen(info->id);
    campaigns.push_back(info->id);
  }
  std::atomic<int> left{options.operations};
  std::vector<std::thread> threads;
  for (int t = 0; t < options.threads; ++t)
    threads.emplace_back([&, t] {
      Client client(**store, **service, campaigns, log, options.seed, t);
      while (left.fetch_sub(1) > 0) client.step();
    });
  for (auto& thread : threads) thread.join();
  service->reset();
  store->reset();
  return true;
}

}  // namespace amk::test
