#include <doctest/doctest.h>

#include "core/base/json.h"
#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/niches.h"

using namespace amk;

namespace {

Knob knob(const std::string& name, KnobKind kind, int choices) {
  Knob k;
  k.name = name;
  k.kind = kind;
  for (int c = 0; c < choices; ++c) k.choices.push_back(c);
  return k;
}

// flag, method (three), size (twelve: too many for niches)
SearchSpace niche_space() {
  SearchSpace s;
  s.knobs = {knob("flag", KnobKind::Boolean, 2), knob("method", KnobKind::Categorical, 3), knob("size", KnobKind::Ordinal, 12)};
  return s;
}

constexpr double kWorthwhile = 0.01;

bool is(const std::optional<Niche>& n, std::size_t knob, std::uint16_t choice) { return n && n->knob == knob && n->choice == choice; }

}  // namespace

TEST_CASE("niches come in turn: fewest choices first, then fewest evaluations; three misses end a turn, an improvement renews it") {
  const SearchSpace s = niche_space();
  Archive archive(s);
  archive.record({{0, 0, 5}, 10.0});  // the best: its own choices are no niches
  archive.record({{1, 1, 5}, 40.0});
  archive.record({{0, 1, 4}, 30.0});
  archive.record({{0, 2, 4}, std::nullopt});
  Niches niches;
  CHECK(is(niches.next(archive, kWorthwhile), 0, 1));
  CHECK(is(niches.next(archive, kWorthwhile), 0, 1));  // one miss
  archive.record({{1, 1, 6}, 20.0});                   // better than 40: the count begins anew
  CHECK(is(niches.next(archive, kWorthwhile), 0, 1));
  CHECK(is(niches.next(archive, kWorthwhile), 0, 1));
  archive.record({{1, 1, 7}, 19.9});  // half a percent is not worthwhile
  CHECK(is(niches.next(archive, kWorthwhile), 0, 1));
  // The third miss: next are the methods, of which 2 was evaluated once and 1 four times.
  CHECK(is(niches.next(archive, kWorthwhile), 1, 2));
  for (int i = 0; i < 2; ++i) CHECK(is(niches.next(archive, kWorthwhile), 1, 2));
  CHECK(is(niches.next(archive, kWorthwhile), 1, 1));
  // A niche that comes to hold the best is none any more, and what holds the old best is one.
  archive.record({{0, 1, 5}, 9.0});
  const auto then = niches.next(archive, kWorthwhile);
  REQUIRE(then);
  CHECK(is(then, 1, 0));
}

TEST_CASE("no niches: knobs of many choices, or nothing correct yet") {
  SearchSpace s;
  s.knobs = {knob("size", KnobKind::Ordinal, 12), knob("only", KnobKind::Categorical, 1)};
  Archive archive(s);
  Niches niches;
  archive.record({{3, 0}, std::nullopt});
  CHECK_FALSE(niches.next(archive, kWorthwhile));
  archive.record({{4, 0}, 1.0});
  CHECK_FALSE(niches.next(archive, kWorthwhile));
}

TEST_CASE("the best of a niche, ascending, without failures and others") {
  const SearchSpace s = niche_space();
  Archive archive(s);
  archive.record({{0, 0, 1}, 1.0});
  archive.record({{1, 0, 1}, 3.0});
  archive.record({{1, 0, 2}, 2.0});
  archive.record({{1, 0, 3}, std::nullopt});
  const auto best = best_of(archive, Niche{0, 1}, 5);
  REQUIRE(best.size() == 2);
  CHECK(*best[0]->cost == 2.0);
  CHECK(*best[1]->cost == 3.0);
  CHECK(best_of(archive, Niche{0, 1}, 1).size() == 1);
}

TEST_CASE("a spread point with a score is of the better part of what was drawn") {
  const SearchSpace s = niche_space();
  Archive archive(s);
  archive.record({{0, 0, 0}, 1.0});
  // A third of thirty draws from twelve sizes: that all ten left are of size 8 or more would take twenty of thirty draws there; seeds are fixed.
  int large = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    const auto point = spread_point(archive, rng, [](const Point& p) { return static_cast<double>(p[2]); });
    REQUIRE(point);
    large += (*point)[2] >= 8;
  }
  CHECK(large == 0);
  // Without one, the farthest is at the other end.
  Rng rng(1);
  CHECK((*spread_point(archive, rng))[2] >= 8);
}
