#include "core/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace amk {

int resolve_threads(int threads) {
  if (threads <= 0) {
    // The affinity mask, not the machine: containers and taskset narrow it.
    cpu_set_t set;
    CPU_ZERO(&set);
    threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  }
  return std::clamp(threads, 1, 256);
}

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable finished;
  std::uint64_t loop = 0;  // which loop is current: workers join each at most once
  bool open = false;       // the current loop still takes workers
  int busy = 0;            // workers inside the current loop
  bool stopping = false;

  const std::function<void(std::int64_t, std::int64_t)>* body = nullptr;
  std::int64_t count = 0;
  std::int64_t grain = 1;
  std::atomic<std::int64_t> next{0};
  std::vector<std::thread> workers;

  void drain() {
    for (;;) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(begin, std::min(begin + grain, count));
    }
  }

  void work() {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      start.wait(lock, [&] { return stopping || loop != seen; });
      if (stopping) return;
      seen = loop;
      if (!open) continue;  // woke too late: the others have finished it
      ++busy;
      lock.unlock();
      drain();
      lock.lock();
      if (--busy == 0) finished.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int wanted = resolve_threads(threads);
  for (int i = 1; i < wanted; ++i) {
    try {
      state_->workers.emplace_back([s = state_.get()] { s->work(); });
    } catch (const std::exception&) {
      break;  // a process limit: fewer workers give the same results, later
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->start.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::for_ranges(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  State& s = *state_;
  if (s.workers.empty() || count <= grain) {
    for (std::int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count));
    return;
  }
  {
    const std::lock_guard lock(s.mutex);
    s.body = &body;
    s.count = count;
    s.grain = grain;
    s.next.store(0, std::memory_order_relaxed);
    s.open = true;
    ++s.loop;
  }
  // No more of them than there are ranges for: of thirty workers that wake for four ranges most only stand in each other's way.
  const std::int64_t helpers = (count + grain - 1) / grain - 1;
  if (helpers >= static_cast<std::int64_t>(s.workers.size())) {
    s.start.notify_all();
  } else {
    for (std::int64_t i = 0; i < helpers; ++i) s.start.notify_one();
  }
  s.drain();
  std::unique_lock lock(s.mutex);
  s.open = false;  // on a busy machine a worker may not have woken yet: it is not waited for
  s.finished.wait(lock, [&] { return s.busy == 0; });
}

}  // namespace amk
