// The protocol engine, both eras in one: revisions with an initialize handshake (2024-11-05 … 2025-11-25, "legacy") and the
// stateless one (2026-07-28, "modern"). A Server holds what all peers share; a Session is one peer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "server/protocol/definition.h"
#include "server/protocol/transport.h"

namespace amk::mcp {

// Where messages for a peer go. send() is called from any thread, several at a time, keeps the order of calls that follow each other,
// and should not block on the peer.
class Outlet {
 public:
  virtual ~Outlet() = default;
  virtual void send(const Json& message) = 0;
  // Lets go of the connection, where messages can be fetched later by another: RequestContext::release_stream().
  virtual void release() {}
  // A request whose reply was to come here was cancelled: it gets none.
  virtual void dropped() {}
};

class Session;

// Thread-safe. Owns the threads that run handlers (bounded: max_threads) and one timer thread.
class Server {
 public:
  struct Options {
    int max_threads = 128;              // handlers running at a time over all peers; more wait their turn
    int max_requests_per_session = 64;  // in flight; more are answered with an error
    std::size_t max_message_bytes = 16u << 20;
    LogLine log;  // may be empty
  };
  explicit Server(ServerDefinition definition);
  Server(ServerDefinition definition, Options options);
  ~Server();  // cancels what runs and waits for the handlers
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const ServerDefinition& definition() const;
  const Options& options() const;

  // A new peer. The session keeps the outlet. After the server is gone it answers nothing any more.
  std::shared_ptr<Session> open(std::shared_ptr<Outlet> outlet);

  // A resource changed: tells the sessions that subscribed to it.
  void resource_updated(const std::string& uri);

  // The list of "tools", "resources" or "prompts" changed: tells the sessions that want to know. Only for lists that the definition
  // declares as changing.
  void list_changed(const std::string& list);

  // Runs a tool without a peer, through the same coercion, validation and checks as a request: the CLI's --no-daemon.
  // NotFound if there is no such tool.
  Result<Json> call_tool(const std::string& name, const Json& args, RequestContext& context) const;

  // Reads a resource without a peer.
  Result<ResourceContent> read_resource(const std::string& uri, RequestContext& context) const;

  // Ends subscriptions politely, cancels running requests. Called by the destructor as well.
  void shut_down();

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;  // sessions hold it as well
};

// One peer: on stdio and sockets a connection, on HTTP a legacy session or a single modern request. Thread-safe.
class Session : public std::enable_shared_from_this<Session> {
 public:
  virtual ~Session() = default;

  // One message as received (a JSON text). Replies go to `outlet` (else to the session's own), possibly before this returns.
  virtual void receive(std::string_view text, std::shared_ptr<Outlet> outlet = nullptr) = 0;
  virtual void receive(Json message, std::shared_ptr<Outlet> outlet = nullptr) = 0;

  // What the framing layer refused (over-long line): answered with a parse error.
  virtual void refuse(const Error& error) = 0;

  // The client's working directory, where the transport knows it: RequestContext::working_directory().
  virtual void set_working_directory(std::string path) = 0;

  // The peer is gone: cancels its requests and subscriptions; nothing is sent any more. Idempotent.
  virtual void close() = 0;

  // Cancels the requests whose replies go to `outlet` (its stream was closed).
  virtual void cancel(const Outlet* outlet) = 0;

  virtual int requests_in_flight() const = 0;
  virtual bool initialized() const = 0;              // a legacy handshake was made
  virtual std::string protocol_version() const = 0;  // negotiated legacy revision, else empty
};

// Serves one peer until its stream ends; waits up to `drain_s` for requests in flight.
void serve(Server& server, Transport& transport, double drain_s = 0.3);

}  // namespace amk::mcp
