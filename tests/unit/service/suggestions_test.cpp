#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/base/json.h"
#include "orchestrator/service/suggestions.h"

using namespace amk;

namespace {

// Six ordinal knobs of five choices. Knob 0: one more halves the latency, one less doubles it. Knob 1: 3% faster at its last choice. The others:
// nothing.
SearchSpace six_knobs() {
  SearchSpace space;
  for (int k = 0; k < 6; ++k) space.knobs.push_back({"k" + std::to_string(k), KnobKind::Ordinal, {0, 1, 2, 3, 4}, 2, "", ""});
  return space;
}
const Point kCentre = {2, 2, 2, 2, 2, 2};
double cost(const Point& p) { return 100 * std::exp2(2.0 - p[0]) * (p[1] == 4 ? 0.97 : 1.0); }

struct Asked {
  std::vector<Point> ranked, predicted;
};

SuggestionModel model_of(Asked& asked, std::size_t time) {
  SuggestionModel model;
  model.rank_us = [&asked](std::span<const Point> points) {
    std::vector<std::optional<double>> out;
    for (const Point& p : points) asked.ranked.push_back(p), out.emplace_back(cost(p));
    return out;
  };
  model.predict_us = [&asked](const Point& p) {
    asked.predicted.push_back(p);
    return std::optional(cost(p));
  };
  model.incumbent_us = cost(kCentre);
  model.expired = [&asked, time] { return asked.ranked.size() >= time; };
  return model;
}

}  // namespace

TEST_CASE("suggestions: what is predicted faster comes first, then one choice of every knob that the model says nothing of") {
  const SearchSpace space = six_knobs();
  Archive archive(space);
  archive.record({kCentre, cost(kCentre)});
  archive.record({{2, 2, 1, 2, 2, 2}, 100.0});  // knob 2 was moved before
  Asked asked;
  const Suggestions s = suggest(archive, kCentre, model_of(asked, 1000), 7);
  CHECK(s.neighbours == 6 * 4 - 1);
  CHECK(s.ranked == s.neighbours);
  CHECK(s.told_apart == 5);  // four of knob 0, one of knob 1
  REQUIRE(s.best.size() == 7);
  CHECK(s.best[0].point == Point{4, 2, 2, 2, 2, 2});
  CHECK(s.best[0].estimate.us == doctest::Approx(25));
  CHECK(s.best[1].point == Point{3, 2, 2, 2, 2, 2});
  CHECK(s.best[2].point == Point{2, 4, 2, 2, 2, 2});
  // Knobs 1, 3, 4, 5 were never moved, knob 2 was; what is slower is not worth a place.
  std::set<std::size_t> unmoved;
  for (std::size_t i = 3; i < 6; ++i) {
    CHECK_FALSE(s.best[i].told_apart);
    unmoved.insert(s.best[i].knob);
  }
  CHECK(unmoved == std::set<std::size_t>{3, 4, 5});
  CHECK(s.best[6].knob == 2);
  CHECK(asked.predicted.size() == 7);  // the proof is for what is shown
}

TEST_CASE("suggestions: every knob has its turn before time runs out, nearest choices first") {
  const SearchSpace space = six_knobs();
  Archive archive(space);
  archive.record({kCentre, cost(kCentre)});
  Asked asked;
  const Suggestions s = suggest(archive, kCentre, model_of(asked, 6), 5);
  CHECK(s.ranked == 6);
  std::set<std::size_t> knobs;
  for (const Point& p : asked.ranked)
    for (std::size_t k = 0; k < p.size(); ++k)
      if (p[k] != kCentre[k]) {
        knobs.insert(k);
        CHECK(std::abs(int{p[k]} - int{kCentre[k]}) == 1);
      }
  CHECK(knobs.size() == 6);
}

TEST_CASE("suggestions: ranked several at once, they are the same") {
  const SearchSpace space = six_knobs();
  Archive archive(space);
  archive.record({kCentre, cost(kCentre)});
  Asked one, many;
  SuggestionModel model = model_of(many, 1000);
  model.at_once = 7;  // 24 neighbours: the last time three
  const Suggestions a = suggest(archive, kCentre, model_of(one, 1000), 5), b = suggest(archive, kCentre, model, 5);
  CHECK(one.ranked == many.ranked);
  REQUIRE(a.best.size() == b.best.size());
  for (std::size_t i = 0; i < a.best.size(); ++i) CHECK(a.best[i].point == b.best[i].point);
}

TEST_CASE("suggestions: what the proof refuses is not shown, and the next takes its place") {
  const SearchSpace space = six_knobs();
  Archive archive(space);
  archive.record({kCentre, cost(kCentre)});
  Asked asked;
  SuggestionModel model = model_of(asked, 1000);
  model.predict_us = [](const Point& p) { return p[0] == 4 ? std::nullopt : std::optional(cost(p)); };
  const Suggestions s = suggest(archive, kCentre, model, 5);
  REQUIRE(s.best.size() == 5);
  CHECK(s.best[0].point == Point{3, 2, 2, 2, 2, 2});
}

TEST_CASE("suggestions: corrected by experiments, a knob that the cost model gets wrong is believed by what was recorded") {
  const SearchSpace space = six_knobs();
  Archive archive(space);
  archive.record({kCentre, cost(kCentre)});
  // Recorded: the last choices of knob 3 are three times as fast as the model says, everything else is as it says.
  std::vector<Correction::Row> rows;
  Rng rng(5);
  for (int i = 0; i < 40; ++i) {
    Point p(6);
    for (auto& v : p) v = static_cast<std::uint16_t>(rng.below(5));
    p[3] = static_cast<std::uint16_t>(i % 5);
    rows.push_back({p, cost(p) / (p[3] >= 3 ? 3.0 : 1.0), cost(p)});
    if (p != kCentre) archive.record({p, rows.back().recorded_us});
  }
  const auto correction = Correction::learn(space, rows);
  REQUIRE(correction);
  Asked asked;
  SuggestionModel model = model_of(asked, 1000);
  model.correction = correction.get();
  model.incumbent_us = correction->at(kCentre, cost(kCentre)).us;
  const Suggestions s = suggest(archive, kCentre, model, 3);
  REQUIRE(s.best.size() == 3);
  // 25 µs by knob 0 (two up), about 33 by knob 3, 50 by knob 0 (one up).
  CHECK(s.best[0].point == Point{4, 2, 2, 2, 2, 2});
  CHECK(s.best[1].knob == 3);
  CHECK(s.best[1].estimate.us == doctest::Approx(33.3).epsilon(0.15));
}
