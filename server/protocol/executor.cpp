#include "server/protocol/executor.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace amk::mcp {

struct Executor::Impl {
  // A thread that finds no work for this long ends, unless it is the last: bursts are rare, memory is not free.
  static constexpr std::chrono::seconds kIdleTime{5};

  const int max_threads;
  std::mutex mutex;
  std::condition_variable work_ready, thread_ended;
  std::deque<std::function<void()>> queue;
  int threads = 0, idle = 0;
  bool stopping = false;

  explicit Impl(int n) : max_threads(n < 1 ? 1 : n) {}

  void loop() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      const bool woke = work_ready.wait_for(lock, kIdleTime, [&] { return stopping || !queue.empty(); });
      --idle;
      if (stopping || (!woke && threads > 1)) break;
      if (!woke) continue;
      std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
      work = nullptr;  // captured objects die outside the lock
      lock.lock();
    }
    --threads;
    // Notified under the lock: the waiter may destroy this object as soon as it sees threads == 0.
    thread_ended.notify_all();
  }
};

Executor::Executor(int max_threads) : impl_(std::make_unique<Impl>(max_threads)) {}
Executor::~Executor() { stop(); }

bool Executor::submit(std::function<void()> work) {
  std::lock_guard lock(impl_->mutex);
  if (impl_->stopping) return false;
  impl_->queue.push_back(std::move(work));
  if (static_cast<std::size_t>(impl_->idle) < impl_->queue.size() && impl_->threads < impl_->max_threads) {
    ++impl_->threads;
    try {
      std::thread([impl = impl_.get()] { impl->loop(); }).detach();
    } catch (const std::exception&) {
      // Out of threads or memory: the ones that exist take the work, if there are any.
      if (--impl_->threads == 0) {
        impl_->queue.pop_back();
        return false;
      }
    }
  }
  impl_->work_ready.notify_one();
  return true;
}

void Executor::stop() {
  std::deque<std::function<void()>> dropped;
  std::unique_lock lock(impl_->mutex);
  impl_->stopping = true;
  dropped.swap(impl_->queue);
  impl_->work_ready.notify_all();
  impl_->thread_ended.wait(lock, [&] { return impl_->threads == 0; });
  lock.unlock();
}

}  // namespace amk::mcp
