// Streamable HTTP of MCP on one path, both eras: sessions, resumable streams and the GET stream up to 2025-11-25; one request, one stream,
// headers that mirror the body in 2026-07-28.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/http/http_server.h"
#include "server/protocol/server.h"

namespace amk::http {

struct McpOptions {
  int max_sessions = 1000;                      // the longest unused one makes room
  std::chrono::seconds session_idle{3600};      // without request or stream
  std::chrono::milliseconds stream_after{100};  // a request that is not answered by then gets an event stream
  int max_streams = 512;                        // event streams at a time: more are refused with 503
};

class McpEndpoint : public std::enable_shared_from_this<McpEndpoint> {
 public:
  McpEndpoint(std::shared_ptr<mcp::Server> server, McpOptions options = {});
  ~McpEndpoint();

  // For requests to the endpoint's path, admitted already. Does not block.
  void handle(const Request& request, const std::shared_ptr<Exchange>& exchange);

  int sessions() const;
  int streams() const;
  // Ends every session.
  void close();

  struct HttpSession;
  class StreamCount;

 private:
  void post(const Request& request, const std::shared_ptr<Exchange>& exchange);
  void post_modern(const Request& request, Json message, const std::shared_ptr<Exchange>& exchange);
  void post_legacy(const Request& request, Json message, const std::shared_ptr<Exchange>& exchange);
  void get(const Request& request, const std::shared_ptr<Exchange>& exchange);
  void remove(const Request& request, const std::shared_ptr<Exchange>& exchange);

  std::shared_ptr<HttpSession> find(const std::string& id);
  std::shared_ptr<HttpSession> open_session();
  void forget_idle();
  void forget_answers();

  const std::shared_ptr<mcp::Server> server_;
  const McpOptions options_;
  const std::shared_ptr<StreamCount> streams_;
  const std::shared_ptr<std::atomic<std::size_t>> kept_ = std::make_shared<std::atomic<std::size_t>>(0);  // bytes of streams
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<HttpSession>> sessions_;
};

// Why the headers of a 2026-07-28 request do not fit its body; empty: they do. `schema` of the called tool, for x-mcp-header; may be null.
std::string header_mismatch(const Request& request, const Json& message, const Json* schema);

}  // namespace amk::http
