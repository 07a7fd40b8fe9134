// Which of several equal GPUs takes the next candidate. Each takes several at once: one has the GPU, the others are built meanwhile (a judge locks
// the GPU only after building). Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/evaluator/worker_link.h"

namespace amk {

class LanePool {
 public:
  // `lanes` GPUs, each with at most `depth` candidates at once. Both at least 1.
  LanePool(std::size_t lanes, std::size_t depth);

  // The unbroken lane with the fewest candidates, the first of equals, those that rest last; none of `without` (a flag a lane, or empty). Waits while
  // all are full. Cancelled when `stop` fires; Unavailable, with the last reason given to mark_broken(), when all are broken or in `without`.
  Result<std::size_t> take(const std::stop_token& stop, const std::vector<bool>& without = {});
  void give_back(std::size_t lane);
  // Left out from now on; candidates that it has are given back as usual.
  void mark_broken(std::size_t lane, std::string why);
  // For the next kRest candidates the others come first: what it lacks (memory, a process) may be there again by then.
  void let_rest(std::size_t lane);

  // Judges one candidate on a lane of the pool's choice. Where it cannot be judged for want of something (Unavailable), it moves to another GPU, and
  // with none left the error is the caller's, who decides whether to try again. A GPU that is broken (gpu_is_broken) gets nothing more.
  template <class T>
  Result<T> judge(const std::stop_token& stop, const std::function<Result<T>(std::size_t lane)>& on) {
    std::vector<bool> tried(lanes_.size(), false);
    std::optional<Result<T>> wanting;
    for (;;) {
      const auto lane = take(stop, tried);
      if (!lane && wanting && lane.error().kind == ErrorKind::Unavailable) return std::move(*wanting);
      if (!lane) return tl::unexpected<Error>(lane.error());
      Result<T> judged = on(*lane);
      if (judged || judged.error().kind != ErrorKind::Unavailable || lanes_.size() == 1) {
        give_back(*lane);
        return judged;
      }
      tried[*lane] = true;
      if (gpu_is_broken(judged.error())) {
        mark_broken(*lane, judged.error().message);
      } else {
        let_rest(*lane);
        wanting = std::move(judged);
      }
      give_back(*lane);
    }
  }

 private:
  struct Lane {
    std::size_t candidates = 0, rest = 0;  // rest: candidates for which others come first
    bool broken = false;
  };
  const std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable_any freed_;
  std::vector<Lane> lanes_;
  std::string why_broken_;
};

// Candidates a GPU should have at once on a machine with so many processors. A turn on the GPU takes 0.9 s (smollm2-135m, H200); a build that is not
// cached 2 to 2.7 s of one processor, every third to fifth one is; the oracle's answer 0.1 s of all. So two processors a candidate, and three at
// most: one on the GPU, two that are built meanwhile. 1 to 3.
std::size_t candidates_per_gpu(std::size_t processors, std::size_t gpus);

}  // namespace amk
