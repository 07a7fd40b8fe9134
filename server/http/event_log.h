// Server-sent events that can be read again: what one stream of a session said, kept until the client has surely seen it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http/http_server.h"

namespace amk::http {

// One stream. It outlives its connections: what is said while nobody listens waits, within bounds.
class EventLog {
 public:
  // `name` is part of every event's id and unique in the session.
  // `kept`: bytes that all logs together hold; null: nobody counts.
  explicit EventLog(std::string name, std::size_t max_events = 512, std::size_t max_bytes = 4u << 20,
                    std::shared_ptr<std::atomic<std::size_t>> kept = nullptr);
  ~EventLog();

  // Sends an event on the current connection, if any, and keeps it. `last`: the stream is complete with it.
  void append(const std::string& data, bool last = false);
  // From now on events go to `exchange`, whose stream is started, after those with numbers above `last_seen` are said again (nullopt:
  // those that went to no connection yet). With `prime` an empty event with an id comes first, so that even a stream without news can be
  // resumed. A former connection is finished.
  void attach(std::shared_ptr<Exchange> exchange, std::optional<std::uint64_t> last_seen, bool prime);
  // Its connection closed.
  void detach(const Exchange* exchange);
  // Ends the connection but not the stream: the client comes back with the last id.
  void release();
  // Nothing more will come, not even the reply.
  void end();
  bool attached() const;
  bool complete() const;
  std::size_t bytes() const;

 private:
  struct Event {
    std::uint64_t number;
    std::string data;
  };
  std::string text_of(const Event& e) const;
  void count(std::size_t added, std::size_t removed);

  const std::string name_;
  const std::size_t max_events_, max_bytes_;
  const std::shared_ptr<std::atomic<std::size_t>> kept_;
  mutable std::mutex mutex_;
  std::deque<Event> events_;
  std::size_t bytes_ = 0;
  std::uint64_t next_ = 1, delivered_ = 0;
  bool complete_ = false;
  std::shared_ptr<Exchange> exchange_;
};

// "name-number" taken apart; false if it is not of that form.
bool parse_event_id(const std::string& id, std::string& name, std::uint64_t& number);
// The text of one event; `id` may be empty.
std::string event_text(const std::string& id, const std::string& data);

}  // namespace amk::http
