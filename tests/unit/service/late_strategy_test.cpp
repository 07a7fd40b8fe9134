// A search whose strategy is made beside it: the same asks as without, and nobody waits for what is not needed.
#include <doctest/doctest.h>

#include <atomic>
#include <latch>
#include <new>
#include <thread>

#include "core/base/json.h"
#include "orchestrator/service/late_strategy.h"

using namespace amk;

namespace {

SearchSpace space() {
  SearchSpace s;
  for (const char* name : {"a", "b", "c"}) {
    Knob k;
    k.name = name;
    k.kind = KnobKind::Ordinal;
    for (int i = 0; i < 8; ++i) k.choices.push_back(i);
    s.knobs.push_back(k);
  }
  s.constraints.push_back({"a-not-7", "", [](const Point& p) { return p[0] != 7; }});
  return s;
}

double bowl(const Point& p) { return 10.0 + (p[0] - 6.0) * (p[0] - 6.0) + 2 * (p[1] - 1.0) * (p[1] - 1.0) + p[2]; }

// The second start point is not valid, the fourth the first again.
const std::vector<Point> kStart = {{0, 0, 0}, {7, 0, 0}, {1, 2, 3}, {0, 0, 0}};

StrategyOptions options() {
  StrategyOptions o;
  o.seed = 11;
  o.start = kStart;
  return o;
}

}  // namespace

TEST_CASE("a late strategy asks what the strategy would, whenever it comes, with results and those of others in between") {
  const SearchSpace s = space();
  for (const char* name : {"portfolio", "local"}) {
    CAPTURE(name);
    auto plain = make_strategy(name, s, options());
    REQUIRE(plain);
    std::latch go(1);
    LateStrategy late(s, kStart, [&](const std::stop_token&) {
      go.wait();
      return make_strategy(name, s, options());
    });
    const auto tell = [&](const Observation& o) {
      (*plain)->tell(o);
      late.tell(o);
    };
    tell({{1, 2, 3}, 99.0});  // known from elsewhere: that start point is not asked
    for (int i = 0; i < 40; ++i) {
      if (late.must_wait()) {
        CHECK(i == 1);  // one start point needs nobody
        CHECK_FALSE(late.there());
        go.count_down();
        CHECK(late.wait({}));
      }
      const auto expected = (*plain)->ask(1);
      const auto got = late.ask();
      REQUIRE(got);
      REQUIRE(expected.size() == 1);
      REQUIRE(*got);
      CHECK(**got == expected[0]);
      tell({expected[0], expected[0][2] == 5 ? std::nullopt : std::optional(bowl(expected[0]))});
      if (i == 0) tell({{2, 2, 2}, bowl({2, 2, 2})});
    }
    CHECK(late.there());
  }
}

TEST_CASE("a wait ends when it is asked to stop; the strategy is made all the same, and a later wait finds it") {
  const SearchSpace s = space();
  std::latch go(1);
  LateStrategy late(s, {}, [&](const std::stop_token&) {
    go.wait();
    return make_strategy("local", s, {});
  });
  std::stop_source cancel;
  {
    std::jthread canceller([&] { cancel.request_stop(); });
    CHECK_FALSE(late.wait(cancel.get_token()));  // before, while or after it waits: nothing else can end it, go is closed
  }
  CHECK_FALSE(late.wait(cancel.get_token()));
  CHECK_FALSE(late.there());
  go.count_down();
  CHECK(late.wait({}));
  CHECK(late.wait(cancel.get_token()));  // it is there, whoever has stopped
  CHECK(late.ask().value().has_value());
}

TEST_CASE("a strategy that cannot be made is an error when it is needed, not before") {
  const SearchSpace s = space();
  LateStrategy late(s, kStart, [](const std::stop_token&) -> LateStrategy::Made { return fail(ErrorKind::Io, "the disk is gone"); });
  CHECK(late.ask().value() == Point{0, 0, 0});
  CHECK(late.ask().value() == Point{1, 2, 3});
  for (int i = 0; i < 2; ++i) {
    const auto refused = late.ask();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::Io);
  }
}

TEST_CASE("nothing leaves the thread of a maker") {
  const SearchSpace s = space();
  LateStrategy late(s, {}, [](const std::stop_token&) -> LateStrategy::Made { throw std::bad_alloc(); });
  const auto refused = late.ask();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::Unavailable);  // no memory is the machine's state
}

TEST_CASE("a search that ends before its strategy was needed asks its maker to stop") {
  const SearchSpace s = space();
  std::atomic<bool> stopped = false;
  {
    LateStrategy late(s, kStart, [&](const std::stop_token& stop) -> LateStrategy::Made {
      while (!stop.stop_requested()) std::this_thread::yield();
      stopped = true;
      return fail(ErrorKind::Cancelled, "stopped");
    });
    CHECK(late.ask().value() == Point{0, 0, 0});
  }
  CHECK(stopped);
}
