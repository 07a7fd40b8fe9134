#include "core/schedule/valid_points.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "core/base/json.h"
#include "tests/support/misread.h"

using namespace amk;

namespace {

SearchSpace of_choices(const std::vector<int>& counts) {
  SearchSpace s;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    Knob knob;
    knob.name = std::string(1, static_cast<char>('a' + k));
    for (int c = 0; c < counts[k]; ++c) knob.choices.push_back(c);
    s.knobs.push_back(knob);
  }
  return s;
}

// Two tied pairs that meet in a third rule, a knob that no rule reads, one of a single choice, and a rule that does not say what it reads.
SearchSpace tied() {
  SearchSpace s = of_choices({4, 5, 3, 6, 1, 7});
  s.constraints.push_back({"a-b", "", [](const Point& p) { return p[0] + p[1] <= 4; }, {{0, 1}}});
  s.constraints.push_back({"c-d", "", [](const Point& p) { return p[2] * p[3] != 2; }, {{2, 3}}});
  s.constraints.push_back({"b-d", "", [](const Point& p) { return p[1] != p[3]; }, {{1, 3, 4}}});
  s.constraints.push_back({"a-f", "", [](const Point& p) { return p[0] != 3 || p[5] < 2; }});
  return s;
}

std::set<Point> by_walking(const SearchSpace& space) {
  std::set<Point> out;
  Point p(space.knobs.size(), 0);
  for (bool more = true; more;) {
    if (space.violated(p) == nullptr) out.insert(p);
    std::size_t k = 0;
    while (k < p.size() && ++p[k] == space.knobs[k].choices.size()) p[k++] = 0;
    more = k < p.size();
  }
  return out;
}

}  // namespace

TEST_CASE("the places of a space hold its valid points, each once") {
  const SearchSpace s = tied();
  const std::set<Point> all = by_walking(s);
  const auto valid = ValidPoints::of(s);
  std::set<Point> held;
  for (std::uint64_t i = 0; i < valid->places(); ++i)
    if (const auto p = valid->at(i)) CHECK(held.insert(*p).second);
  CHECK(held == all);
  // What says what it reads is sorted out beforehand; the last rule refuses five of seven f where a is 3.
  std::set<Point> told;
  SearchSpace three = s;
  three.constraints.pop_back();
  CHECK(valid->places() == by_walking(three).size());
  CHECK(valid->places() > all.size());
}

TEST_CASE("each valid point is drawn as often as any other, and the same ones again from the same seed") {
  const SearchSpace s = tied();
  const std::set<Point> all = by_walking(s);
  const auto valid = ValidPoints::of(s), again = ValidPoints::of(s);
  Rng rng(5), same(5);
  std::map<Point, int> drawn;
  constexpr int kEach = 100;
  for (std::size_t i = 0; i < kEach * all.size(); ++i) {
    const auto p = valid->draw(rng, 100);
    REQUIRE(p);
    ++drawn[*p];
    if (i < 200) CHECK(again->draw(same, 100) == p);
  }
  double squares = 0;
  for (const Point& p : all) squares += (drawn[p] - kEach) * (drawn[p] - kEach) / static_cast<double>(kEach);
  CHECK(drawn.size() == all.size());
  // Chi squared of n - 1 degrees: mean n - 1, variance 2(n - 1); five deviations.
  const auto n = static_cast<double>(all.size());
  CHECK(std::abs(squares - (n - 1)) < 5 * std::sqrt(2 * (n - 1)));
}

TEST_CASE("several threads may draw first") {
  const SearchSpace s = tied();
  const auto alone = ValidPoints::of(s), shared = ValidPoints::of(s);
  constexpr std::uint64_t kThreads = 4;
  std::vector<std::vector<Point>> drawn(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        Rng rng(t);
        for (int i = 0; i < 50; ++i) drawn[t].push_back(*shared->draw(rng, 100));
      });
  }
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    Rng rng(t);
    for (const Point& p : drawn[t]) CHECK(*alone->draw(rng, 100) == p);
  }
}

TEST_CASE("where nothing is valid nothing is drawn") {
  SearchSpace by_table = of_choices({3, 3});
  by_table.constraints.push_back({"never", "", [](const Point& p) { return p[0] + p[1] > 9; }, {{0, 1}}});
  SearchSpace by_none = of_choices({3, 3});
  by_none.constraints.push_back({"device", "", [](const Point&) { return false; }, std::vector<std::uint16_t>{}});
  for (const SearchSpace& s : {by_table, by_none}) {
    const auto valid = ValidPoints::of(s);
    Rng rng(1);
    CHECK_FALSE(valid->draw(rng, 50));
    for (std::uint64_t i = 0; i < valid->places(); ++i) CHECK_FALSE(valid->at(i));
  }
}

TEST_CASE("what ties too many combinations together is left to trial") {
  SearchSpace s = of_choices(std::vector<int>(30, 4));  // 4^30
  std::vector<std::uint16_t> all;
  for (std::uint16_t k = 0; k < 30; ++k) all.push_back(k);
  s.constraints.push_back({"even", "",
                           [](const Point& p) {
                             int sum = 0;
                             for (const std::uint16_t c : p) sum += c;
                             return sum % 2 == 0;
                           },
                           all});
  s.constraints.push_back({"few", "", [](const Point& p) { return p[0] == 3 && p[1] == 2; }, {{0, 1}}});
  const auto valid = ValidPoints::of(s);
  Rng rng(2);
  for (int i = 0; i < 100; ++i) {
    const auto p = valid->draw(rng, 100);  // by lot alone one in thirty-two would be
    REQUIRE(p);
    CHECK(s.violated(*p) == nullptr);
  }
  CHECK(valid->places() == std::uint64_t{1} << 56);
}

TEST_CASE("a rule that ties much and refuses little makes no long list, and is kept nevertheless") {
  SearchSpace s = of_choices({40, 40, 40, 40});
  s.constraints.push_back({"rare", "", [](const Point& p) { return p[0] + p[1] + p[2] + p[3] > 20; }, {{0, 1, 2, 3}}});
  s.constraints.push_back({"half", "", [](const Point& p) { return (p[0] ^ p[1] ^ p[2] ^ p[3]) % 2 == 0; }, {{0, 1, 2, 3}}});
  const auto valid = ValidPoints::of(s);
  CHECK(valid->places() == std::uint64_t{40} * 40 * 40 * 40 / 2);
  SearchSpace rare = s;
  rare.constraints.pop_back();
  const auto by_trial = ValidPoints::of(rare);
  CHECK(by_trial->places() == std::uint64_t{40} * 40 * 40 * 40);
  CHECK_FALSE(by_trial->at(0));  // 0, 0, 0, 0
  Rng rng(6);
  for (int i = 0; i < 500; ++i) CHECK(rare.violated(*by_trial->draw(rng, 10)) == nullptr);
}

TEST_CASE("listed points keep their order") {
  const SearchSpace s = of_choices({40, 9, 2});
  const std::vector<Point> points = {{39, 8, 1}, {0, 0, 0}, {7, 3, 1}};
  const auto valid = ValidPoints::listed(s, points);
  REQUIRE(valid->places() == 3);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(*valid->at(i) == points[i]);
  Rng rng(4), same(4);
  for (int i = 0; i < 20; ++i) CHECK(*valid->draw(rng, 1) == points[same.below(3)]);
}

TEST_CASE("a rule that reads more than it says is found out") {
  SearchSpace s = of_choices({6, 6, 6});
  s.constraints.push_back({"narrow", "", [](const Point& p) { return p[0] != 5 || p[2] != 5; }, {{0}}});
  CHECK(misread(s, 500) == "narrow reads c");
  s.constraints[0].reads = {0, 2};
  CHECK(misread(s, 500) == "");
}
