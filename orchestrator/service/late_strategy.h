// A strategy that is made beside the first evaluation: its prior takes a second or more of all cores, and what is tried first (the incumbent, the
// default) needs none. It asks and is told exactly as the strategy that it becomes would. Not thread-safe, but for wait().
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "orchestrator/strategy/archive.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {

class LateStrategy {
 public:
  using Made = Result<std::unique_ptr<Strategy>>;
  // `make` begins at once, in a thread of its own; it makes a strategy of this space whose options have these start points. Asked to stop, it may
  // give up with any error: nobody waits for it then. The space and what `make` refers to outlive this object.
  LateStrategy(const SearchSpace& space, std::vector<Point> start, std::function<Made(const std::stop_token&)> make);

  // Whether the next ask needs the strategy. wait() returns true once it is there, or could not be made; false: `stop` was asked for first, and the
  // strategy may take long yet. Any thread may call it.
  bool must_wait() const { return made_ == nullptr && !next_start(); }
  bool wait(const std::stop_token& stop) const;
  bool there() const { return made_ != nullptr; }
  // The next point; empty: the space is exhausted. Waits, if need be. The error is make()'s.
  Result<std::optional<Point>> ask();
  void tell(const Observation& observation);

 private:
  std::optional<Point> next_start() const;
  Status become();

  Archive archive_;  // what was asked and told before the strategy was there …
  std::vector<Point> start_;
  std::vector<std::optional<Observation>> before_;  // … in order; empty: a point was asked
  std::unique_ptr<Strategy> made_;
  std::optional<Made> result_;  // the maker's, until it says that it is done
  mutable std::mutex mutex_;    // of done_
  mutable std::condition_variable_any changed_;
  bool done_ = false;
  std::jthread maker_;  // last: stopped and joined first
};

}  // namespace amk
