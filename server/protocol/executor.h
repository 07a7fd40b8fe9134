// Threads for handlers: grows on demand up to a bound, shrinks when idle; work beyond the bound waits in order. Thread-safe.
#pragma once

#include <functional>
#include <memory>

namespace amk::mcp {

class Executor {
 public:
  explicit Executor(int max_threads);
  ~Executor();  // stop()
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // False after stop(): the work is dropped. `work` must not throw.
  bool submit(std::function<void()> work);

  // Drops what has not begun and waits for what has. Must not be called from a submitted function.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace amk::mcp
