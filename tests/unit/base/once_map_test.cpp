#include <doctest/doctest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "core/base/once_map.h"

using namespace amk;

TEST_CASE("a value is made once, however many ask for it at the same time; other keys do not wait") {
  OnceMap<int> map;
  std::atomic<int> made{0};
  std::latch started(1), go(1);
  const auto slow = [&]() -> Result<int> {
    ++made;
    started.count_down();
    go.wait();
    return 7;
  };
  std::vector<int> got(4, 0);
  {
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { got[0] = map.get("a", slow, {}).value(); });
    started.wait();  // the value is being made now
    for (std::size_t i = 1; i < got.size(); ++i)
      threads.emplace_back([&, i] { got[i] = map.get("a", [&]() -> Result<int> { return ++made; }, {}).value(); });
    CHECK(map.get("b", [] { return Result<int>(1); }, {}).value() == 1);
    go.count_down();
  }
  CHECK(made == 1);
  CHECK(got == std::vector<int>(4, 7));
}

TEST_CASE("what could not be made is made by the next to ask, also by one that waited") {
  OnceMap<int> map;
  std::latch started(1), go(1);
  std::optional<Result<int>> first, second;
  {
    std::jthread failing([&] {
      first = map.get("a",
                      [&]() -> Result<int> {
                        started.count_down();
                        go.wait();
                        return fail(ErrorKind::Io, "no");
                      },
                      {});
    });
    started.wait();
    std::jthread waiting([&] { second = map.get("a", [] { return Result<int>(3); }, {}); });
    go.count_down();
  }
  REQUIRE(first);
  CHECK(first->error().kind == ErrorKind::Io);
  REQUIRE(second);
  CHECK(second->value() == 3);
}

TEST_CASE("who waits may be cancelled; the value is made all the same") {
  OnceMap<int> map;
  std::latch started(1), go(1);
  std::stop_source stop;
  int made = 0;
  {
    std::jthread making([&] {
      made = map.get("a",
                     [&]() -> Result<int> {
                       started.count_down();
                       go.wait();
                       return 5;
                     },
                     {})
                 .value();
    });
    started.wait();
    stop.request_stop();
    const auto cancelled = map.get(
        "a", [] { return Result<int>(9); }, stop.get_token());
    REQUIRE_FALSE(cancelled);
    CHECK(cancelled.error().kind == ErrorKind::Cancelled);
    go.count_down();
  }
  CHECK(made == 5);
  CHECK(map.get("a", [] { return Result<int>(9); }, {}).value() == 5);
}
