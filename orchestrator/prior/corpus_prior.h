// What earlier searches teach a new one: a ranking of configurations before anything was measured, learned from kept and failed points of
// other campaigns (two-stage transfer surrogate: one model a campaign, mixed by the likeness of their workloads and devices; Wistuba, Schilling,
// Schmidt-Thieme 2016), and raced against the analytic cost model on rows that neither has seen. Advisory: strategies treat it as a trend whose
// weight they learn, so a wrong one fades. Pure and deterministic given the seed; results are thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/schedule/space.h"
#include "orchestrator/prior/analytic_rows.h"
#include "orchestrator/strategy/rank_correlation.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {

using Features = std::map<std::string, double>;  // numbers that describe workload and device

// One campaign, told in points of the new campaign's space.
struct PriorSource {
  std::string name;               // for the report: "llama-3.2-1b on h200 (cuda)"
  Features features;              // empty: unknown
  double trust = 1;               // 1: our own evaluator's; less for claims of others
  std::vector<Observation> rows;  // a point without cost failed
  std::size_t untold = 0;         // rows whose config has no point in this space
};

struct PriorReport {
  std::string chosen = "none";                                            // "corpus", "cost-model" or "none"
  std::optional<double> corpus_rank_correlation, model_rank_correlation;  // Spearman's, on held-out rows; empty: not measured
  bool followed = true;  // as long as its favourites are good; false: they are tried, no more, since nobody explored what is around them
  std::size_t rows = 0, failed = 0, untold = 0;
  std::vector<std::pair<std::string, double>> sources;  // name and share of the vote, largest first
};
Json to_json(const PriorReport& report);

struct LearnedPrior {
  std::shared_ptr<const Prior> prior;      // null when there is nothing to learn from
  std::shared_ptr<const Prior> otherwise;  // the cost model, where the corpus won: followed where that is only tried, or refuted; may be null
  PriorReport report;
};

LearnedPrior learn_prior(const SearchSpace& space, const Features& features, const std::vector<PriorSource>& sources, const AnalyticModel& analytic,
                         std::uint64_t seed);

// 0…1: exp(-mean absolute difference of the logarithms) over the features that both have; 0.3 when either has none.
double likeness(const Features& a, const Features& b);

}  // namespace amk
