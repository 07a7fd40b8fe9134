#include "orchestrator/prior/corpus_prior.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/random.h"
#include "orchestrator/prior/source_model.h"
#include "orchestrator/prior/vote.h"

namespace amk {
namespace {

constexpr std::size_t kFewestHeldOut = 8;  // rows for a race to mean something

std::shared_ptr<const Vote> corpus_vote(const SearchSpace& space, const std::vector<const PriorSource*>& sources,
                                        const std::vector<std::vector<Observation>>& rows, const std::vector<double>& weights, Rng& rng,
                                        std::vector<std::pair<std::string, double>>* shares) {
  auto vote = std::make_shared<Vote>(space);
  double total = 0;
  std::vector<std::pair<std::string, double>> named;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    auto model = SourceModel::learn(vote->space, rows[s], rng);
    if (!model) continue;
    // Twice the rows do not make twice the evidence on a new device; likeness does.
    const double weight = weights[s] * std::sqrt(static_cast<double>(std::min<std::size_t>(rows[s].size(), 1000)));
    if (!(weight > 0)) continue;
    vote->members.emplace_back(weight, std::move(*model));
    named.emplace_back(sources[s]->name, weight);
    total += weight;
  }
  if (vote->members.empty()) return nullptr;
  for (auto& member : vote->members) member.first /= total;
  for (auto& [name, weight] : named) weight /= total;
  std::stable_sort(named.begin(), named.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (shares != nullptr) *shares = std::move(named);
  return vote;
}

std::shared_ptr<const Vote> analytic_vote(const SearchSpace& space, const AnalyticModel& analytic, Rng& rng) {
  auto vote = std::make_shared<Vote>(space);
  auto model = SourceModel::learn(vote->space, analytic_rows(vote->space, analytic, rng), rng);
  if (!model) return nullptr;
  vote->members.emplace_back(1.0, std::move(*model));
  vote->is_model = true;
  return vote;
}

}  // namespace

LearnedPrior learn_prior(const SearchSpace& space, const Features& features, const std::vector<PriorSource>& sources, const AnalyticModel& analytic,
                         std::uint64_t seed) {
  LearnedPrior out;
  Rng rng(mix64(seed ^ 0x9121));
  std::vector<const PriorSource*> used;
  std::vector<double> weights;
  std::vector<std::vector<Observation>> all, shown, hidden;
  for (const PriorSource& s : sources) {
    out.report.untold += s.untold;
    if (s.rows.empty()) continue;
    out.report.rows += s.rows.size();
    used.push_back(&s);
    weights.push_back(s.trust * likeness(features, s.features));
    all.push_back(s.rows);
    auto& a = shown.emplace_back();
    auto& b = hidden.emplace_back();
    for (const Observation& o : s.rows) {
      out.report.failed += !o.cost;
      (rng.below(3) == 0 ? b : a).push_back(o);
    }
  }
  auto corpus = corpus_vote(space, used, all, weights, rng, &out.report.sources);
  const std::shared_ptr<const Vote> model = analytic.score ? analytic_vote(space, analytic, rng) : nullptr;

  // The race: rows that the corpus model was not shown (the analytic one saw none), source by source, weighted as the vote is.
  const auto judge = [&](const Prior& prior) -> std::optional<double> {
    double sum = 0, total = 0;
    for (std::size_t s = 0; s < hidden.size(); ++s) {
      std::vector<double> truth, guess;
      for (const Observation& o : hidden[s])
        if (o.cost) truth.push_back(*o.cost), guess.push_back(prior.score(o.point));
      if (truth.size() < kFewestHeldOut) continue;
      sum += weights[s] * rank_correlation(truth, guess);
      total += weights[s];
    }
    return total > 0 ? std::optional(sum / total) : std::nullopt;
  };
  if (corpus)
    if (const auto trial = corpus_vote(space, used, shown, weights, rng, nullptr)) out.report.corpus_rank_correlation = judge(*trial);
  if (model) out.report.model_rank_correlation = judge(*model);

  // Without a race, own rows are worth more than a formula once there are enough of them.
  constexpr std::size_t kEnoughRows = 30;
  const bool raced = out.report.corpus_rank_correlation && out.report.model_rank_correlation;
  const bool corpus_wins =
      corpus && (!model || (raced ? *out.report.corpus_rank_correlation >= *out.report.model_rank_correlation : out.report.rows >= kEnoughRows));
  if (corpus_wins) {
    out.prior = corpus, out.report.chosen = "corpus";
    out.report.followed = corpus->explored();
    out.otherwise = model;
  } else if (model)
    out.prior = model, out.report.chosen = "cost-model";
  return out;
}

Json to_json(const PriorReport& r) {
  Json sources = Json::array();
  constexpr std::size_t kShown = 5;
  for (std::size_t i = 0; i < std::min(kShown, r.sources.size()); ++i)
    sources.push_back({{"campaign", r.sources[i].first}, {"share", std::round(r.sources[i].second * 1000) / 1000}});
  const auto rho = [](const std::optional<double>& v) { return v ? Json(std::round(*v * 1000) / 1000) : Json(nullptr); };
  return {{"chosen", r.chosen},
          {"followed", r.followed},
          {"corpus_rank_correlation", rho(r.corpus_rank_correlation)},
          {"cost_model_rank_correlation", rho(r.model_rank_correlation)},
          {"rows", r.rows},
          {"failed", r.failed},
          {"outside_this_space", r.untold},
          {"sources", std::move(sources)}};
}

}  // namespace amk
