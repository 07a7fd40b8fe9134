// Data-parallel loops over a fixed set of worker threads. What a loop computes must not depend on how it is split: callers give every
// output element to exactly one index, so results are the same bits for any thread count.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace amk {

// `threads` as given, or the number of CPUs this process may run on when 0 or less; at least 1, at most 256.
int resolve_threads(int threads);

// Not thread-safe: one loop at a time. The calling thread is one of the workers; a pool of one starts no thread.
// Workers sleep between loops. If the system refuses a thread, the pool works with fewer.
class ThreadPool {
 public:
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  // Calls body(begin, end) for disjoint ranges that cover [0, count), each at most `grain` long (grain >= 1), and returns when all are
  // done. Runs inline when one range covers everything. `body` must not throw and must not call back into this pool.
  void for_ranges(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace amk
