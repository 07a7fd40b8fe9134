// The page's arithmetic: queries, thinned series, knob importance.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/base/random.h"
#include "server/dashboard/downsample.h"
#include "server/dashboard/importance.h"
#include "server/dashboard/query.h"

using namespace amk;
using namespace amk::dashboard;

namespace {
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

std::string message(const Error& e) { return e.message; }
}  // namespace

TEST_CASE("a query is decoded, and what is not accepted is named") {
  const auto q = Query::parse("a=1%202+3&b=x&b=%C3%A9&c", {"a", "b", "c"});
  REQUIRE(q);
  CHECK(*q->text("a") == "1 2 3");
  CHECK(q->all("b") == std::vector<std::string>{"x", "\xC3\xA9"});
  CHECK(*q->text("c", "fallback") == "");
  CHECK(*q->text("d", "fallback") == "fallback");
  CHECK_FALSE(q->text("b"));
  CHECK_FALSE(q->required("c"));
  CHECK(message(Query::parse("zz=1", {"a"}).error()).find("zz") != std::string::npos);
  for (const char* bad : {"a=%", "a=%2", "a=%zz", "%=1"}) CHECK_FALSE(Query::parse(bad, {"a"}));
  const auto n = Query::parse("i=12&j=1x&k=99999999999999999999&f=-2.5e3&g=inf&h=nan", {"i", "j", "k", "f", "g", "h"});
  REQUIRE(n);
  CHECK(*n->integer("i", 0, 1, 20) == 12);
  CHECK(*n->integer("missing", 7, 1, 20) == 7);
  CHECK_FALSE(n->integer("i", 0, 1, 11));
  CHECK_FALSE(n->integer("j", 0, 1, 11));
  CHECK_FALSE(n->integer("k", 0, 1, 11));
  CHECK(**n->number("f") == -2500);
  CHECK_FALSE(n->number("g"));
  CHECK_FALSE(n->number("h"));
  CHECK_FALSE(n->number("missing")->has_value());
}

TEST_CASE("a thinned series keeps the extremes of every stretch and nothing else") {
  const std::vector<float> few{3, kNone, 1, 2};
  CHECK(keep_extremes(few, 10) == std::vector<std::size_t>{0, 2, 3});
  CHECK(keep_extremes(std::vector<float>{}, 10).empty());
  CHECK(keep_extremes(std::vector<float>(100, kNone), 10).empty());
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    std::vector<float> values(1 + rng.below(5000));
    for (float& v : values) v = rng.below(5) == 0 ? kNone : static_cast<float>(rng.uniform());
    const std::size_t most = 10 + rng.below(200);
    const auto kept = keep_extremes(values, most);
    CHECK(kept.size() <= most);
    std::size_t least = values.size(), greatest = values.size();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;
      if (least == values.size() || values[i] < values[least]) least = i;
      if (greatest == values.size() || values[i] > values[greatest]) greatest = i;
    }
    for (std::size_t k = 0; k < kept.size(); ++k) {
      CHECK_FALSE(std::isnan(values[kept[k]]));
      if (k > 0) CHECK(kept[k - 1] < kept[k]);
    }
    if (least == values.size()) continue;
    const auto has = [&](std::size_t i) { return std::find(kept.begin(), kept.end(), i) != kept.end(); };
    CHECK(has(least));
    CHECK(has(greatest));
  }
}

TEST_CASE("the timeline counts every experiment once, in stretches that people can name") {
  const std::vector<std::uint8_t> five{0, 1, 1, 6, 7};
  const OutcomeTimeline one = outcome_timeline(five, 10);
  CHECK(one.per == 1);
  REQUIRE(one.counts.size() == 5);
  CHECK(one.counts[3] == std::array<std::uint32_t, kOutcomes>{0, 0, 0, 0, 0, 0, 1, 0});
  CHECK(outcome_timeline(five, 2).per == 5);  // 1, 2 give 5 and 3 stretches
  CHECK(outcome_timeline({}, 10).counts.empty());
  const std::vector<std::uint8_t> many(100'001, 1);
  const OutcomeTimeline t = outcome_timeline(many, 240);
  CHECK(t.per == 500);  // 200 would make 501 stretches
  CHECK(t.counts.size() == 201);
  CHECK(t.counts.front()[1] == 500);
  CHECK(t.counts.back()[1] == 1);
}

TEST_CASE("importance: by hand") {
  Importance few;
  for (int i = 0; i < 5; ++i) few.add({{"a", i % 2}}, 1 + i);
  CHECK(few.ranked(8, 8).empty());  // five observations teach nothing

  // log2 latencies 1 1 3 3 / 2 2: knob a has means 1 (x2), 3 (x2), 2 (x2), all variance between its choices; knob b has equal means.
  Importance by_hand;
  const double two = 2;
  for (const auto& [a, b, y] : std::vector<std::tuple<int, int, double>>{{1, 0, 1}, {1, 1, 1}, {3, 0, 3}, {3, 1, 3}, {2, 0, 2}, {2, 1, 2}})
    by_hand.add({{"group", {{"a", a}}}, {"b", b}}, std::pow(two, y));
  by_hand.add({{"group", {{"a", 9}}}, {"b", 9}}, -1);  // no latency: no observation
  const Json r = by_hand.ranked(8, 2);
  REQUIRE(r.size() == 1);  // b explains nothing: left out
  CHECK(r[0]["knob"] == "group.a");
  CHECK(r[0]["explains"] == 1.0);
  CHECK(r[0]["observations"] == 6);
  CHECK(r[0]["confidence"] == "low");
  REQUIRE(r[0]["choices"].size() == 2);
  CHECK(r[0]["choices"][0]["value"] == "1");
  CHECK(r[0]["choices"][0]["latency_us"].get<double>() == doctest::Approx(2));
  CHECK(r[0]["choices"][1]["latency_us"].get<double>() == doctest::Approx(4));

  Importance equal;
  for (int i = 0; i < 10; ++i) equal.add({{"a", i}}, 5);
  CHECK(equal.ranked(8, 8).empty());  // nothing to explain
}

TEST_CASE("importance: a knob that some configs lack, and objects too large to be knobs") {
  Importance sparse;
  for (int i = 0; i < 10; ++i) sparse.add(i % 2 ? Json{{"a", 1}} : Json{{"b", 1}}, i % 2 ? 10 : 20);
  const Json r = sparse.ranked(8, 8);
  REQUIRE(r.size() == 2);
  CHECK(r[0]["explains"] == 1.0);
  CHECK(r[1]["explains"] == 1.0);
  Importance pinned;
  for (int i = 0; i < 10; ++i) {
    Json tiles = Json::object();
    for (int t = 0; t < 500; ++t) tiles["tile" + std::to_string(t)] = i % 2;
    pinned.add({{"sm_assignment", tiles}}, 1 + i % 2);
  }
  const Json p = pinned.ranked(8, 8);
  REQUIRE(p.size() == 1);
  CHECK(p[0]["knob"] == "sm_assignment");
}
