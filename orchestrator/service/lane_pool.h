// Which of several equal GPUs takes the next candidate. Each takes several at once: one has the GPU, the others are built meanwhile (a judge locks
// the GPU only after building). Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace amk {

class LanePool {
 public:
  // `lanes` GPUs, each with at most `depth` candidates at once. Both at least 1.
  LanePool(std::size_t lanes, std::size_t depth);

  // The unbroken lane with the fewest candidates, the first of equals; waits while all are full. Cancelled when `stop` fires; Unavailable, with the
  // last reason given to mark_broken(), when all are broken.
  Result<std::size_t> take(const std::stop_token& stop);
  void give_back(std::size_t lane);
  // Left out from now on; candidates that it has are given back as usual.
  void mark_broken(std::size_t lane, std::string why);

  // Judges one candidate on a lane of the pool's choice. A GPU that breaks (Unavailable: it failed a known-good probe, or its worker does not start)
  // costs its share: the candidate moves to another one. With one GPU the error is the caller's, who decides whether to try again.
  template <class T>
  Result<T> judge(const std::stop_token& stop, const std::function<Result<T>(std::size_t lane)>& on) {
    for (;;) {
      AMK_TRY(lane, take(stop));
      Result<T> judged = on(lane);
      const bool broken = !judged && judged.error().kind == ErrorKind::Unavailable && lanes_.size() > 1;
      if (broken) mark_broken(lane, judged.error().message);
      give_back(lane);
      if (!broken) return judged;
    }
  }

 private:
  struct Lane {
    std::size_t candidates = 0;
    bool broken = false;
  };
  const std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable_any freed_;
  std::vector<Lane> lanes_;
  std::string why_broken_;
};

// Candidates a GPU should have at once on a machine with so many processors: a build (1.2 s for llama-3.2-1b on 16 processors) must be over when the
// candidate before it leaves the GPU (2 s), and keeps one processor busy beside the oracle's and the comparison's threads. 1 to 3.
std::size_t candidates_per_gpu(std::size_t processors, std::size_t gpus);

}  // namespace amk
