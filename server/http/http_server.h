// A small HTTP/1.1 server for this machine's own clients: bounded in every direction, one thread, no thread per client.
// The library behind it is visible in beast_* only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace amk::http {

struct Request {
  std::string method;                                        // "GET", …
  std::string path;                                          // before '?', as sent (not decoded)
  std::string query;                                         // after '?'
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, values trimmed
  std::string body;

  // The first header of this (lower-case) name; nullptr if there is none.
  const std::string* header(std::string_view name) const;
  int count(std::string_view name) const;
};

struct Reply {
  int status = 200;
  std::string content_type;  // empty: none
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// One request that is being answered. Thread-safe; outlives its connection. One of reply() and start_events() takes effect, once.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void reply(Reply reply) = 0;
  // An answer of type text/event-stream: the headers leave at once; comments keep it alive.
  virtual void start_events(std::vector<std::pair<std::string, std::string>> headers) = 0;
  // Complete events, each ended by an empty line. A client that does not read them is cut off at a bound.
  virtual void send_events(std::string text) = 0;
  virtual void finish_events() = 0;
  // Called once, on the server's thread, if the client goes away before the answer is complete; at once if it has already.
  virtual void on_closed(std::function<void()> call) = 0;
  // Called on the server's thread after this time, unless the answer is complete or the client gone.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> call) = 0;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Sees the request before its body is read; a reply refuses it and ends the connection.
  virtual std::optional<Reply> admit(const Request& head) = 0;
  // On the server's thread: must not block.
  virtual void handle(Request request, std::shared_ptr<Exchange> exchange) = 0;
};

struct Options {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any
  int max_connections = 1024;
  std::size_t max_header_bytes = 16u << 10;
  std::size_t max_body_bytes = 16u << 20;
  std::size_t max_bodies_bytes = 128u << 20;         // of all that are arriving
  std::size_t max_unsent_bytes = 16u << 20;          // of one connection
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of a request to the end of its headers
  std::chrono::milliseconds body_timeout{30'000};
  std::chrono::milliseconds write_timeout{30'000};  // without any progress
  std::chrono::milliseconds idle_timeout{60'000};   // between requests
  std::chrono::milliseconds keep_alive{10'000};     // between comments on a quiet event stream
  std::chrono::milliseconds half_closed{1'000};     // from the end of what a client sends to the beginning of his answer
};

class Server {
 public:
  virtual ~Server() = default;  // stop()
  // Listens and serves on a thread of its own. Unavailable if the address cannot be bound.
  static Result<std::unique_ptr<Server>> start(Options options, std::shared_ptr<Handler> handler);
  virtual std::uint16_t port() const = 0;
  virtual int connections() const = 0;
  // Closes everything; open event streams are finished first if they drain within a moment.
  virtual void stop() = 0;
};

// "Not Found" for 404, …
std::string_view reason(int status);

}  // namespace amk::http
