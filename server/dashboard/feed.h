// Live state for any number of pages: one thread looks, and only while somebody watches; what changed goes to all as a server-sent event.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/http/http_server.h"

namespace amk::dashboard {

class Feed {
 public:
  // `state` gives the text of the event's data; called on the feed's thread, never at the same time twice. Equal texts are sent once.
  Feed(std::function<std::string()> state, std::chrono::milliseconds every, std::size_t max_streams);
  ~Feed();  // finishes the streams
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  // Answers with an event stream: the present state at once, then every change. 503 beyond max_streams.
  void attach(const std::shared_ptr<http::Exchange>& exchange);
  std::size_t streams() const;

 private:
  struct Shared;
  void loop();

  const std::function<std::string()> state_;
  const std::chrono::milliseconds every_;
  const std::size_t max_streams_;
  const std::shared_ptr<Shared> shared_;  // with the closers of exchanges, which may outlive this
  std::thread thread_;                    // last: it uses all of the above
};

}  // namespace amk::dashboard
