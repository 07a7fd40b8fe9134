#include "server/protocol/timer.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace amk::mcp {

struct Timer::Impl {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> due;
  std::unordered_map<std::uint64_t, Time> when_of;
  std::uint64_t next_id = 1;
  bool stopping = false;
  std::thread thread;

  void loop() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      if (due.empty()) {
        changed.wait(lock, [&] { return stopping || !due.empty(); });
        continue;
      }
      const auto first = due.begin();
      const Time when = first->first.first;
      if (std::chrono::steady_clock::now() < when) {
        changed.wait_until(lock, when);
        continue;
      }
      std::function<void()> work = std::move(first->second);
      when_of.erase(first->first.second);
      due.erase(first);
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
  }
};

Timer::Timer() : impl_(std::make_unique<Impl>()) {}
Timer::~Timer() { stop(); }

std::uint64_t Timer::at(Time when, std::function<void()> work) {
  std::lock_guard lock(impl_->mutex);
  const std::uint64_t id = impl_->next_id++;
  if (impl_->stopping) return id;
  impl_->due.emplace(std::pair{when, id}, std::move(work));
  impl_->when_of.emplace(id, when);
  if (!impl_->thread.joinable()) try {
      impl_->thread = std::thread([impl = impl_.get()] { impl->loop(); });
    } catch (const std::exception&) {  // no thread to be had: the next call tries again, and what is due by then is late
    }
  impl_->changed.notify_one();
  return id;
}

void Timer::cancel(std::uint64_t id) {
  std::function<void()> dropped;  // dies outside the lock
  std::lock_guard lock(impl_->mutex);
  const auto it = impl_->when_of.find(id);
  if (it == impl_->when_of.end()) return;
  const auto entry = impl_->due.find({it->second, id});
  dropped = std::move(entry->second);
  impl_->due.erase(entry);
  impl_->when_of.erase(it);
}

void Timer::stop() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    impl_->changed.notify_all();
  }
  if (impl_->thread.joinable()) impl_->thread.join();
}

}  // namespace amk::mcp
