#include "orchestrator/service/late_strategy.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "core/base/unexpected.h"

namespace amk {

LateStrategy::LateStrategy(const SearchSpace& space, std::vector<Point> start, std::function<Made(const std::stop_token&)> make)
    : archive_(space), start_(std::move(start)) {
  const auto run = [this, make = std::move(make)](const std::stop_token& stop) {
    try {
      result_ = make(stop);
    } catch (const std::exception& e) {  // no memory: nothing may leave a thread
      result_ = Made(unexpected_failure("making the search", e));
    }
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
  };
  try {
    maker_ = std::jthread(run);
  } catch (const std::exception&) {  // no thread to be had
    run({});
  }
}

bool LateStrategy::wait(const std::stop_token& stop) const {
  std::unique_lock lock(mutex_);
  return changed_.wait(lock, stop, [this] { return done_; });
}

std::optional<Point> LateStrategy::next_start() const {
  const auto at = std::find_if(start_.begin(), start_.end(), [this](const Point& p) { return archive_.valid(p) && !archive_.known(p); });
  return at == start_.end() ? std::nullopt : std::optional(*at);
}

Status LateStrategy::become() {
  wait({});
  if (!*result_) return tl::unexpected<Error>(result_->error());
  made_ = std::move(**result_);
  for (const auto& event : before_) {
    if (event)
      made_->tell(*event);
    else
      (void)made_->ask(1);  // its start points, as they were asked here
  }
  before_.clear();
  return {};
}

Result<std::optional<Point>> LateStrategy::ask() {
  if (made_ == nullptr) {
    if (auto point = next_start()) {
      archive_.mark_asked(*point);
      before_.emplace_back();
      return point;
    }
    AMK_CHECK(become());
  }
  const std::vector<Point> points = made_->ask(1);
  return points.empty() ? std::optional<Point>() : points.front();
}

void LateStrategy::tell(const Observation& observation) {
  if (made_ != nullptr) return made_->tell(observation);
  archive_.record(observation);
  before_.emplace_back(observation);
}

}  // namespace amk
