// Properties that every registered strategy must have, and a comparison on a function whose optimum is known.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/schedule/valid_points.h"
#include "orchestrator/strategy/archive.h"
#include "orchestrator/strategy/forest.h"
#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/strategy.h"

using namespace amk;

namespace {

Knob ordinal(const char* name, int n) {
  Knob k;
  k.name = name;
  k.kind = KnobKind::Ordinal;
  for (int i = 0; i < n; ++i) k.choices.push_back(1 << i);
  return k;
}

Knob categorical(const char* name, int n) {
  Knob k;
  k.name = name;
  for (int i = 0; i < n; ++i) k.choices.push_back(std::string(1, static_cast<char>('a' + i)));
  return k;
}

Knob boolean(const char* name) {
  Knob k;
  k.name = name;
  k.kind = KnobKind::Boolean;
  k.choices = {false, true};
  return k;
}

// 8·8·6·5·4·2 = 15,360 points, of which those with a + b > 10 break a rule.
SearchSpace six_knobs() {
  SearchSpace s;
  s.knobs = {ordinal("a", 8), ordinal("b", 8), ordinal("c", 6), categorical("d", 5), categorical("e", 4), boolean("f")};
  s.constraints.push_back({"sum", "a and b share storage", [](const Point& p) { return p[0] + p[1] <= 10; }});
  return s;
}

SearchSpace tiny() {
  SearchSpace s;
  s.knobs = {ordinal("a", 3), categorical("b", 3), boolean("c")};
  s.constraints.push_back({"not-both", "a and c exclude each other", [](const Point& p) { return !(p[0] == 2 && p[2] == 1); }});
  return s;  // 18 points, 15 valid
}

// Smooth in the ordinals with an interaction, one good category each; optimum 10 at (5, 2, 3, c, b, true). c == 0 fails.
std::optional<double> cost(const Point& p) {
  if (p[2] == 0) return std::nullopt;
  const double a = p[0] - 5.0, b = p[1] - 2.0, c = p[2] - 3.0;
  return 10.0 + a * a + b * b + 0.5 * a * b + 2 * c * c + (p[3] == 2 ? 0 : 3 + p[3]) + (p[4] == 1 ? 0 : 4) + (p[5] == 1 ? 0 : 2.5);
}

// The same space with its valid points prepared for drawing.
SearchSpace prepared(SearchSpace s, std::vector<std::uint16_t> reads) {
  for (Constraint& rule : s.constraints) rule.reads = reads;
  s.valid = ValidPoints::of(s);
  return s;
}

std::unique_ptr<Strategy> make(const std::string& name, const SearchSpace& s, std::uint64_t seed) {
  StrategyOptions options;
  options.seed = seed;
  auto strategy = make_strategy(name, s, options);
  REQUIRE(strategy);
  return std::move(*strategy);
}

// n proposals, or as many as it takes to find a cost of at most `wanted`.
std::vector<Point> run(const std::string& name, std::uint64_t seed, std::size_t n, std::size_t batch = 1, double wanted = 0,
                       const SearchSpace& s = six_knobs()) {
  auto strategy = make(name, s, seed);
  std::vector<Point> out;
  while (out.size() < n) {
    const auto asked = strategy->ask(batch);
    REQUIRE(!asked.empty());
    for (const Point& p : asked) {
      out.push_back(p);
      if (cost(p) && *cost(p) <= wanted) return out;
      strategy->tell({p, cost(p)});
    }
  }
  return out;
}

}  // namespace

TEST_CASE("every strategy proposes valid points, never one twice, alike for one seed") {
  for (const std::string& name : strategy_names()) {
    CAPTURE(name);
    const SearchSpace s = six_knobs();
    const auto points = run(name, 3, 150);
    for (const Point& p : points) {
      CHECK(s.in_range(p));
      CHECK(s.violated(p) == nullptr);
    }
    CHECK(std::set<Point>(points.begin(), points.end()).size() == points.size());
    CHECK(run(name, 3, 150) == points);
    CHECK(run(name, 4, 150) != points);
    const auto batched = run(name, 3, 96, 8);
    CHECK(std::set<Point>(batched.begin(), batched.end()).size() == batched.size());
    const SearchSpace drawn = prepared(s, {0, 1});
    const auto others = run(name, 3, 150, 1, 0, drawn);
    for (const Point& p : others) CHECK(s.violated(p) == nullptr);
    CHECK(std::set<Point>(others.begin(), others.end()).size() == others.size());
    CHECK(run(name, 3, 150, 1, 0, drawn) == others);
  }
}

TEST_CASE("every strategy exhausts a tiny space and then proposes nothing") {
  for (const SearchSpace& s : {tiny(), prepared(tiny(), {0, 2})}) {
    for (const std::string& name : strategy_names()) {
      CAPTURE(name);
      auto strategy = make(name, s, 1);
      std::set<Point> seen;
      for (;;) {
        const auto asked = strategy->ask(1);
        if (asked.empty()) break;
        CHECK(seen.insert(asked[0]).second);
        strategy->tell({asked[0], asked[0][0] == 1 ? std::nullopt : std::optional(1.0 + asked[0][1])});
        REQUIRE(seen.size() <= 15);
      }
      CHECK(seen.size() == 15);
      CHECK(strategy->ask(4).empty());
    }
  }
}

TEST_CASE("a strategy survives a space where everything fails, and results that nobody asked for") {
  for (const std::string& name : strategy_names()) {
    CAPTURE(name);
    const SearchSpace s = six_knobs();
    auto strategy = make(name, s, 1);
    strategy->tell({{0, 0, 1, 0, 0, 0}, std::nullopt});
    for (int i = 0; i < 60; ++i) {
      const auto asked = strategy->ask(1);
      REQUIRE(asked.size() == 1);
      CHECK(asked[0] != Point{0, 0, 1, 0, 0, 0});
      strategy->tell({asked[0], std::nullopt});
    }
  }
}

TEST_CASE("start points come first, in order; invalid ones are passed over") {
  for (const std::string& name : strategy_names()) {
    CAPTURE(name);
    const SearchSpace s = six_knobs();
    StrategyOptions options;
    options.start = {{7, 7, 1, 0, 0, 0}, {1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 0}};
    auto strategy = make_strategy(name, s, options);
    REQUIRE(strategy);
    CHECK((*strategy)->ask(2) == std::vector<Point>{{1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 0}});
  }
}

TEST_CASE("guided strategies find the optimum's neighbourhood with far fewer evaluations than random search") {
  const auto evaluations_to = [](const std::string& name, double wanted) {
    std::vector<std::size_t> counts;
    for (std::uint64_t seed = 1; seed <= 9; ++seed) {
      const auto points = run(name, seed, 400, 1, wanted);
      const bool found = cost(points.back()) && *cost(points.back()) <= wanted;
      counts.push_back(points.size() + (found ? 0 : 1));
    }
    std::sort(counts.begin(), counts.end());
    return counts[counts.size() / 2];
  };
  const std::size_t random = evaluations_to("random", 11.0);
  for (const char* name : {"local", "evolutionary", "surrogate", "vnd", "portfolio"}) {
    CAPTURE(name);
    CHECK(evaluations_to(name, 11.0) * 2 < random);
  }
}

TEST_CASE("unknown strategies are refused with the names that exist") {
  const auto refused = make_strategy("simulated_magic", six_knobs(), {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("portfolio") != std::string::npos);
}

TEST_CASE("the archive keeps the best through re-measurements") {
  const SearchSpace s = six_knobs();
  Archive archive(s);
  archive.record({{1, 1, 1, 1, 1, 1}, 5.0});
  archive.record({{2, 1, 1, 1, 1, 1}, 4.0});
  archive.record({{3, 1, 1, 1, 1, 1}, std::nullopt});
  CHECK(*archive.best()->cost == 4.0);
  archive.record({{2, 1, 1, 1, 1, 1}, 9.0});  // it was noise
  CHECK(*archive.best()->cost == 5.0);
  CHECK(archive.observations().size() == 3);
  CHECK(archive.known({3, 1, 1, 1, 1, 1}));
  // Neighbours of (0,…): one step up in each ordinal, all other categories, the other boolean.
  CHECK(archive.neighbours({0, 0, 0, 0, 0, 0}, false).size() == 3 + 4 + 3 + 1);
  CHECK(archive.neighbours({0, 0, 0, 0, 0, 0}, true).size() == 7 + 7 + 5 + 4 + 3 + 1);
}

TEST_CASE("neighbours are the same whether rules say what they read or not, and from a point that breaks one") {
  const SearchSpace s = six_knobs(), said = prepared(s, {0, 1});
  const Archive all(s), some(said);
  for (const Point& p : {Point{3, 7, 1, 2, 3, 0}, Point{5, 5, 0, 0, 0, 1}, Point{7, 7, 2, 1, 0, 0}})
    for (const bool wide : {false, true}) CHECK(some.neighbours(p, wide) == all.neighbours(p, wide));
  CHECK(some.neighbours({7, 7, 2, 1, 0, 0}, true).size() == 4 + 4);  // only a or b mends it: 0 to 3 either
}

TEST_CASE("what to perturb is a knob that has another choice, and tries are counted") {
  SearchSpace s = six_knobs();
  int asked = 0;
  s.knobs.push_back(categorical("one", 1));
  s.constraints.insert(s.constraints.begin(), {"counted", "", [&asked](const Point&) { return ++asked, true; }});
  Archive archive(s);
  const Point from = {1, 1, 1, 1, 1, 1, 0};
  archive.record({from, 1.0});
  CHECK(archive.movable() == std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
  Rng rng(2);
  for (int i = 0; i < 100; ++i) {
    int once = 1;
    CHECK(perturbed(archive, from, 1, rng, once));
    CHECK(once == 0);
  }
  s.constraints.push_back({"never", "", [](const Point&) { return false; }});
  const Archive hopeless(s);
  asked = 0;
  int tries = 70;
  CHECK_FALSE(perturbed(hopeless, from, 2, rng, tries));
  CHECK(asked == 70);
  CHECK_FALSE(perturbed(hopeless, from, 2, rng, tries));
  CHECK(asked == 70);
}

TEST_CASE("the forest interpolates what it was shown") {
  const SearchSpace s = six_knobs();
  Rng rng(5);
  std::vector<Point> points;
  std::vector<double> y;
  for (int i = 0; i < 300; ++i) {
    Point p;
    for (const Knob& k : s.knobs) p.push_back(static_cast<std::uint16_t>(rng.below(k.choices.size())));
    points.push_back(p);
    y.push_back(p[0] + (p[3] == 2 ? 10.0 : 0.0));
  }
  std::vector<const Point*> views;
  for (const Point& p : points) views.push_back(&p);
  Forest forest(s, 30);
  forest.fit(views, y, rng);
  double worst = 0;
  for (std::uint16_t a = 0; a < 8; ++a) worst = std::max(worst, std::abs(forest.predict({a, 3, 2, 2, 1, 0}).mean - (a + 10.0)));
  CHECK(worst < 2.0);
  CHECK(forest.predict({4, 3, 2, 2, 1, 0}).mean - forest.predict({4, 3, 2, 1, 1, 0}).mean > 7.0);
}
