#include "server/dashboard/feed.h"

#include <algorithm>

#include "server/http/access.h"

namespace amk::dashboard {

struct Feed::Shared {
  struct Stream {
    std::shared_ptr<http::Exchange> exchange;
    std::uint64_t seen = 0;  // number of the state that it was sent last
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Stream> streams;
  bool stopping = false;
};

Feed::Feed(std::function<std::string()> state, std::chrono::milliseconds every, std::size_t max_streams)
    : state_(std::move(state)), every_(every), max_streams_(max_streams), shared_(std::make_shared<Shared>()), thread_([this] { loop(); }) {}

Feed::~Feed() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
  }
  thread_.join();
  const std::lock_guard lock(shared_->mutex);
  for (const Shared::Stream& stream : shared_->streams) stream.exchange->finish_events();
}

std::size_t Feed::streams() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->streams.size();
}

void Feed::attach(const std::shared_ptr<http::Exchange>& exchange) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->stopping || shared_->streams.size() >= max_streams_) {
      http::Reply busy = http::text_reply(503, "too many pages are watching");
      busy.headers.emplace_back("Retry-After", "5");
      return exchange->reply(std::move(busy));
    }
    exchange->start_events({});
    exchange->send_events("retry: 1000\n\n");
    shared_->streams.push_back({exchange, 0});
    shared_->changed.notify_all();
  }
  // The exchange owns this closure: a strong reference in it would never die.
  exchange->on_closed([shared = std::weak_ptr(shared_), closed = exchange.get()] {
    const auto alive = shared.lock();
    if (!alive) return;
    const std::lock_guard lock(alive->mutex);
    std::erase_if(alive->streams, [closed](const Shared::Stream& s) { return s.exchange.get() == closed; });
  });
}

void Feed::loop() {
  std::string last;
  std::uint64_t number = 0;
  std::unique_lock lock(shared_->mutex);
  while (!shared_->stopping) {
    if (shared_->streams.empty()) {
      shared_->changed.wait(lock, [this] { return shared_->stopping || !shared_->streams.empty(); });
      continue;
    }
    lock.unlock();
    std::string text = state_();
    if (text != last || number == 0) {
      ++number;
      last = std::move(text);
    }
    const std::string event = "event: state\nid: " + std::to_string(number) + "\ndata: " + last + "\n\n";
    lock.lock();
    for (Shared::Stream& stream : shared_->streams)
      if (stream.seen != number) {
        stream.seen = number;
        stream.exchange->send_events(event);
      }
    // A page that comes meanwhile need not wait for the next look.
    const auto behind = [&] {
      return std::any_of(shared_->streams.begin(), shared_->streams.end(), [&](const auto& s) { return s.seen != number; });
    };
    shared_->changed.wait_for(lock, every_, [&] { return shared_->stopping || behind(); });
  }
}

}  // namespace amk::dashboard
