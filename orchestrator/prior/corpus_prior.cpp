#include "orchestrator/prior/corpus_prior.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "core/base/json.h"
#include "core/base/parallel.h"
#include "core/base/random.h"
#include "core/base/stats.h"
#include "orchestrator/strategy/archive.h"
#include "orchestrator/strategy/forest.h"
#include "orchestrator/strategy/trend.h"

namespace amk {
namespace {

constexpr std::size_t kForestRows = 4000;  // the forest sees the best half of so many and an even sample of the rest
constexpr int kTrees = 40;
constexpr std::size_t kFewestCorrect = 4;     // of a source that teaches anything
constexpr std::size_t kAnalyticSample = 160;  // points at which the analytic model is asked …
constexpr std::size_t kAnalyticMost = 1000;   // … and with its climbs at most
constexpr int kAnalyticClimbs = 2;
constexpr std::size_t kFewestHeldOut = 8;  // rows for a race to mean something

// One campaign's rows as standardised log costs, bent at the median (trend.h): campaigns of different sizes become comparable. Exact rows are
// remembered; the forest fills the space between them.
class SourceModel {
 public:
  static std::optional<SourceModel> learn(const SearchSpace& space, const std::vector<Observation>& rows, Rng& rng) {
    std::vector<double> logs;
    for (const Observation& o : rows)
      if (o.cost && *o.cost > 0) logs.push_back(std::log(*o.cost));
    if (logs.size() < kFewestCorrect) return std::nullopt;
    SourceModel out;
    const double bend = median(logs);
    double mean = 0, variance = 0;
    for (double& v : logs) v = bent(v, bend), mean += v / static_cast<double>(logs.size());
    for (const double v : logs) variance += (v - mean) * (v - mean) / static_cast<double>(logs.size());
    if (!(variance > 1e-16)) return std::nullopt;
    const auto value = [&](const Observation& o) {
      return ((o.cost && *o.cost > 0 ? bent(std::log(*o.cost), bend) : bend) - mean) / std::sqrt(variance);
    };
    std::vector<std::pair<double, const Point*>> all;
    for (const Observation& o : rows) {
      const double y = value(o);
      all.emplace_back(y, &o.point);
      out.exact_.insert_or_assign(o.point, static_cast<float>(y));
    }
    if (all.size() > kForestRows) {
      std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      constexpr std::size_t kHalf = kForestRows / 2;
      const double stride = static_cast<double>(all.size() - kHalf) / static_cast<double>(kHalf);
      for (std::size_t i = 0; i < kHalf; ++i) all[kHalf + i] = all[kHalf + static_cast<std::size_t>(stride * static_cast<double>(i))];
      all.resize(kForestRows);
    }
    std::vector<const Point*> points;
    std::vector<double> y;
    for (const auto& [v, point] : all) points.push_back(point), y.push_back(v);
    out.forest_.emplace(space, kTrees);
    out.forest_->fit(points, y, rng);
    out.explored_ = single_moves_known(space, rows);
    return out;
  }
  double score(const Point& point) const {
    const auto at = exact_.find(point);
    return at != exact_.end() ? static_cast<double>(at->second) : forest_->predict(point).mean;
  }
  bool explored() const { return explored_; }
  // Ties in the order of points, which is the same on every machine.
  std::vector<Point> best(std::size_t n) const {
    std::vector<std::pair<float, const Point*>> all;
    for (const auto& [point, y] : exact_) all.emplace_back(y, &point);
    const auto better = [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : *a.second < *b.second; };
    n = std::min(n, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n), all.end(), better);
    std::vector<Point> out;
    for (std::size_t i = 0; i < n; ++i) out.push_back(*all[i].second);
    return out;
  }

 private:
  // Of half of the knobs that can be moved alone from the best row, such a move is among the rows. Where a search ended they are; of rows drawn by
  // lot next to none is.
  static bool single_moves_known(const SearchSpace& space, const std::vector<Observation>& rows) {
    const Observation* best = nullptr;
    for (const Observation& o : rows)
      if (o.cost && *o.cost > 0 && (best == nullptr || *o.cost < *best->cost)) best = &o;
    const auto moved_knob = [&](const Point& point) {  // the number of knobs: not one
      std::size_t moved = point.size();
      for (std::size_t k = 0; k < point.size(); ++k) {
        if (point[k] == best->point[k]) continue;
        if (moved < point.size()) return point.size();
        moved = k;
      }
      return moved;
    };
    std::vector<bool> tried(space.knobs.size() + 1, false), movable = tried;
    for (const Observation& o : rows) tried[moved_knob(o.point)] = true;
    for (const Point& point : Archive(space).neighbours(best->point, true)) movable[moved_knob(point)] = true;
    tried.pop_back();
    movable.pop_back();
    return 2 * std::count(tried.begin(), tried.end(), true) >= std::count(movable.begin(), movable.end(), true);
  }

  bool explored_ = false;
  std::unordered_map<Point, float, PointHash> exact_;
  std::optional<Forest> forest_;
};

// A weighted vote. Owns the space that its forests refer to.
class Vote final : public Prior {
 public:
  explicit Vote(const SearchSpace& s) : space(s) {}
  double score(const Point& point) const override {
    double sum = 0;
    for (const auto& [weight, model] : members) sum += weight * model.score(point);
    return sum;
  }
  std::vector<Point> known_best(std::size_t n) const override {
    std::map<Point, double> scores;
    for (const auto& [weight, model] : members)
      for (Point& point : model.best(n))
        if (const auto [at, fresh] = scores.try_emplace(std::move(point), 0.0); fresh) at->second = score(at->first);
    std::vector<std::pair<double, const Point*>> ranked;
    for (const auto& [point, s] : scores) ranked.emplace_back(s, &point);
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Point> out;
    for (std::size_t i = 0; i < std::min(n, ranked.size()); ++i) out.push_back(*ranked[i].second);
    return out;
  }
  bool explored() const override {
    if (is_model) return true;  // it was asked for what is around its best
    double share = 0;
    for (const auto& [weight, model] : members) share += model.explored() ? weight : 0;
    return share >= 0.5;
  }
  SearchSpace space;
  std::vector<std::pair<double, SourceModel>> members;  // weights sum to one
  bool is_model = false;
};

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

// From the first row (the default) and the best of the sample, the model's own best: knob by knob, to the choice that it likes best, until a round
// over all knobs has moved none; then two knobs at once, where a choice of one is refused alone. What is good is not in a sample
// when it takes several knobs at once, each of which only some others allow; and a forest knows nothing of what no row shows.
class Climb {
 public:
  // Appends what it asks for to `rows`; `score` scores what is new. What does not run after all loses its score.
  Climb(const Archive& archive, std::vector<Observation>& rows, std::function<void()> score, const std::function<bool(const Point&)>& runs)
      : archive_(archive), rows_(rows), score_(std::move(score)), runs_(runs), sample_(rows.size()) {
    for (std::size_t i = 0; i < rows_.size(); ++i) known_.emplace(rows_[i].point, i);
  }
  void run() {
    std::vector<std::size_t> sample(sample_);
    std::iota(sample.begin(), sample.end(), std::size_t{0});
    for (int n = 0; n < kAnalyticClimbs && !rows_.empty(); ++n) {
      at_ = 0;
      if (n > 0 && !go_to_best_of(sample)) return;
      while (round() || pairs()) {
      }
    }
  }

 private:
  double cost(std::size_t row) const { return rows_[row].cost.value_or(std::numeric_limits<double>::infinity()); }

  // The best of `rows` that runs is where the climb goes on, if it is better; of equals the first. False: it stays.
  bool go_to_best_of(const std::vector<std::size_t>& rows) {
    for (;;) {
      std::size_t best = at_;
      for (const std::size_t i : rows)
        if (cost(i) < cost(best)) best = i;
      if (best == at_) return false;
      if (!runs_ || runs_(rows_[best].point)) {
        at_ = best;
        return true;
      }
      rows_[best].cost.reset();
    }
  }

  // What of `points` is new is asked for.
  bool best_of(const std::vector<Point>& points) {
    std::vector<std::size_t> tried;
    for (const Point& point : points) {
      if (!archive_.valid(point)) continue;
      const auto [found, fresh] = known_.try_emplace(point, rows_.size());
      if (fresh && rows_.size() >= kAnalyticMost) {
        known_.erase(found);
        break;
      }
      if (fresh) rows_.push_back({point, std::nullopt});
      tried.push_back(found->second);
    }
    score_();
    return go_to_best_of(tried);
  }

  void add_moves(const Point& from, std::size_t knob, std::vector<Point>& out) const {
    for (std::size_t c = 0; c < archive_.space().knobs[knob].choices.size(); ++c) {
      if (from[knob] == c) continue;
      out.push_back(from);
      out.back()[knob] = static_cast<std::uint16_t>(c);
    }
  }

  bool round() {
    bool moved = false;
    for (std::size_t k = 0; k < archive_.space().knobs.size(); ++k) {
      std::vector<Point> points;
      add_moves(rows_[at_].point, k, points);
      moved = best_of(points) || moved;
    }
    return moved;
  }

  // A categorical knob's choices first: what they need is most of what a kernel is.
  bool pairs() { return pairs_of(true) || pairs_of(false); }

  bool pairs_of(bool categorical) {
    const auto& knobs = archive_.space().knobs;
    for (std::size_t k = 0; k < knobs.size(); ++k) {
      if ((knobs[k].kind == KnobKind::Categorical) != categorical) continue;
      std::vector<Point> alone;
      add_moves(rows_[at_].point, k, alone);
      for (const Point& point : alone) {
        const auto known = known_.find(point);
        if (known != known_.end() && rows_[known->second].cost) continue;
        std::vector<Point> both;
        for (std::size_t other = 0; other < knobs.size(); ++other)
          if (other != k) add_moves(point, other, both);
        if (best_of(both)) return true;
      }
    }
    return false;
  }

  const Archive& archive_;
  std::vector<Observation>& rows_;
  std::function<void()> score_;
  const std::function<bool(const Point&)>& runs_;
  std::size_t sample_, at_ = 0;
  std::unordered_map<Point, std::size_t, PointHash> known_;
};

std::shared_ptr<const Vote> analytic_vote(const SearchSpace& space, const AnalyticModel& analytic, Rng& rng) {
  auto vote = std::make_shared<Vote>(space);
  const Archive archive(vote->space);
  std::vector<Observation> rows;
  const auto ask = [&](const Point& point) { rows.push_back({point, std::nullopt}); };
  if (archive.valid(space.default_point())) {
    ask(space.default_point());
    for (const Point& p : archive.neighbours(space.default_point(), true)) {
      if (rows.size() >= kAnalyticSample / 2) break;
      ask(p);
    }
  }
  while (rows.size() < kAnalyticSample) {
    const auto point = archive.random_valid(rng);
    if (!point) break;
    ask(*point);
  }
  // A millisecond or two each, for a large model.
  std::size_t scored = 0;
  ThreadPool pool;
  const auto score = [&] {
    pool.for_ranges(static_cast<std::int64_t>(rows.size() - scored), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = scored + static_cast<std::size_t>(begin); i < scored + static_cast<std::size_t>(end); ++i) {
        const double cost = analytic.score(rows[i].point);
        if (std::isfinite(cost) && cost > 0) rows[i].cost = cost;
      }
    });
    scored = rows.size();
  };
  score();
  Climb(archive, rows, score, analytic.runs).run();
  auto model = SourceModel::learn(vote->space, rows, rng);
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
    if (!out.report.followed) out.otherwise = model;
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
