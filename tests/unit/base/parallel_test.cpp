#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include "core/base/parallel.h"

using namespace amk;

TEST_CASE("for_ranges covers every index exactly once, in ranges no longer than the grain") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (const std::int64_t count : {0, 1, 2, 7, 64, 1000})
      for (const std::int64_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> hits(static_cast<std::size_t>(count));
        std::atomic<bool> short_enough{true};
        pool.for_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
          if (begin >= end || end - begin > grain) short_enough = false;
          for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
        });
        CHECK(short_enough);
        for (const auto& h : hits) REQUIRE(h == 1);
      }
  }
}

TEST_CASE("what a loop wrote is visible after it, through thousands of short loops and late workers") {
  ThreadPool pool(4);
  std::vector<int> values(16, 0);  // plain ints: a missing happens-before shows under the thread sanitizer
  for (int round = 1; round <= 3000; ++round) {
    pool.for_ranges(16, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += round;
    });
    if (round % 500 == 0)
      for (const int v : values) REQUIRE(v == round * (round + 1) / 2);
  }
}

TEST_CASE("pools start and stop without a loop, and a thread count of 0 means at least one") {
  for (int i = 0; i < 50; ++i) ThreadPool pool(3);
  CHECK(resolve_threads(0) >= 1);
  CHECK(resolve_threads(-7) >= 1);
  CHECK(resolve_threads(100000) == 256);
}
