// Functions to be called later, on one thread. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace amk::mcp {

class Timer {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Timer();
  ~Timer();  // stop()
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Calls `work` once at `when` or soon after. It must be brief and must not throw. The thread starts with the first call.
  std::uint64_t at(Time when, std::function<void()> work);
  // Forgets it if it has not begun. Does not wait for one that has.
  void cancel(std::uint64_t id);
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace amk::mcp
