#include "bench/store/fill.h"

#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "core/base/random.h"
#include "orchestrator/campaign/transitions.h"

namespace amk::bench {

Json config(std::int64_t n) {
  return {{"tiling", {{"gemv", {{"N_tile", 8 * (1 + n % 64)}}}, {"attention", {{"kv_block", 64 << (n % 4)}}}}},
          {"fusion_grouping", {"norm+qkv", "qkv+rope+append", "o+add", "norm+gate_up", "gate_up+silu", "down+add", "norm+lm_head"}},
          {"sm_assignment", n % 2 == 0 ? "load_balance" : "round_robin"},
          {"pipelining_depth", n % 9},
          {"page_allocation", "graph_color"},
          {"threads_per_block", 128 + 32 * (n % 28)},
          {"smem_bytes_per_block", 1024 * (n % 200)},
          {"kernel_knobs", {{"chunk_bytes", 4096 << (n % 4)}, {"inflight_chunks", n % 7}, {"cols_per_warp", n}}}};
}

Verdict verdict(const Json& c, double latency_us) {
  Verdict v;
  v.schedule_id = "s" + hash128_hex(canonical_dump(c));
  v.workload = "llama-3.2-1b";
  v.gpu = "h200";
  v.device = "cpu";
  v.regime = "bf16-b1";
  v.config = c;
  v.status = VerdictStatus::Ok;
  v.valid = v.correct = true;
  v.correctness = Correctness{1e-3, 1e-4, 1e-6, 1, 1e-2, true, 64};
  v.latency_us = latency_us;
  v.latency_kind = LatencyKind::Predicted;
  v.bound_us = 1;
  v.pct_of_roofline = 100 / latency_us;
  v.regions = {{"attention", 0.3 * latency_us}, {"mlp", 0.5 * latency_us}, {"lm_head", 0.1 * latency_us}, {"sync", 0.1 * latency_us}};
  return v;
}

namespace {

struct Filler {
  std::vector<CampaignId> ids;
  std::vector<double> best;
};

Result<bool> fill_group(sql::Connection& c, Filler& filler, std::int64_t from, std::int64_t to, std::int64_t incarnation) {
  const auto campaigns = static_cast<std::int64_t>(filler.ids.size());
  for (std::int64_t k = 0; k < campaigns; ++k) {
    AMK_TRY(campaign, rows::load_campaign(c, filler.ids[static_cast<std::size_t>(k)]));
    double& best = filler.best[static_cast<std::size_t>(k)];
    for (std::int64_t n = from + k; n < to; n += campaigns) {
      Rng rng(static_cast<std::uint64_t>(n));
      const bool correct = rng.below(5) != 0;
      const double latency = best * (0.9999 + 0.5 * rng.uniform());
      const Verdict v = verdict(config(n), latency);
      BeginRequest r;
      r.schedule_id = v.schedule_id;
      r.loop = "autoresearch";
      r.strategy = "iterated-local";
      r.description = "pipelining_depth and chunk_bytes from the neighbourhood of the best";
      r.worker = "worker 0";
      r.lease_us = 1;
      const std::int64_t wall_us = 1'700'000'000'000'000 + n * 1'000'000;
      AMK_TRY(started, transitions::add_experiment(c, campaign, r, canonical_dump(v.config), true, incarnation, wall_us, 0));
      AMK_TRY(row, rows::insert_verdict(c, campaign.info.id, started.config, v, "00112233445566778899aabbccddeeff", true, wall_us));
      transitions::Ending ending;
      ending.experiment = started.experiment;
      ending.config = started.config;
      const bool kept = n < campaigns || latency < best * 0.99;
      ending.judgement = {!correct && !kept ? Outcome::Failed : kept ? Outcome::Kept : Outcome::Revert, kept ? "faster" : "not-faster", false};
      if (kept) best = latency;
      ending.verdict_row = row;
      ending.verdict = &v;
      ending.generation = 1;
      ending.wall_us = wall_us;
      ending.duration_us = ending.charged_us = 20'000;
      AMK_CHECK(transitions::end_experiment(c, campaign, ending));
    }
    AMK_CHECK(rows::save_campaign(c, campaign));
  }
  return true;
}

}  // namespace

Result<std::vector<CampaignId>> fill(Store& store, CampaignService& service, std::int64_t count, int campaigns) {
  Filler filler;
  for (int k = 0; k < campaigns; ++k) {
    AMK_TRY(info, service.open({"workload-" + std::to_string(k), k % 2 == 0 ? "h200" : "h100", "cpu", "bf16-b1"}, {0, -1, {}, {}}));
    filler.ids.push_back(info.id);
    filler.best.push_back(1000);
  }
  constexpr std::int64_t kGroup = 5000;
  for (std::int64_t from = 0; from < count; from += kGroup)
    AMK_CHECK(store.write<bool>("filling", [&filler, from, to = std::min(count, from + kGroup), incarnation = store.incarnation()](
                                               sql::Connection& c) { return fill_group(c, filler, from, to, incarnation); }));
  return filler.ids;
}

}  // namespace amk::bench
