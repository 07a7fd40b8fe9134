// Correlations and likeness by hand; the race on functions that are known.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/base/json.h"
#include "core/base/random.h"
#include "orchestrator/prior/corpus_prior.h"

using namespace amk;

namespace {

SearchSpace space_of(int knobs, int choices, KnobKind kind) {
  SearchSpace s;
  for (int k = 0; k < knobs; ++k) {
    Knob knob;
    knob.name = std::string(1, static_cast<char>('a' + k));
    knob.kind = kind;
    for (int i = 0; i < choices; ++i) knob.choices.push_back(i);
    s.knobs.push_back(knob);
  }
  return s;
}
SearchSpace space() { return space_of(3, 8, KnobKind::Ordinal); }

double cost(const Point& p) { return 10.0 + std::pow(p[0] - 6.0, 2) + 2 * std::pow(p[1] - 1.0, 2); }
double opposite(const Point& p) { return 1000.0 / cost(p); }

PriorSource source(const char* name, std::size_t n, double (*f)(const Point&), std::uint64_t seed, Features features = {}) {
  PriorSource out;
  out.name = name;
  out.features = std::move(features);
  Rng rng(seed);
  for (std::size_t i = 0; i < n; ++i) {
    const Point p{static_cast<std::uint16_t>(rng.below(8)), static_cast<std::uint16_t>(rng.below(8)), static_cast<std::uint16_t>(rng.below(8))};
    out.rows.push_back({p, p[2] == 7 ? std::nullopt : std::optional(f(p))});
  }
  return out;
}

double agreement(const Prior& prior) {
  std::vector<double> truth, guess;
  for (std::uint16_t a = 0; a < 8; ++a)
    for (std::uint16_t b = 0; b < 8; ++b) truth.push_back(cost({a, b, 3})), guess.push_back(prior.score({a, b, 3}));
  return rank_correlation(truth, guess);
}

}  // namespace

TEST_CASE("rank correlation, by hand") {
  CHECK(rank_correlation({1, 2, 3}, {10, 20, 1000}) == doctest::Approx(1));
  CHECK(rank_correlation({1, 2, 3}, {3, 2, 1}) == doctest::Approx(-1));
  // Ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: 4.5 / sqrt(4.5 · 5).
  CHECK(rank_correlation({1, 2, 2, 4}, {1, 2, 3, 4}) == doctest::Approx(4.5 / std::sqrt(22.5)));
  CHECK(rank_correlation({1, 1, 1}, {1, 2, 3}) == 0);
  CHECK(rank_correlation({1}, {1}) == 0);
}

TEST_CASE("correlation of values, by hand") {
  CHECK(correlation({1, 2, 3}, {10, 20, 30}) == doctest::Approx(1));
  CHECK(correlation({1, 2, 3}, {1, 0, -1}) == doctest::Approx(-1));
  // Deviations -1, 0, 1 against -11, -10, 21: 32 / sqrt(2 · 662). Ranks would agree.
  CHECK(correlation({1, 2, 3}, {0, 1, 32}) == doctest::Approx(32 / std::sqrt(1324.0)));
  CHECK(correlation({1, 1, 1}, {1, 2, 3}) == 0);
  CHECK(correlation({1}, {1}) == 0);
}

TEST_CASE("a corpus says what a config costs, up to a constant: of its rows what was measured, on both sides of the median") {
  const SearchSpace s = space();
  PriorSource told = source("mine", 200, cost, 1);
  PriorSource twice = told;  // a device half as fast teaches the same
  for (Observation& o : twice.rows)
    if (o.cost) *o.cost *= 2;
  for (const auto& sources : {std::vector<PriorSource>{told}, {twice}, {told, twice}}) {
    const auto learned = learn_prior(s, {}, sources, {}, 1);
    std::optional<double> constant;
    for (const Observation& o : told.rows) {
      if (!o.cost) continue;
      const auto said = learned.prior->log_cost(o.point);
      REQUIRE(said);
      if (!constant) constant = *said - std::log(*o.cost);
      CHECK(*said - std::log(*o.cost) == doctest::Approx(*constant).epsilon(1e-4));
    }
  }
}

TEST_CASE("likeness, by hand") {
  CHECK(likeness({{"sms", 132}}, {{"sms", 132}}) == doctest::Approx(1));
  CHECK(likeness({{"bytes", 1.0}}, {{"bytes", std::exp(1.0)}}) == doctest::Approx(std::exp(-1.0)));
  CHECK(likeness({{"a", 5}, {"flag", 1}}, {{"a", 5}, {"flag", 0}}) == doctest::Approx(std::exp(-0.5)));
  CHECK(likeness({}, {{"a", 1}}) == doctest::Approx(0.3));
}

TEST_CASE("a corpus teaches its ranking, and counts what it was told") {
  const SearchSpace s = space();
  auto a = source("a", 150, cost, 1);
  a.untold = 3;
  const LearnedPrior learned = learn_prior(s, {}, {a}, {}, 1);
  REQUIRE(learned.prior);
  CHECK(learned.report.chosen == "corpus");
  CHECK(learned.report.rows == 150);
  CHECK(learned.report.untold == 3);
  std::size_t failed = 0;
  for (const auto& o : a.rows) failed += !o.cost;
  CHECK(learned.report.failed == failed);
  CHECK(agreement(*learned.prior) > 0.7);
  CHECK(*learned.report.corpus_rank_correlation > 0.6);
  // Measured points are remembered: of those, the cheapest has the lowest score.
  const Observation* best = nullptr;
  for (const auto& o : a.rows)
    if (o.cost && (!best || *o.cost < *best->cost)) best = &o;
  for (const auto& o : a.rows) CHECK(learned.prior->score(best->point) <= learned.prior->score(o.point));
}

TEST_CASE("a corpus names the best configs that it was told, best first") {
  const SearchSpace s = space();
  PriorSource told = source("mine", 200, cost, 1);
  double best = 1e9;
  for (const Observation& o : told.rows)
    if (o.cost) best = std::min(best, *o.cost);
  const auto learned = learn_prior(s, {}, {told}, {}, 1);
  const auto known = learned.prior->known_best(5);
  REQUIRE(known.size() == 5);
  CHECK(cost(known[0]) == best);
  for (std::size_t i = 1; i < known.size(); ++i) CHECK(cost(known[i - 1]) <= cost(known[i]));
}

TEST_CASE("the race goes to whoever ranks unseen rows better") {
  const SearchSpace s = space();
  const auto rows = source("a", 200, cost, 1);
  const LearnedPrior model_wrong = learn_prior(s, {}, {rows}, {opposite, {}}, 1);
  CHECK(model_wrong.report.chosen == "corpus");
  CHECK(*model_wrong.report.model_rank_correlation < 0);
  // Forty-five random rows teach less than the true formula.
  const LearnedPrior model_right = learn_prior(s, {}, {source("few", 45, cost, 2)}, {cost, {}}, 1);
  CAPTURE(*model_right.report.corpus_rank_correlation);
  CAPTURE(*model_right.report.model_rank_correlation);
  CHECK(model_right.report.chosen == "cost-model");
  CHECK(agreement(*model_right.prior) > 0.7);
  CHECK(learn_prior(s, {}, {}, {cost, {}}, 1).report.chosen == "cost-model");
  const LearnedPrior nothing = learn_prior(s, {}, {}, {}, 1);
  CHECK(nothing.prior == nullptr);
  CHECK(nothing.report.chosen == "none");
}

TEST_CASE("a corpus is followed when nine of ten single moves from its best were tried; else the cost model is, where there is one") {
  const SearchSpace s = space();
  PriorSource rows;
  rows.name = "a";
  // (6, 1, 0) is the best, with 21 single moves; the first rows differ from it in two knobs or all three.
  for (std::uint16_t i = 0; i < 5; ++i) rows.rows.push_back({{i, 4, i}, cost({i, 4, i})});
  rows.rows.push_back({{6, 1, 0}, cost({6, 1, 0})});
  for (std::uint16_t i = 0; i < 8; ++i) {
    if (i != 6) rows.rows.push_back({{i, 1, 0}, cost({i, 1, 0})});
    if (i != 1) rows.rows.push_back({{6, i, 0}, cost({6, i, 0})});
    if (i != 0 && i < 5) rows.rows.push_back({{6, 1, i}, cost({6, 1, i})});
  }
  LearnedPrior learned = learn_prior(s, {}, {rows}, {}, 1);  // 18 of the 21
  REQUIRE(learned.prior);
  CHECK_FALSE(learned.prior->explored());
  CHECK_FALSE(learned.report.followed);
  CHECK(to_json(learned.report)["followed"] == false);
  CHECK(learned.otherwise == nullptr);
  rows.rows.push_back({{6, 1, 0}, cost({6, 1, 0})});  // the best itself once more is no move
  CHECK_FALSE(learn_prior(s, {}, {rows}, {}, 1).prior->explored());
  rows.rows.push_back({{6, 1, 5}, std::nullopt});  // another one: it failed, which is known
  learned = learn_prior(s, {}, {rows}, {}, 1);
  CHECK(learned.prior->explored());
  CHECK(learned.report.followed);
  // Of two sources the one with the larger share of the vote decides.
  PriorSource few = rows;
  few.rows.resize(8);
  few.trust = 3;
  CHECK_FALSE(learn_prior(s, {}, {rows, few}, {}, 1).report.followed);
  few.trust = 0.3;
  CHECK(learn_prior(s, {}, {rows, few}, {}, 1).report.followed);
  // With a cost model that ranks worse than the corpus does.
  const LearnedPrior both = learn_prior(s, {}, {source("lot", 60, cost, 1)}, {opposite, {}}, 1);
  CHECK(both.report.chosen == "corpus");
  CHECK(both.report.followed == both.prior->explored());
  REQUIRE(both.otherwise != nullptr);
  CHECK(both.otherwise->explored());
}

TEST_CASE("the campaign whose device is alike outvotes the one that is not") {
  const SearchSpace s = space();
  const Features here = {{"sms", 100}, {"bandwidth", 1000}};
  const auto like = source("like", 150, cost, 1, {{"sms", 110}, {"bandwidth", 1100}});
  const auto unlike = source("unlike", 150, opposite, 2, {{"sms", 5}, {"bandwidth", 60}});
  const LearnedPrior learned = learn_prior(s, here, {unlike, like}, {}, 1);
  REQUIRE(learned.report.sources.size() == 2);
  CHECK(learned.report.sources[0].first == "like");
  CHECK(agreement(*learned.prior) > 0.4);
}

TEST_CASE("hopeless corpora teach nothing; learning is deterministic") {
  const SearchSpace s = space();
  PriorSource failures;
  for (std::uint16_t i = 0; i < 8; ++i) failures.rows.push_back({{i, 0, 0}, std::nullopt});
  CHECK(learn_prior(s, {}, {failures}, {}, 1).prior == nullptr);
  CHECK(learn_prior(s, {}, {failures}, {[](const Point&) { return std::numeric_limits<double>::quiet_NaN(); }, {}}, 1).prior == nullptr);
  const auto a = learn_prior(s, {}, {source("a", 80, cost, 1)}, {}, 5), b = learn_prior(s, {}, {source("a", 80, cost, 1)}, {}, 5);
  for (std::uint16_t i = 0; i < 8; ++i) CHECK(a.prior->score({i, i, i}) == b.prior->score({i, i, i}));
}

TEST_CASE("what the analytic model likes best is asked whether it runs, and has no score when it does not") {
  const SearchSpace s = space();
  // Half of the space looks good and does not run.
  const auto runs = [](const Point& p) { return p[0] < 4; };
  const LearnedPrior learned = learn_prior(s, {}, {}, {cost, runs}, 1);
  REQUIRE(learned.prior);
  // Of what runs the lowest cost is 10 + 9 + 0, at a = 3, b = 1; c is free.
  const auto known = learned.prior->known_best(1);
  REQUIRE(known.size() == 1);
  CHECK(cost(learn_prior(s, {}, {}, {cost, {}}, 1).prior->known_best(1)[0]) == 10);
  double best = 1e9;
  for (const Point& p : learned.prior->known_best(20))
    if (runs(p)) best = std::min(best, cost(p));
  CHECK(best == 19);
}

TEST_CASE("the analytic model's best is found where it takes many knobs at once, each of which needs the one before") {
  // Five knobs of twelve choices, and a stair of five: a knob may have the last choice only where the one behind it has. One point of 248,832 is
  // best.
  const SearchSpace s = space_of(5, 12, KnobKind::Categorical);
  // Against the order in which a round takes the knobs, so that it takes a round a step.
  const auto stairs = [](const Point& p) {
    int steps = 0;
    for (std::size_t k = p.size(); k-- > 0; ++steps)
      if (p[k] != 11) break;
    for (std::size_t k = 0; k + static_cast<std::size_t>(steps) < p.size(); ++k)
      if (p[k] == 11) return std::numeric_limits<double>::quiet_NaN();  // refused
    return 100.0 - steps;
  };
  const LearnedPrior learned = learn_prior(s, {}, {}, {stairs, {}}, 1);
  REQUIRE(learned.prior);
  const auto best = learned.prior->known_best(1);
  REQUIRE(best.size() == 1);
  CHECK(best[0] == Point{11, 11, 11, 11, 11});
}

TEST_CASE("the analytic model's best is found where it takes two ordinal knobs at once, each of which is refused alone") {
  // Three pairs of knobs of six choices: of a pair both have the last choice or none has. One point of 46,656 is best, and none is better by one knob
  // than another.
  const SearchSpace s = space_of(6, 6, KnobKind::Ordinal);
  const auto pairs = [](const Point& p) {
    double us = 100;
    for (std::size_t k = 0; k < p.size(); k += 2) {
      if ((p[k] == 5) != (p[k + 1] == 5)) return std::numeric_limits<double>::quiet_NaN();  // refused
      us -= p[k] == 5 ? 10 : 0;
    }
    return us;
  };
  const LearnedPrior learned = learn_prior(s, {}, {}, {pairs, {}}, 1);
  REQUIRE(learned.prior);
  const auto best = learned.prior->known_best(1);
  REQUIRE(best.size() == 1);
  CHECK(best[0] == Point{5, 5, 5, 5, 5, 5});
}

TEST_CASE("the analytic model's best is found where a choice that was better on the way is in the way") {
  // Knobs of twelve choices. d and e together make a valley, which no single move from the default shows. In it, b = 5 is as good with a = 1, where
  // the climb comes from, as with the default's a; b = 7 is better with the default's alone.
  const SearchSpace s = space_of(5, 12, KnobKind::Ordinal);
  const auto usual = s.default_point();
  REQUIRE(usual[0] != 1);
  const auto valley = [&usual](const Point& p) {
    if (p[3] != 11 || p[4] != 11) return 100.0 - (p[0] == 1) - (p[3] == 11) - (p[4] == 11);
    if (p[0] != 1 && p[0] != usual[0]) return 95.0;
    const bool way = p[0] == 1;
    if (p[1] == usual[1]) return way ? 88.0 : 90.0;
    if (p[1] == 5) return 80.0;
    if (p[1] == 7) return way ? 85.0 : 70.0;
    return 95.0;
  };
  const LearnedPrior learned = learn_prior(s, {}, {}, {valley, {}}, 1);
  REQUIRE(learned.prior);
  const auto best = learned.prior->known_best(1);
  REQUIRE(best.size() == 1);
  CHECK(valley(best[0]) == 70);
}
