#include "server/daemon/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/parse_json.h"
#include "server/daemon/shim_state.h"
#include "server/protocol/framing.h"
#include "server/protocol/json_rpc.h"

namespace amk::daemon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxMessage = 16u << 20;
constexpr std::size_t kMaxBuffered = 8u << 20;           // beyond it the other side is not read: backpressure instead of memory
constexpr auto kDrain = std::chrono::milliseconds(300);  // after the end of stdin; hosts kill at 400 to 2,000 ms

// Writes what the descriptor takes without blocking, whether or not it is in non-blocking mode (that mode would be shared with
// whoever else holds the same terminal or socket). Returns false when the reader is gone.
bool write_ready(int fd, std::string& buffer) {
  static constexpr std::size_t kPipeBuf = 4096;  // what a pipe that polls writable takes for certain
  std::size_t done = 0;
  bool open = true;
  while (done < buffer.size()) {
    ssize_t n = ::send(fd, buffer.data() + done, buffer.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK) {
      pollfd p{fd, POLLOUT, 0};
      if (::poll(&p, 1, 0) <= 0) break;
      if (p.revents & (POLLERR | POLLNVAL)) {
        open = false;
        break;
      }
      n = ::write(fd, buffer.data() + done, std::min(kPipeBuf, buffer.size() - done));
    }
    if (n < 0) {
      if (errno == EINTR) continue;
      open = errno == EAGAIN || errno == EWOULDBLOCK;
      break;
    }
    done += static_cast<std::size_t>(n);
  }
  buffer.erase(0, done);
  return open;
}

// Connects on a thread of its own, so that signals are obeyed while a daemon starts. Outlives the shim's loop if it has to.
struct Connector {
  std::mutex mutex;
  std::optional<Result<int>> outcome;
  int done_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

  static void run(const std::shared_ptr<Connector>& self, const Paths& paths, const Launch& launch) {
    std::thread([self, paths, launch] {
      Result<int> fd = connect_or_start(paths, launch);
      {
        std::lock_guard lock(self->mutex);
        self->outcome = std::move(fd);
      }
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = ::write(self->done_fd, &one, sizeof one);
    }).detach();
  }
};

class Shim {
 public:
  Shim(const Paths& paths, const Launch& launch, int in, int out) : paths_(paths), launch_(launch), in_(in), out_(out) {}

  int run() {
    watch_parent_and_signals();
    connect();
    while (!finished()) step();
    write_ready(out_, to_client_);
    return 0;
  }

 private:
  void watch_parent_and_signals() {
    ::signal(SIGPIPE, SIG_IGN);
    parent_ = ::getppid();
    sigset_t signals;
    sigemptyset(&signals);
    for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals, s);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signal_fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    // The death signal comes when the *thread* that started us ends, which hosts with thread pools do at any time: it is a hint
    // to look, not an order. The pidfd becomes readable when the process ends.
    ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
#ifdef SYS_pidfd_open
    parent_fd_ = static_cast<int>(::syscall(SYS_pidfd_open, parent_, 0));
    if (parent_fd_ >= 0) ::fcntl(parent_fd_, F_SETFD, FD_CLOEXEC);
#endif
  }

  bool finished() const {
    if (stop_) return true;
    if (!at_end_) return false;
    if (!to_client_.empty() && Clock::now() < drain_until_) return false;
    return (queue_.empty() && !state_.waiting()) || Clock::now() >= drain_until_;
  }

  void connect() {
    if (daemon_ >= 0 || connector_) return;
    connector_ = std::make_shared<Connector>();
    Connector::run(connector_, paths_, launch_);
  }

  void step() {
    const bool read_client = !at_end_ && to_daemon_.size() + queued_bytes_ < kMaxBuffered;
    const bool read_daemon = to_client_.size() < kMaxBuffered;
    pollfd fds[] = {{signal_fd_, POLLIN, 0},
                    {parent_fd_, POLLIN, 0},
                    {read_client ? in_ : -1, POLLIN, 0},
                    {to_client_.empty() ? -1 : out_, POLLOUT, 0},
                    {daemon_, static_cast<short>((read_daemon ? POLLIN : 0) | (to_daemon_.empty() ? 0 : POLLOUT)), 0},
                    {connector_ ? connector_->done_fd : -1, POLLIN, 0}};
    int timeout_ms = parent_fd_ < 0 ? 200 : -1;  // without pidfds (before Linux 5.3) the parent is looked at by the clock
    if (at_end_)
      timeout_ms = std::max<int>(0, static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(drain_until_ - Clock::now()).count()) + 1);
    ::poll(fds, std::size(fds), timeout_ms);
    if (fds[0].revents) read_signals();
    if (fds[1].revents || (parent_fd_ < 0 && ::getppid() != parent_)) stop_ = true;
    if (stop_) return;
    if (fds[5].revents) take_connection();
    if (fds[4].revents) serve_daemon(fds[4].revents);
    if (fds[2].revents) read_client_input();
    if (fds[3].revents && !write_ready(out_, to_client_)) stop_ = true;
  }

  void read_signals() {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGUSR1 || ::getppid() != parent_) stop_ = true;
  }

  void read_client_input() {
    char buffer[65536];
    const ssize_t n = ::read(in_, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) {
      from_client_.feed({buffer, static_cast<std::size_t>(n)});
      while (auto line = from_client_.next()) client_line(std::move(*line));
      return;
    }
    if (auto last = from_client_.finish()) client_line(std::move(*last));
    at_end_ = true;
    drain_until_ = Clock::now() + kDrain;
  }

  void client_line(Result<std::string> line) {
    if (!line) return say(canonical_dump(mcp::make_error(nullptr, {mcp::RpcCode::ParseError, line.error().message, nullptr})));
    if (daemon_ >= 0) return forward(*line);
    queued_bytes_ += line->size();
    queue_.push_back(*std::move(line));
    connect();
  }

  void forward(const std::string& line) {
    state_.note_client(line);
    to_daemon_ += line;
    to_daemon_ += '\n';
    write_ready(daemon_, to_daemon_);  // a broken connection shows up on the reading side
  }

  void say(const std::string& line) {
    to_client_ += line;
    to_client_ += '\n';
    if (!write_ready(out_, to_client_)) stop_ = true;
  }

  void take_connection() {
    std::optional<Result<int>> outcome;
    {
      std::lock_guard lock(connector_->mutex);
      outcome = std::move(connector_->outcome);
    }
    connector_.reset();
    std::deque<std::string> queue = std::exchange(queue_, {});
    queued_bytes_ = 0;
    if (!*outcome) {
      std::fprintf(stderr, "amk: %s\n", outcome->error().message.c_str());
      for (const std::string& line : queue) state_.note_client(line);
      for (const std::string& reply : state_.fail_pending(outcome->error().message)) say(reply);
      return;
    }
    daemon_ = **outcome;
    from_daemon_ = mcp::LineFramer(4 * kMaxMessage);
    to_daemon_.clear();
    for (const std::string& line : state_.handshake()) to_daemon_ += line + "\n";
    for (const std::string& line : queue) forward(line);
    write_ready(daemon_, to_daemon_);
  }

  void serve_daemon(short events) {
    if (events & POLLOUT) write_ready(daemon_, to_daemon_);
    if (!(events & (POLLIN | POLLHUP | POLLERR))) return;
    char buffer[65536];
    const ssize_t n = ::recv(daemon_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) {
      from_daemon_.feed({buffer, static_cast<std::size_t>(n)});
      // Collected and written once: a reply that arrives with its notifications leaves with them.
      while (auto line = from_daemon_.next())
        if (*line && state_.note_daemon(**line)) to_client_ += **line + "\n";
      if (!write_ready(out_, to_client_)) stop_ = true;
      return;
    }
    ::close(daemon_);
    daemon_ = -1;
    to_daemon_.clear();
    std::fprintf(stderr, "amk: the daemon of this workspace went away; the next request starts it again\n");
    for (const std::string& reply : state_.fail_pending("the daemon went away")) say(reply);
  }

  const Paths& paths_;
  const Launch& launch_;
  const int in_, out_;
  int daemon_ = -1, signal_fd_ = -1, parent_fd_ = -1;
  pid_t parent_ = 0;
  bool stop_ = false, at_end_ = false;
  Clock::time_point drain_until_{};
  mcp::LineFramer from_client_{kMaxMessage}, from_daemon_{4 * kMaxMessage};
  std::string to_client_, to_daemon_;
  std::deque<std::string> queue_;  // lines from the client while there is no daemon
  std::size_t queued_bytes_ = 0;
  std::shared_ptr<Connector> connector_;
  ShimState state_;
};

}  // namespace

int take_stdout() {
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);  // takes the lowest number: fd
  const int out = ::fcntl(1, F_DUPFD_CLOEXEC, 10);
  ::dup2(2, 1);
  ::signal(SIGPIPE, SIG_IGN);
  return out;
}

int run_shim(const Paths& paths, const Launch& launch, int stdin_fd, int stdout_fd) {
  const int code = Shim(paths, launch, stdin_fd, stdout_fd).run();
  // A connecting thread may still run: static destructors must not pull the ground from under it.
  std::fflush(stderr);
  ::_exit(code);
}

}  // namespace amk::daemon
