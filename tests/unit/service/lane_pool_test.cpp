#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "orchestrator/service/lane_pool.h"

using namespace amk;

TEST_CASE("candidates go to the GPU with the fewest, and no GPU has more than the depth") {
  LanePool pool(3, 2);
  const std::stop_source stop;
  std::vector<std::size_t> given;
  for (int i = 0; i < 6; ++i) given.push_back(pool.take(stop.get_token()).value());
  CHECK(given == std::vector<std::size_t>{0, 1, 2, 0, 1, 2});
  // Full: the seventh waits until one comes back, and gets that one's place.
  auto seventh = std::async(std::launch::async, [&] { return pool.take(stop.get_token()).value(); });
  pool.give_back(1);
  CHECK(seventh.get() == 1);
}

TEST_CASE("a broken GPU gets nothing more, and with all broken the reason is told") {
  LanePool pool(2, 1);
  const std::stop_source stop;
  REQUIRE(pool.take(stop.get_token()).value() == 0);
  pool.mark_broken(0, "probe returned other bytes");
  pool.give_back(0);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(pool.take(stop.get_token()).value() == 1);
    pool.give_back(1);
  }
  // Who waits for a place on the last one learns that it broke.
  REQUIRE(pool.take(stop.get_token()).value() == 1);
  auto waiting = std::async(std::launch::async, [&] { return pool.take(stop.get_token()); });
  pool.mark_broken(1, "worker cannot be started");
  const auto none = waiting.get();
  REQUIRE_FALSE(none);
  CHECK(none.error().kind == ErrorKind::Unavailable);
  CHECK(none.error().message.find("worker cannot be started") != std::string::npos);
}

TEST_CASE("a GPU that dies costs its share and no more: its candidates move on, the others go on") {
  LanePool pool(3, 2);
  const std::stop_source stop;
  std::atomic<int> on_dead{0}, judged{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto verdict = pool.judge<std::size_t>(stop.get_token(), [&](std::size_t lane) -> Result<std::size_t> {
          if (lane == 1 && ++on_dead > 2) return fail(ErrorKind::Unavailable, "fell off the bus", broken_gpu(1));
          return lane;
        });
        if (verdict) ++judged;
      }
    });
  threads.clear();
  CHECK(judged == 120);
  // Two were judged there before it died; at most the two that it had at once found it dead.
  CHECK(on_dead <= 4);
  // An error that is not the GPU's is the candidate's own, and breaks nothing.
  const auto own = pool.judge<int>(stop.get_token(), [](std::size_t) -> Result<int> { return fail(ErrorKind::Cancelled, "stopped"); });
  REQUIRE_FALSE(own);
  CHECK(own.error().kind == ErrorKind::Cancelled);
  CHECK(pool.judge<int>(stop.get_token(), [](std::size_t) { return Result<int>(1); }).value() == 1);
}

TEST_CASE("a GPU that lacks something for a while keeps its place: its candidate moves, and it rests for the next few") {
  LanePool pool(2, 1);
  const std::stop_source stop;
  bool full = true;
  std::vector<std::size_t> asked;
  const std::function<Result<std::size_t>(std::size_t)> on = [&](std::size_t lane) -> Result<std::size_t> {
    asked.push_back(lane);
    if (lane == 0 && full) return fail(ErrorKind::Unavailable, "no memory");
    return lane;
  };
  CHECK(pool.judge<std::size_t>(stop.get_token(), on).value() == 1);
  CHECK(asked == std::vector<std::size_t>{0, 1});
  full = false;
  std::vector<std::size_t> next;
  for (int i = 0; i < 10; ++i) next.push_back(pool.judge<std::size_t>(stop.get_token(), on).value());
  CHECK(next == std::vector<std::size_t>{1, 1, 1, 1, 1, 1, 1, 0, 0, 0});  // eight, the one that moved among them
  // With none that has it the error is the caller's, and no GPU is given up.
  const auto nowhere = pool.judge<int>(stop.get_token(), [](std::size_t) -> Result<int> { return fail(ErrorKind::Unavailable, "no memory"); });
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().message == "no memory");
  CHECK(pool.judge<int>(stop.get_token(), [](std::size_t) { return Result<int>(1); }).value() == 1);
}

TEST_CASE("the only GPU is not given up: its error is the caller's, who may try again") {
  LanePool pool(1, 1);
  const std::stop_source stop;
  const auto failed = pool.judge<int>(stop.get_token(), [](std::size_t) -> Result<int> { return fail(ErrorKind::Unavailable, "busy"); });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "busy");
  CHECK(pool.judge<int>(stop.get_token(), [](std::size_t) { return Result<int>(1); }).value() == 1);
}

TEST_CASE("waiting for a GPU can be cancelled") {
  LanePool pool(1, 1);
  std::stop_source stop;
  REQUIRE(pool.take(stop.get_token()).value() == 0);
  auto waiting = std::async(std::launch::async, [&] { return pool.take(stop.get_token()); });
  stop.request_stop();
  const auto none = waiting.get();
  REQUIRE_FALSE(none);
  CHECK(none.error().kind == ErrorKind::Cancelled);
}

TEST_CASE("many threads: never more than lanes times depth at once") {
  LanePool pool(2, 2);
  const std::stop_source stop;
  std::mutex mutex;
  std::vector<int> running(2);
  int most = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const std::size_t lane = pool.take(stop.get_token()).value();
        {
          const std::lock_guard lock(mutex);
          most = std::max(most, ++running[lane]);
        }
        std::this_thread::yield();
        {
          const std::lock_guard lock(mutex);
          --running[lane];
        }
        pool.give_back(lane);
      }
    });
  }
  threads.clear();
  CHECK(most <= 2);
  CHECK(running == std::vector<int>{0, 0});
}

TEST_CASE("how many candidates a GPU has at once follows the processors of the machine") {
  CHECK(candidates_per_gpu(2, 1) == 1);
  CHECK(candidates_per_gpu(4, 1) == 2);
  CHECK(candidates_per_gpu(8, 1) == 3);
  CHECK(candidates_per_gpu(128, 1) == 3);
  CHECK(candidates_per_gpu(16, 4) == 2);
  CHECK(candidates_per_gpu(28, 4) == 3);
  CHECK(candidates_per_gpu(8, 8) == 1);
  CHECK(candidates_per_gpu(0, 0) == 1);  // unknown
}
