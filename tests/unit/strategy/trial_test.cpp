// A prior on trial: what the search behind it does is known exactly from the same search without any prior.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "core/base/json.h"
#include "orchestrator/strategy/trial.h"

using namespace amk;

namespace {

SearchSpace space(int choices) {
  SearchSpace s;
  for (const char* name : {"a", "b", "c", "d"}) {
    Knob k;
    k.name = name;
    k.kind = KnobKind::Ordinal;
    for (int i = 1; i <= choices; ++i) k.choices.push_back(i);
    s.knobs.push_back(k);
  }
  return s;
}

double slope(const Point& p) { return 20.0 + 3 * p[0] + 2.0 * std::max(p[1], p[2]) + (p[3] % 3 == 1 ? 0 : 4); }

// What no search finds by looking around: one point of 4,096, far from where the rest is good.
const Point kNeedle = {7, 7, 7, 0};
// Hardly anything matters: the best are better than what lies between by less than a tenth.
double nearly_flat(const Point& p) { return 100 + 0.2 * slope(p); }

double with_needle(const Point& p) { return p == kNeedle ? 10.0 : slope(p); }

class Ranks final : public Prior {
 public:
  Ranks(bool explored, double sign, double (*f)(const Point&) = slope, double says = 0) : explored_(explored), sign_(sign), f_(f), says_(says) {}
  double score(const Point& p) const override { return sign_ * f_(p); }
  bool explored() const override { return explored_; }
  std::optional<double> log_cost(const Point& p) const override { return says_ == 0 ? std::nullopt : std::optional(7 + says_ * std::log(slope(p))); }
  std::vector<Point> known_best(std::size_t) const override {  // no sample need have met it
    return f_ == with_needle ? std::vector<Point>{kNeedle} : std::vector<Point>{};
  }

 private:
  bool explored_;
  double sign_;
  double (*f_)(const Point&);
  double says_;  // what it says of costs: nothing, the truth (1), the opposite (-1)
};

StrategyOptions options(std::shared_ptr<const Prior> prior) {
  StrategyOptions o;
  o.seed = 5;
  o.prior = std::move(prior);
  return o;
}

std::vector<Point> asks(Strategy& strategy, std::size_t n, double (*f)(const Point&) = slope) {
  std::vector<Point> out;
  while (out.size() < n) {
    out.push_back(strategy.ask(1).at(0));
    strategy.tell({out.back(), f(out.back())});
  }
  return out;
}

std::vector<Point> asks(const SearchSpace& s, const StrategyOptions& o, std::size_t n, double (*f)(const Point&) = slope) {
  auto strategy = *make_strategy("portfolio", s, o);
  return asks(*strategy, n, f);
}

}  // namespace

TEST_CASE("a hostile prior that nobody explored costs its favourites, and the search behind it is the one without a prior") {
  const SearchSpace s = space(8);
  const auto with = asks(s, options(std::make_shared<Ranks>(false, -1)), 60);
  const auto without = asks(s, options(nullptr), 60);
  std::vector<Point> rest(with.begin() + Trial::kTried, with.end()), expected;
  for (const Point& p : without)  // a favourite that it comes to is answered from what is known
    if (std::find(with.begin(), with.begin() + Trial::kTried, p) == with.begin() + Trial::kTried) expected.push_back(p);
  expected.resize(std::min(expected.size(), rest.size()));
  rest.resize(expected.size());
  CHECK(rest == expected);
  CHECK(rest.size() >= 60 - Trial::kTried - 4);
  // The worst that there is, and what differs from it in two knobs.
  CHECK(slope(with[0]) == 20.0 + 21 + 14 + 4);
}

TEST_CASE("an explored prior is followed as long as its favourites are better than a point of chance") {
  const SearchSpace s = space(8);
  for (const double says : {0.0, 1.0}) {  // what it says of costs holds, too
    const StrategyOptions o = options(std::make_shared<Ranks>(true, 1, slope, says));
    Portfolio follows(s, o);
    CHECK(asks(s, o, 60) == asks(follows, 60));
  }
}

TEST_CASE("a prior whose favourites are better by less than a tenth is refuted") {
  const SearchSpace s = space(8);
  const StrategyOptions o = options(std::make_shared<Ranks>(true, 1, nearly_flat));
  const auto with = asks(s, o, 40, nearly_flat);
  REQUIRE(nearly_flat(with[0]) < nearly_flat(with[1]));
  REQUIRE(nearly_flat(with[2]) < nearly_flat(with[1]));
  REQUIRE(nearly_flat(with[2]) > 0.9 * nearly_flat(with[1]));
  CHECK(with[3] == asks(s, options(nullptr), 1, nearly_flat)[0]);
}

TEST_CASE("a prior whose favourites are good is refuted after six results when what it says of costs does not hold") {
  const SearchSpace s = space(8);
  const StrategyOptions o = options(std::make_shared<Ranks>(true, 1, slope, -1));
  Portfolio follows(s, o);
  const std::vector<Point> followed = asks(follows, Trial::kAgreed);
  auto strategy = *make_strategy("portfolio", s, o);
  const auto with = asks(*strategy, 60);
  CHECK(std::equal(followed.begin(), followed.end(), with.begin()));
  // Then the search without a prior.
  std::vector<Point> expected = asks(s, options(nullptr), 50), rest(with.begin() + Trial::kAgreed, with.end());
  for (const Point& p : followed) expected.erase(std::remove(expected.begin(), expected.end(), p), expected.end());
  rest.resize(expected.size());
  CHECK(rest == expected);
}

TEST_CASE("failures and results of others do not refute a prior; what it asked for does, whenever it is told") {
  const SearchSpace s = space(8);
  const StrategyOptions o = options(std::make_shared<Ranks>(true, 1, slope, -1));
  auto strategy = *make_strategy("portfolio", s, o);
  Portfolio follows(s, o);
  const auto both = [&](const Observation& seen) {
    strategy->tell(seen);
    follows.tell(seen);
  };
  for (std::uint16_t i = 0; i < 8; ++i) both({{i, 7, i, 7}, slope({i, 7, i, 7})});
  std::vector<Point> asked;
  for (std::size_t i = 0; i < 2 * Trial::kAgreed; ++i) {  // all but the start's three fail
    asked.push_back(strategy->ask(1).at(0));
    REQUIRE(follows.ask(1).at(0) == asked.back());
    both({asked.back(), i < 3 ? std::optional(slope(asked.back())) : std::nullopt});
  }
}

TEST_CASE("an explored prior whose favourites are worse than a point of chance costs three evaluations, and the search without a prior begins") {
  const SearchSpace s = space(8);
  StrategyOptions o = options(std::make_shared<Ranks>(true, -1));
  for (const bool start : {false, true}) {  // what both begin with is no cost
    if (start) o.start = {{3, 3, 3, 3}};
    const std::size_t first = o.start.size();
    const auto with = asks(s, o, 60);
    if (start) CHECK(with[0] == o.start[0]);
    CHECK(slope(with[first]) == 20.0 + 21 + 14 + 4);  // the worst that there is
    REQUIRE(slope(with[first + 1]) < slope(with[first]));
    StrategyOptions none = options(nullptr);
    none.start = o.start;
    std::vector<Point> expected = asks(s, none, 57), rest(with.begin() + static_cast<std::ptrdiff_t>(first) + 3, with.end());
    if (start) expected.erase(expected.begin());
    for (std::size_t i = first; i < first + 3; ++i) expected.erase(std::remove(expected.begin(), expected.end(), with[i]), expected.end());
    rest.resize(expected.size());
    CHECK(rest == expected);
  }
}

TEST_CASE("an explored prior is refuted while more than its favourites are evaluated, whatever the order of the results") {
  const SearchSpace s = space(8);
  auto strategy = *make_strategy("portfolio", s, options(std::make_shared<Ranks>(true, -1)));
  const std::vector<Point> asked = strategy->ask(4);  // a favourite, a point of chance, a favourite, another
  REQUIRE(asked.size() == 4);
  for (const std::size_t i : {2, 1, 0}) strategy->tell({asked[i], slope(asked[i])});  // refuted here
  auto cold = *make_strategy("portfolio", s, options(nullptr));
  const Point next = strategy->ask(1).at(0);
  CHECK(next == cold->ask(1).at(0));
  strategy->tell({asked[3], slope(asked[3])});  // asked before, told after: it was the prior's, too
  for (auto* each : {strategy.get(), cold.get()}) each->tell({next, slope(next)});
  std::vector<Point> expected = asks(*cold, 42);
  for (const std::size_t i : {0, 1, 2, 3}) expected.erase(std::remove(expected.begin(), expected.end(), asked[i]), expected.end());
  expected.resize(35);
  CHECK(asks(*strategy, 35) == expected);
}

TEST_CASE("a favourite that is better is told to the search when it stands still, not before") {
  const SearchSpace s = space(8);
  const auto with = asks(s, options(std::make_shared<Ranks>(false, 1, with_needle)), 80, with_needle);
  const auto without = asks(s, options(nullptr), 80, with_needle);
  CHECK(with[0] == kNeedle);
  // The search without a prior, until it has not become better by half a percent for twelve evaluations.
  std::size_t standing = 0, last = 0;
  double best = 1e30;
  while (last < without.size() && standing < 12) {
    const double found = with_needle(without[last++]);
    standing = found < 0.995 * best ? 0 : standing + 1;
    best = std::min(best, found);
  }
  REQUIRE(best > 10.0);
  std::vector<Point> until(without.begin(), without.begin() + static_cast<std::ptrdiff_t>(last));
  for (std::size_t i = 0; i < Trial::kTried; ++i) until.erase(std::remove(until.begin(), until.end(), with[i]), until.end());
  const std::size_t told = Trial::kTried + until.size();
  REQUIRE(told + 8 <= with.size());
  CHECK(std::equal(until.begin(), until.end(), with.begin() + Trial::kTried));
  // From then on it knows: it looks around the needle, which it never had a reason to.
  const auto alone = [&](const Point& p) {
    std::size_t moved = 0;
    for (std::size_t k = 0; k < p.size(); ++k) moved += p[k] != kNeedle[k];
    return moved == 1;
  };
  const auto begin = with.begin() + static_cast<std::ptrdiff_t>(told);
  CHECK(std::none_of(with.begin() + Trial::kTried, begin, alone));
  CHECK(std::any_of(begin, begin + 8, alone));
}

TEST_CASE("a trial exhausts a tiny space once, in batches, with start points first and results of others in between") {
  const SearchSpace s = space(2);  // 16 points
  for (const auto& [explored, sign] : {std::pair(false, 1.0), std::pair(true, 1.0), std::pair(true, -1.0)}) {
    CAPTURE(explored);
    CAPTURE(sign);
    StrategyOptions o = options(std::make_shared<Ranks>(explored, sign));
    o.start = {{1, 1, 1, 1}, {0, 1, 0, 1}};
    auto strategy = *make_strategy("portfolio", s, o);
    CHECK(strategy->name() == "portfolio");
    strategy->tell({{0, 0, 1, 1}, std::nullopt});
    std::set<Point> seen = {{0, 0, 1, 1}};
    std::vector<Point> asked = strategy->ask(3);
    REQUIRE(asked.size() == 3);
    CHECK(asked[0] == o.start[0]);
    CHECK(asked[1] == o.start[1]);
    while (!asked.empty()) {
      const std::vector<Point> more = strategy->ask(2);  // while the first are evaluated
      for (const Point& p : asked) {
        CHECK(seen.insert(p).second);
        strategy->tell({p, p[2] == 1 ? std::nullopt : std::optional(slope(p))});
      }
      asked = more;
    }
    CHECK(seen.size() == 16);
  }
}

TEST_CASE("behind the trial stands the search with the other prior, where there is one") {
  const SearchSpace s = space(8);
  struct Model final : Prior {
    double score(const Point& p) const override { return slope(p); }
  };
  for (const bool explored : {false, true}) {
    StrategyOptions o = options(std::make_shared<Ranks>(explored, -1));
    o.otherwise = std::make_shared<Model>();
    const auto with = asks(s, o, (explored ? 3 : Trial::kTried) + 1);
    CHECK(slope(with.back()) == 20.0);  // the model's favourite at once
  }
}
