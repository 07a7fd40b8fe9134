#include "orchestrator/service/lane_pool.h"

#include <algorithm>

namespace amk {

LanePool::LanePool(std::size_t lanes, std::size_t depth) : depth_(depth), lanes_(lanes) {}

Result<std::size_t> LanePool::take(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::size_t best = 0;
  bool any = false;
  const auto found = [&] {
    any = false;
    best = lanes_.size();
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].broken) continue;
      any = true;
      if (lanes_[i].candidates < depth_ && (best == lanes_.size() || lanes_[i].candidates < lanes_[best].candidates)) best = i;
    }
    return !any || best != lanes_.size();
  };
  if (!freed_.wait(lock, stop, found)) return fail(ErrorKind::Cancelled, "cancelled while waiting for a GPU");
  if (!any)
    return fail(ErrorKind::Unavailable, "no GPU of this machine is usable any more: " + why_broken_ + " (restart the daemon once it is mended)");
  ++lanes_[best].candidates;
  return best;
}

void LanePool::give_back(std::size_t lane) {
  {
    const std::lock_guard lock(mutex_);
    --lanes_[lane].candidates;
  }
  freed_.notify_all();
}

void LanePool::mark_broken(std::size_t lane, std::string why) {
  {
    const std::lock_guard lock(mutex_);
    lanes_[lane].broken = true;
    why_broken_ = std::move(why);
  }
  freed_.notify_all();
}

std::size_t candidates_per_gpu(std::size_t processors, std::size_t gpus) {
  constexpr std::size_t kProcessorsEach = 4, kMost = 3;
  return std::clamp<std::size_t>(processors / (kProcessorsEach * std::max<std::size_t>(gpus, 1)), 1, kMost);
}

}  // namespace amk
