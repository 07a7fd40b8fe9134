#include "server/daemon/connections.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/parse_json.h"
#include "server/daemon/log.h"
#include "server/daemon/unix_socket.h"

namespace amk::daemon {
namespace {

constexpr std::size_t kChoked = 4u << 20;      // unsent bytes from which a peer is not read
constexpr std::chrono::milliseconds kTurn{5};  // of one peer's lines before the others'
// Lines may be long, but not everybody's at once: beyond the sum, who goes on with a large one is hung up on.
constexpr std::size_t kLargeLine = 1u << 20, kMostBuffered = 128u << 20;

}  // namespace

// Sends at once what the socket takes; the rest waits for the loop. Owns the descriptor, so that a handler that ends late
// can never write into somebody else's.
class PeerOutlet final : public mcp::Outlet {
 public:
  PeerOutlet(int fd, int wake_fd, std::size_t max_unsent) : fd_(fd), wake_fd_(wake_fd), max_unsent_(max_unsent) {}
  ~PeerOutlet() override { close(); }

  void send(const Json& message) override {
    const std::string line = canonical_dump(message) + "\n";
    std::lock_guard lock(mutex_);
    if (fd_ < 0 || overflowed_) return;
    std::string_view rest = line;
    if (unsent_.empty()) rest.remove_prefix(write_some(rest));
    if (rest.empty()) return;
    if (unsent_.size() + rest.size() > max_unsent_) {
      overflowed_ = true;
      unsent_.clear();
    } else {
      unsent_.append(rest);
    }
    wake();
  }

  // Sends on. What is still unsent.
  std::size_t flush() {
    std::lock_guard lock(mutex_);
    if (fd_ < 0 || unsent_.empty()) return 0;
    unsent_.erase(0, write_some(unsent_));
    return unsent_.size();
  }
  std::size_t unsent_bytes() const {
    std::lock_guard lock(mutex_);
    return unsent_.size();
  }
  // Nothing will be said any more but what is unsent.
  void say_no_more() {
    std::lock_guard lock(mutex_);
    said_all_ = true;
    if (fd_ >= 0) wake();
  }
  bool finished() const {
    std::lock_guard lock(mutex_);
    return said_all_ && unsent_.empty();
  }
  bool overflowed() const {
    std::lock_guard lock(mutex_);
    return overflowed_;
  }
  void close() {
    std::lock_guard lock(mutex_);
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    unsent_.clear();
  }

 private:
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_fd_, &one, sizeof one);
  }
  std::size_t write_some(std::string_view bytes) {
    ssize_t n;
    do n = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    // A broken connection shows up as a hang-up in the loop, which drops the peer.
    return n < 0 ? 0 : static_cast<std::size_t>(n);
  }

  mutable std::mutex mutex_;
  int fd_;
  const int wake_fd_;
  const std::size_t max_unsent_;
  bool overflowed_ = false, said_all_ = false;
  std::string unsent_;
};

namespace {

// Held by the peer while it sends, and by each of its requests until that is answered.
class AnswersOutlet final : public mcp::Outlet {
 public:
  explicit AnswersOutlet(std::shared_ptr<PeerOutlet> out) : out_(std::move(out)) {}
  ~AnswersOutlet() override { out_->say_no_more(); }
  void send(const Json& message) override { out_->send(message); }

 private:
  const std::shared_ptr<PeerOutlet> out_;
};

// Whether the other end is gone, rather than only done with sending.
bool hung_up(int fd) {
  pollfd p{fd, 0, 0};
  return ::poll(&p, 1, 0) > 0;
}

}  // namespace

Connections::Connections(mcp::Server& server, int listen_fd, Options options)
    : server_(server),
      options_(std::move(options)),
      listen_fd_(listen_fd),
      epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  add(listen_fd_, EPOLLIN);
  add(wake_fd_, EPOLLIN);
}

Connections::~Connections() {
  while (!peers_.empty()) drop(peers_.begin()->first);
  stop_listening();
  ::close(epoll_fd_);
  // wake_fd_ is not closed while a handler's outlet may still write to it: sessions are closed by now, and a closed outlet is silent.
  ::close(wake_fd_);
}

void Connections::add(int fd, std::uint32_t events) {
  epoll_event e{};
  e.events = events;
  e.data.fd = fd;
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &e);
}

void Connections::watch(const Peer& peer) {
  epoll_event e{};
  if (!peer.choked && peer.answers) e.events |= EPOLLIN | EPOLLRDHUP;
  if (peer.outlet->unsent_bytes() > 0) e.events |= EPOLLOUT;
  e.data.fd = peer.fd;
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, peer.fd, &e);
}

void Connections::stop_listening() {
  if (listen_fd_ >= 0) ::close(listen_fd_);
  listen_fd_ = -1;
}

void Connections::accept_all() {
  for (;;) {
    const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors: the peer waits in the backlog; without a pause this would spin.
      if (errno == EMFILE || errno == ENFILE) ::usleep(10'000);
      return;
    }
    if (!peer_is_us(fd) || count() >= options_.max_connections) {
      log_line("warning", count() >= options_.max_connections ? "connection refused: too many" : "connection refused: another user");
      ::close(fd);
      continue;
    }
    auto outlet = std::make_shared<PeerOutlet>(fd, wake_fd_, options_.max_unsent_bytes);
    outlet->send({{"amk_daemon", options_.hello}});
    auto session = server_.open(outlet);
    auto answers = std::make_shared<AnswersOutlet>(outlet);
    peers_.emplace(fd, Peer{fd, mcp::LineFramer(server_.options().max_message_bytes), std::move(outlet), std::move(session), std::move(answers)});
    add(fd, EPOLLIN | EPOLLRDHUP);
  }
}

void Connections::run_once() {
  epoll_event events[64];
  const int n = ::epoll_wait(epoll_fd_, events, 64, 0);
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (fd == listen_fd_) {
      accept_all();
      continue;
    }
    if (fd == wake_fd_) {
      look_at_all();
      continue;
    }
    const auto it = peers_.find(fd);
    if (it == peers_.end()) continue;
    Peer& peer = it->second;
    if (peer.choked && (events[i].events & (EPOLLHUP | EPOLLERR))) {
      drop(fd);
      continue;
    }
    bool readable = (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (events[i].events & EPOLLOUT) {
      const std::size_t left = peer.outlet->flush();
      if (peer.choked && left < kChoked / 2) {
        peer.choked = false;
        readable = true;  // lines that came before it was choked may be waiting
      }
      if (peer.outlet->finished()) {
        drop(fd);
        continue;
      }
      watch(peer);
    }
    if (readable && !peer.choked) serve(peer);
  }
}

void Connections::look_at_all() {
  std::uint64_t count_read;
  [[maybe_unused]] const ssize_t got = ::read(wake_fd_, &count_read, sizeof count_read);
  std::vector<int> overflowed, unfinished, finished;
  for (auto& [fd, peer] : peers_) {
    if (peer.outlet->overflowed())
      overflowed.push_back(fd);
    else if (std::exchange(peer.unfinished, false))
      unfinished.push_back(fd);
    else if (peer.outlet->finished())
      finished.push_back(fd);
    if (peer.outlet->unsent_bytes() > 0) watch(peer);
  }
  for (int fd : overflowed) {
    log_line("warning", "connection dropped: the client does not read");
    drop(fd);
  }
  for (int fd : finished) drop(fd);
  for (int fd : unfinished)
    if (const auto it = peers_.find(fd); it != peers_.end() && !it->second.choked) serve(it->second);
}

// What one peer sends must not end the daemon of all: what nobody foresaw (no memory for a message, a value of another kind where it was not looked
// at) costs that peer its connection.
void Connections::serve(Peer& peer) {
  const int fd = peer.fd;
  try {
    read_from(peer);
  } catch (const std::exception& e) {
    log_line("error", std::string("connection dropped: ") + e.what());
    drop(fd);
  }
}

void Connections::read_from(Peer& peer) {
  const int fd = peer.fd;
  char buffer[65536];
  // A bounded turn: one busy peer must not starve the others.
  const auto until = std::chrono::steady_clock::now() + kTurn;
  for (bool first = true;; first = false) {
    for (;;) {
      // Who does not read his answers is not asked for more questions; what he has sent waits in his socket.
      if (peer.outlet->unsent_bytes() > kChoked) {
        peer.choked = true;
        watch(peer);
        return;
      }
      auto line = peer.framer.next();
      if (!line) break;
      take(peer, *std::move(line));
      if (retired_) return;
      if (std::chrono::steady_clock::now() < until) continue;
      peer.unfinished = true;
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = ::write(wake_fd_, &one, sizeof one);
      return;
    }
    if (!first && std::chrono::steady_clock::now() >= until) return;  // what is left in the socket calls again
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n == 0 && !hung_up(fd)) return sent_its_last(peer);
    if (n <= 0) return drop(fd);
    peer.framer.feed({buffer, static_cast<std::size_t>(n)});
    if (peer.framer.buffered_bytes() > kLargeLine && buffered_bytes() > kMostBuffered) {
      log_line("warning", "connection dropped: too many large messages are arriving at once");
      return drop(fd);
    }
  }
}

std::size_t Connections::buffered_bytes() const {
  std::size_t sum = 0;
  for (const auto& [fd, peer] : peers_) sum += peer.framer.buffered_bytes();
  return sum;
}

void Connections::take(Peer& peer, Result<std::string> line) {
  if (!line) return peer.session->refuse(line.error());
  if (!peer.greeted) {
    peer.greeted = true;
    if (handle_greeting(peer, *line)) return;
  }
  peer.session->receive(std::string_view(*line), peer.answers);
}

// Its sending side is closed: a script's, which waits for what it asked (printf … | nc -N). It is dropped when that is said.
void Connections::sent_its_last(Peer& peer) {
  if (!peer.answers) return;
  if (auto line = peer.framer.finish()) take(peer, *std::move(line));
  peer.answers.reset();
  watch(peer);
}

bool Connections::handle_greeting(Peer& peer, const std::string& line) {
  if (!line.starts_with("{\"amk_client\"")) return false;
  auto parsed = parse_json(line, "greeting", {.max_bytes = 64u << 10});
  if (!parsed || !parsed->contains("amk_client") || !(*parsed)["amk_client"].is_object()) return false;
  const Json& client = (*parsed)["amk_client"];
  if (const auto cwd = client.find("cwd"); cwd != client.end() && cwd->is_string()) peer.session->set_working_directory(cwd->get<std::string>());
  if (const auto request = client.find("control"); request != client.end() && options_.control) {
    peer.outlet->send({{"amk_daemon", {{"control", options_.control(*request)}}}});
    peer.greeted = false;
  }
  if (client.contains("retire")) {
    retired_ = count() == 1 && options_.may_retire && options_.may_retire();
    if (!retired_) peer.outlet->send({{"amk_daemon", {{"stays", true}}}});
    peer.greeted = false;  // the client goes on with a proper greeting
  }
  return true;
}

void Connections::drop(int fd) {
  const auto it = peers_.find(fd);
  if (it == peers_.end()) return;
  it->second.session->close();
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  it->second.outlet->close();
  peers_.erase(it);
}

void Connections::flush(int limit_ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  for (;;) {
    bool waiting = false;
    for (auto& [fd, peer] : peers_) waiting = peer.outlet->flush() > 0 || waiting;
    if (!waiting || std::chrono::steady_clock::now() >= until) return;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace amk::daemon
