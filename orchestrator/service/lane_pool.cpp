#include "orchestrator/service/lane_pool.h"

#include <algorithm>
#include <utility>

namespace amk {

LanePool::LanePool(std::size_t lanes, std::size_t depth) : depth_(depth), lanes_(lanes) {}

Result<std::size_t> LanePool::take(const std::stop_token& stop, const std::vector<bool>& without) {
  std::unique_lock lock(mutex_);
  std::size_t best = 0;
  bool any = false;
  const auto found = [&] {
    any = false;
    best = lanes_.size();
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = lanes_[i];
      if (lane.broken || (i < without.size() && without[i])) continue;
      any = true;
      if (lane.candidates >= depth_) continue;
      const auto order = [](const Lane& l) { return std::pair(l.rest > 0, l.candidates); };
      if (best == lanes_.size() || order(lane) < order(lanes_[best])) best = i;
    }
    return !any || best != lanes_.size();
  };
  if (!freed_.wait(lock, stop, found)) return fail(ErrorKind::Cancelled, "cancelled while waiting for a GPU");
  if (!any)
    return fail(ErrorKind::Unavailable, "no GPU of this machine is usable any more: " + why_broken_ + " (restart the daemon once it is mended)");
  for (Lane& lane : lanes_)
    if (lane.rest > 0) --lane.rest;
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

void LanePool::let_rest(std::size_t lane) {
  constexpr std::size_t kRest = 8;
  const std::lock_guard lock(mutex_);
  lanes_[lane].rest = kRest;
}

std::size_t candidates_per_gpu(std::size_t processors, std::size_t gpus) {
  constexpr std::size_t kProcessorsEach = 2, kMost = 3;
  return std::clamp<std::size_t>(processors / (kProcessorsEach * std::max<std::size_t>(gpus, 1)), 1, kMost);
}

}  // namespace amk
