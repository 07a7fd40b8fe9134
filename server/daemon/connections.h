// The daemon's side of its Unix socket: one thread, any number of peers, no peer can block another. Internal to this folder.
//
// Wire: newline-delimited JSON. The daemon speaks first, {"amk_daemon": {"build", "pid", "version"}}, so that a client knows that it was
// accepted and by whom; the client may answer with {"amk_client": {"cwd": …}}, {"amk_client": {"retire": BUILD}} or {"amk_client": {"control":
// REQUEST}}; the rest is MCP.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/protocol/framing.h"
#include "server/protocol/server.h"

namespace amk::daemon {

class PeerOutlet;

class Connections {
 public:
  struct Options {
    Json hello;  // what amk_daemon says
    int max_connections = 512;
    std::size_t max_unsent_bytes = 64u << 20;  // a peer that asked for more than that before it read is cut off
    std::function<Json(const Json&)> control;  // answers a control request: {"result": …} or {"error": …}
    std::function<bool()> may_retire;          // asked when a client of another build is the only one
  };
  // Takes over `listen_fd` (non-blocking).
  Connections(mcp::Server& server, int listen_fd, Options options);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // Readable when there is work: put it into an outer poll.
  int poll_fd() const { return epoll_fd_; }
  // Handles what is ready, without waiting.
  void run_once();
  // No new peers; those in the backlog are dropped unanswered, so that they try another daemon.
  void stop_listening();
  // Lets what is buffered leave, for at most `limit_ms`.
  void flush(int limit_ms);

  int count() const { return static_cast<int>(peers_.size()); }
  bool retired() const { return retired_; }

 private:
  struct Peer {
    int fd;
    mcp::LineFramer framer;
    std::shared_ptr<PeerOutlet> outlet;
    std::shared_ptr<mcp::Session> session;
    std::shared_ptr<mcp::Outlet> answers;  // its requests hold it as well; null once it has sent its last
    bool greeted = false;                  // its first line was seen
    bool choked = false;                   // it does not read, and is not read until it does
    bool unfinished = false;               // its turn ended before its lines did
  };
  void accept_all();
  void look_at_all();
  void serve(Peer& peer);
  void read_from(Peer& peer);
  void take(Peer& peer, Result<std::string> line);
  void sent_its_last(Peer& peer);
  bool handle_greeting(Peer& peer, const std::string& line);
  void drop(int fd);
  std::size_t buffered_bytes() const;  // of lines that have not ended, of all peers
  void add(int fd, std::uint32_t events);
  void watch(const Peer& peer);

  mcp::Server& server_;
  const Options options_;
  int listen_fd_, epoll_fd_, wake_fd_;
  bool retired_ = false;
  std::map<int, Peer> peers_;
};

}  // namespace amk::daemon
