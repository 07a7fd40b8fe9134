// The Gaussian process and what the portfolio builds on it: properties, and functions whose shape is known.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/base/json.h"
#include "orchestrator/strategy/correction.h"
#include "orchestrator/strategy/gaussian_process.h"
#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/proposer.h"
#include "orchestrator/strategy/round_numbers.h"
#include "orchestrator/strategy/trend.h"

using namespace amk;

namespace {

SearchSpace space() {
  SearchSpace s;
  for (const char* name : {"a", "b", "c"}) {
    Knob k;
    k.name = name;
    k.kind = KnobKind::Ordinal;
    for (int i = 1; i <= 8; ++i) k.choices.push_back(16 * i);
    s.knobs.push_back(k);
  }
  Knob d;
  d.name = "d";
  d.kind = KnobKind::Categorical;
  d.choices = {"x", "y", "z", "w"};
  s.knobs.push_back(d);
  return s;  // 2,048 points, all valid
}

double additive(const Point& p) { return 0.3 * p[0] + 0.1 * std::abs(p[1] - 5.0) + (p[3] == 2 ? -1.0 : 0.2 * p[3]); }

struct Sample {
  std::vector<Point> points;
  std::vector<const Point*> views;
  std::vector<double> y;
};
Sample sample(std::size_t n, std::uint64_t seed, double (*f)(const Point&)) {
  Rng rng(seed);
  std::set<Point> distinct;
  while (distinct.size() < n)
    distinct.insert({static_cast<std::uint16_t>(rng.below(8)), static_cast<std::uint16_t>(rng.below(8)), static_cast<std::uint16_t>(rng.below(8)),
                     static_cast<std::uint16_t>(rng.below(4))});
  Sample out;
  out.points.assign(distinct.begin(), distinct.end());
  for (const Point& p : out.points) out.views.push_back(&p), out.y.push_back(f(p));
  return out;
}

class Scores final : public Prior {
 public:
  explicit Scores(std::function<double(const Point&)> f) : f_(std::move(f)) {}
  double score(const Point& p) const override { return f_(p); }

 private:
  std::function<double(const Point&)> f_;
};

}  // namespace

TEST_CASE("the process goes through its observations and doubts what is far from them") {
  const SearchSpace s = space();
  GaussianProcess gp(s);
  Rng rng(1);
  const Sample train = sample(40, 3, additive);
  gp.fit(train.views, train.y, {}, 80, rng);
  const auto at = gp.predict(train.views);
  double worst = 0, own = 0;
  for (std::size_t i = 0; i < at.size(); ++i) worst = std::max(worst, std::abs(at[i].mean - train.y[i])), own += at[i].deviation / 40;
  CHECK(worst < 0.2);  // the values span 4
  double elsewhere = 0;
  const Sample fresh = sample(200, 4, additive);
  const auto others = gp.predict(fresh.views);
  for (const auto& e : others) elsewhere += e.deviation / 200;
  CHECK(elsewhere > 1.5 * own);
  const auto means = gp.means(fresh.views);
  for (std::size_t i = 0; i < means.size(); ++i) CHECK(std::abs(means[i] - others[i].mean) < 1e-9);
}

TEST_CASE("an additive function is known everywhere from a few observations, and knobs without effect are irrelevant") {
  const SearchSpace s = space();
  GaussianProcess gp(s);
  Rng rng(2);
  const Sample train = sample(60, 5, additive);
  for (int i = 0; i < 4; ++i) gp.fit(train.views, train.y, {}, 60, rng);
  const Sample fresh = sample(400, 6, additive);
  const auto means = gp.means(fresh.views);
  double error = 0, spread = 0, mean = 0;
  for (const double y : fresh.y) mean += y / 400;
  for (std::size_t i = 0; i < means.size(); ++i) error += std::pow(means[i] - fresh.y[i], 2), spread += std::pow(fresh.y[i] - mean, 2);
  CHECK(error < 0.1 * spread);
  const auto r = gp.relevance();
  CHECK(std::abs(r[0] + r[1] + r[2] + r[3] - 1) < 1e-12);
  CHECK(r[2] < r[0]);  // c does nothing
}

TEST_CASE("a trend that fits is used, and one that does not fades") {
  const SearchSpace s = space();
  const Sample train = sample(30, 7, additive);
  std::vector<double> right, wrong;
  Rng noise(8);
  for (const double y : train.y) right.push_back(y - 1), wrong.push_back(noise.normal());
  Rng r1(1), r2(1);
  GaussianProcess with(s), against(s);
  for (int i = 0; i < 4; ++i) {
    with.fit(train.views, train.y, right, 60, r1);
    against.fit(train.views, train.y, wrong, 60, r2);
  }
  CHECK(with.trend_weight() > 10 * against.trend_weight());
}

TEST_CASE("equal values, two observations and repeated points are no trouble") {
  const SearchSpace s = space();
  GaussianProcess gp(s);
  Rng rng(1);
  const Point p{1, 2, 3, 0}, q{7, 7, 7, 3};
  gp.fit({&p, &q, &p}, {5, 5, 5}, {}, 30, rng);
  CHECK(std::abs(gp.predict({&q})[0].mean - 5) < 1e-9);
  gp.fit({&p, &p}, {1, 2}, {}, 30, rng);
  const auto e = gp.predict({&p})[0];
  CHECK(std::abs(e.mean - 1.5) < 1e-6);
  CHECK(std::isfinite(e.deviation));
}

TEST_CASE("distances by hand; a spread point is farther than most") {
  const SearchSpace s = space();
  CHECK(distance(s, {0, 0, 0, 0}, {7, 0, 0, 1}) == 2.0);  // the whole range, another category
  CHECK(std::abs(distance(s, {0, 0, 0, 0}, {1, 0, 0, 0}) - (0.5 + 0.5 / 7)) < 1e-12);
  Archive archive(s);
  archive.record({{0, 0, 0, 0}, 1.0});
  Rng rng(3);
  double spread = 0, random = 0;
  for (int i = 0; i < 40; ++i) {
    spread += distance(s, *spread_point(archive, rng), {0, 0, 0, 0});
    random += distance(s, *fresh_point(archive, rng), {0, 0, 0, 0});
  }
  CHECK(spread > 1.15 * random);
}

TEST_CASE("powers of two among a knob's choices, by hand") {
  Knob k;
  k.kind = KnobKind::Ordinal;
  k.choices = {16, 32, 48, 64, 80.0, 96};
  CHECK(powers_of_two(k) == std::vector<bool>{true, true, false, true, false, false});
  CHECK(nearest_power_of_two(k, 2) == 3);  // 64 is 4/3 of 48, which is 3/2 of 32
  CHECK(nearest_power_of_two(k, 4) == 3);
  CHECK(nearest_power_of_two(k, 0) == 0);
  k.choices = {0, 1, 2, 3};
  CHECK(powers_of_two(k) == std::vector<bool>{false, true, true, false});
  CHECK(nearest_power_of_two(k, 0) == 1);
  k.choices = {"auto", 2, 3, 4, 5};
  CHECK(powers_of_two(k) == std::vector<bool>{false, true, false, true, false});
  CHECK(nearest_power_of_two(k, 0) == 0);
  CHECK(nearest_power_of_two(k, 4) == 3);
  k.choices = {0.5, 0.25, 3, 5, 1};  // one alone
  CHECK(powers_of_two(k).empty());
  k.choices = {1, 2, 4, 3};  // one other
  CHECK(powers_of_two(k).empty());
  k.choices = {1, 2, 3, 5};
  k.kind = KnobKind::Categorical;
  CHECK(powers_of_two(k).empty());
}

TEST_CASE("a rounded start is of powers of two mostly, and no less spread") {
  const SearchSpace s = space();  // a, b, c: 16, 32, 48, … 128, of which four of eight are powers of two
  Archive archive(s);
  archive.record({{0, 0, 0, 0}, 1.0});
  Rng rng(3);
  const std::vector<bool> power = powers_of_two(s.knobs[0]);
  double rounded = 0, plain = 0, far = 0, random = 0;
  for (int i = 0; i < 60; ++i) {
    const Point p = *spread_point(archive, rng, {}, true), q = *spread_point(archive, rng);
    for (std::size_t k = 0; k < 3; ++k) rounded += power[p[k]], plain += power[q[k]];
    far += distance(s, p, {0, 0, 0, 0});
    random += distance(s, *fresh_point(archive, rng), {0, 0, 0, 0});
  }
  CHECK(rounded > 1.2 * plain);
  CHECK(rounded < 180);  // not all
  CHECK(far > 1.1 * random);
}

TEST_CASE("what powers of two do is learned from some and known of others") {
  Knob k;
  k.name = "block";
  k.kind = KnobKind::Ordinal;
  for (int i = 1; i <= 16; ++i) k.choices.push_back(16 * i);
  Knob other = k;
  other.name = "rows";
  SearchSpace s;
  s.knobs = {k, other};
  const std::vector<bool> power = powers_of_two(k);
  Sample shown;
  for (const std::uint16_t a : {0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14})  // of the powers of two 16, 32, 64, not 128 and 256
    for (std::uint16_t b = 0; b < 16; b += 5) shown.points.push_back({a, b});
  for (const Point& p : shown.points) shown.views.push_back(&p), shown.y.push_back((power[p[0]] ? -1.0 : 0.0) + 0.01 * p[1]);
  GaussianProcess process(s);
  Rng rng(1);
  process.fit(shown.views, shown.y, {}, 300, rng);
  const auto gap = [&](std::uint16_t round, std::uint16_t beside) {
    const Point p = {round, 3}, q = {beside, 3};
    return process.means({&q})[0] - process.means({&p})[0];
  };
  CHECK(gap(7, 9) > 0.3);    // 128 and 160
  CHECK(gap(15, 13) > 0.2);  // 256, beyond all that was shown, and 224
}

TEST_CASE("pending points are listed until they are told") {
  const SearchSpace s = space();
  Archive archive(s);
  archive.mark_asked({2, 0, 0, 0});
  archive.mark_asked({1, 0, 0, 0});
  archive.mark_asked({1, 0, 0, 0});
  REQUIRE(archive.pending().size() == 2);
  CHECK(*archive.pending()[0] == Point{1, 0, 0, 0});
  archive.record({{1, 0, 0, 0}, std::nullopt});
  archive.record({{5, 5, 5, 0}, 1.0});
  CHECK(archive.pending().size() == 1);
}

TEST_CASE("a trend is standardised, bent at its median, and finds the prior's optimum") {
  const SearchSpace s = space();
  const Archive archive(s);
  Rng rng(1);
  const auto trend = Trend::create(std::make_shared<Scores>(additive), archive, rng);
  REQUIRE(trend);
  CHECK(additive(trend->favourites()[0]) == -1.0);  // a = 0, b = 5, d = z: nothing is lower
  CHECK(trend->at({0, 5, 0, 2}) < -1);
  // Within the worse half a tenth of the slope is left: 0.3 a step of `a` below the bend, 0.03 above it.
  CHECK(std::abs((trend->at({7, 0, 0, 3}) - trend->at({6, 0, 0, 3})) / (trend->at({1, 5, 0, 2}) - trend->at({0, 5, 0, 2})) - 0.1) < 1e-9);
  double sum = 0, squares = 0;
  for (const Point& p : sample(1500, 2, additive).points) sum += trend->at(p), squares += trend->at(p) * trend->at(p);
  CHECK(std::abs(sum / 1500) < 0.1);
  CHECK(std::abs(squares / 1500 - 1) < 0.15);
  CHECK(Trend::create(std::make_shared<Scores>([](const Point&) { return 3.0; }), archive, rng) == nullptr);
  CHECK(Trend::create(std::make_shared<Scores>([](const Point&) { return std::numeric_limits<double>::quiet_NaN(); }), archive, rng) == nullptr);
}

TEST_CASE("a good prior is followed at once; a hostile one is unlearned") {
  const SearchSpace s = space();
  const auto evaluations = [&](std::shared_ptr<const Prior> prior) {
    std::vector<int> counts;
    for (std::uint64_t seed = 1; seed <= 9; ++seed) {
      StrategyOptions options;
      options.seed = seed;
      options.prior = prior;
      auto strategy = *make_strategy("portfolio", s, options);
      int n = 0;
      for (;;) {
        const Point p = strategy->ask(1).at(0);
        ++n;
        if (additive(p) <= -0.9 || n == 300) break;
        strategy->tell({p, std::exp(additive(p))});
      }
      counts.push_back(n);
    }
    std::sort(counts.begin(), counts.end());
    return counts[4];
  };
  const int cold = evaluations(nullptr);
  CHECK(evaluations(std::make_shared<Scores>(additive)) == 1);
  // 16 of 2,048 points are that good: chance needs about 88. The three favourites of the wrong prior, and their shadow, are the loss.
  CHECK(evaluations(std::make_shared<Scores>([](const Point& p) { return -additive(p); })) <= cold + 8);
}

TEST_CASE("with a prior each knob is moved alone around the best favourite, knobs of few choices first") {
  const SearchSpace s = space();
  StrategyOptions options;
  options.prior = std::make_shared<Scores>(additive);
  auto strategy = *make_strategy("portfolio", s, options);
  std::vector<Point> asked;
  for (int i = 0; i < 12; ++i) {
    asked.push_back(strategy->ask(1).at(0));
    strategy->tell({asked.back(), std::exp(additive(asked.back()))});
  }
  // The first favourite is the optimum of both, so nothing beats it and the sweep runs undisturbed: d has four choices, the others eight.
  const auto moved = [&](const Point& p) {
    std::vector<std::size_t> knobs;
    for (std::size_t k = 0; k < p.size(); ++k)
      if (p[k] != asked[0][k]) knobs.push_back(k);
    return knobs;
  };
  std::size_t i = 1;
  while (i < asked.size() && moved(asked[i]) != std::vector<std::size_t>{3}) ++i;
  REQUIRE(i + 4 <= asked.size());
  std::set<std::size_t> knobs;
  for (std::size_t j = i; j < i + 4; ++j) {
    REQUIRE(moved(asked[j]).size() == 1);
    knobs.insert(moved(asked[j])[0]);
  }
  CHECK(knobs.size() == 4);
  CHECK(asked[i][3] == 0);  // the choice that the prior likes second
}

TEST_CASE("a cost model is corrected by records: one knob's cost that it does not know") {
  const SearchSpace s = space();
  const auto model = [](const Point& p) { return 100 * std::exp(0.1 * additive(p)); };
  const auto truth = [&](const Point& p) { return model(p) * (p[3] == 1 ? 1.5 : 1.0); };
  std::vector<Correction::Row> rows;
  for (const Point& p : sample(32, 11, additive).points) rows.push_back({p, truth(p), model(p)});
  const auto correction = Correction::learn(s, rows);
  REQUIRE(correction);
  CHECK(correction->rows() == 32);
  double worst = 0;
  for (const Point& p : sample(200, 12, additive).points) {
    const auto e = correction->at(p, model(p));
    worst = std::max(worst, std::abs(std::log(e.us / truth(p))));
    CHECK(e.low_us <= e.us);
    CHECK(e.us <= e.high_us);
  }
  CHECK(worst < 0.15);  // the model alone is off by log 1.5 = 0.41
  rows.resize(Correction::kFewestRows - 1);
  CHECK(Correction::learn(s, rows) == nullptr);
  rows.clear();
  for (const Point& p : sample(32, 11, additive).points) rows.push_back({p, model(p), model(p)});
  CHECK(Correction::learn(s, rows) == nullptr);  // predictions that are right need no correction
}

TEST_CASE("on a plateau every knob that was never moved alone from the best is, those of few choices first") {
  const SearchSpace s = space();
  Archive archive(s);
  // d = w was seen at bad places only; around the best nothing but `a` was moved, and does nothing. Spread as a start would be.
  archive.record({{0, 0, 7, 3}, 9.0});
  archive.record({{7, 0, 0, 3}, 9.0});
  for (std::uint16_t a = 0; a < 7; ++a) archive.record({{a, 4, 4, 1}, 1.0 + 0.001 * a});
  const auto proposer = cold_gaussian_proposer();
  Rng rng(3);
  const auto next = [&] {
    const Point p = proposer->propose(archive, rng).value();
    archive.mark_asked(p);
    return p;
  };
  const auto alone = [](const Point& p) {
    std::vector<std::size_t> knobs;
    for (std::size_t k = 0; k < p.size(); ++k)
      if (k != 0 && p[k] != Point{0, 4, 4, 1}[k]) knobs.push_back(k);
    return knobs;
  };
  const Point first = next();
  CHECK(alone(first) == std::vector<std::size_t>{3});  // four choices; b and c have eight
  CHECK(first[0] == 0);                                // of the best
  // Being evaluated counts as moved; then come b and c, then whatever improves most.
  std::set<std::size_t> others;
  for (int i = 0; i < 2; ++i) {
    const Point p = next();
    REQUIRE(alone(p).size() == 1);
    others.insert(alone(p)[0]);
  }
  CHECK(others == std::set<std::size_t>{1, 2});
}

TEST_CASE("from eight evaluations without a better best on every choice of the knobs of few choices is tried beside the best") {
  const SearchSpace s = space();
  for (const std::size_t after : {7u, 8u}) {
    Archive archive(s);
    archive.record({{0, 0, 7, 3}, 9.0});
    archive.record({{0, 4, 4, 1}, 1.0});
    archive.record({{0, 4, 4, 0}, 5.0});  // every knob moved once
    archive.record({{0, 4, 5, 1}, 5.0});
    archive.record({{0, 5, 4, 1}, 5.0});
    for (std::uint16_t a = 1; archive.observations().size() < after + 2; ++a) archive.record({{a, 4, 4, 1}, 5.0});
    const auto proposer = cold_gaussian_proposer();
    Rng rng(3);
    std::set<std::uint16_t> tried;
    for (int i = 0; i < 2; ++i) {
      const Point p = proposer->propose(archive, rng).value();
      archive.mark_asked(p);
      if (p[0] == 0 && p[1] == 4 && p[2] == 4) tried.insert(p[3]);
    }
    CHECK_MESSAGE((tried == std::set<std::uint16_t>{2, 3}) == (after == 8), after);
  }
}

TEST_CASE("a trend is dropped for good after twelve evaluations that found nothing worthwhile, not before") {
  const SearchSpace s = space();
  for (const std::size_t after : {11u, 12u}) {
    Archive archive(s);
    Rng rng(1);
    // It ranks what was observed rightly (it is what was observed), and is the opposite elsewhere.
    const auto trend =
        Trend::create(std::make_shared<Scores>([](const Point& p) { return p[0] < 4 ? additive(p) : -additive(p) - 9; }), archive, rng);
    REQUIRE(trend);
    archive.record({{0, 5, 0, 2}, std::exp(-1.0)});
    Rng draw(7);
    while (archive.observations().size() < after + 1) {
      Point p = {static_cast<std::uint16_t>(draw.below(4)), static_cast<std::uint16_t>(draw.below(8)), static_cast<std::uint16_t>(draw.below(8)),
                 static_cast<std::uint16_t>(draw.below(4))};
      if (additive(p) > -0.9) archive.record({p, std::exp(additive(p))});
    }
    // Each knob moved alone, the one of few choices to every choice, so that screening is over.
    archive.mark_asked({0, 5, 0, 0});
    archive.mark_asked({0, 5, 0, 3});
    archive.mark_asked({1, 5, 0, 2});
    archive.mark_asked({0, 6, 0, 2});
    archive.mark_asked({0, 5, 1, 2});
    archive.mark_asked({0, 5, 0, 1});
    Rng a(9), b(9);
    const bool alike = gaussian_proposer(trend)->propose(archive, a) == gaussian_proposer(nullptr)->propose(archive, b);
    CHECK_MESSAGE(alike == (after == 12), after);
  }
}
