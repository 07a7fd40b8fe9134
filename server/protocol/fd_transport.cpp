#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "server/protocol/framing.h"
#include "server/protocol/transport.h"

namespace amk::mcp {
namespace {

// Blocking descriptors; close() interrupts a blocked receive through an eventfd. Writes that would block for ever (a peer that
// does not read) are interrupted by it as well.
class FdTransport final : public Transport {
 public:
  FdTransport(int read_fd, int write_fd, std::size_t max_bytes)
      : read_fd_(read_fd), write_fd_(write_fd), wake_fd_(::eventfd(0, EFD_CLOEXEC)), framer_(max_bytes) {}
  ~FdTransport() override {
    ::close(read_fd_);
    if (write_fd_ != read_fd_) ::close(write_fd_);
    ::close(wake_fd_);
  }

  bool send(std::string_view message) override {
    std::lock_guard lock(write_mutex_);
    // One buffer, so that a message and its line break leave together whenever the kernel takes them at once.
    line_.assign(message);
    line_ += '\n';
    std::string_view rest = line_;
    while (!rest.empty()) {
      if (!wait_for(write_fd_, POLLOUT)) return false;
      // A pipe that polls writable takes PIPE_BUF bytes without blocking, a socket whatever fits.
      const ssize_t n = write_some(rest);
      if (n < 0) {
        if (errno == EINTR || errno == EAGAIN) continue;
        return false;
      }
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  Result<std::optional<std::string>> receive() override {
    for (;;) {
      if (auto line = framer_.next()) {
        if (!*line) return tl::unexpected<Error>(line->error());
        return **std::move(line);
      }
      if (at_end_) return std::nullopt;
      if (!wait_for(read_fd_, POLLIN)) return std::nullopt;
      char buffer[65536];
      const ssize_t n = ::read(read_fd_, buffer, sizeof buffer);
      if (n < 0) {
        if (errno == EINTR || errno == EAGAIN) continue;
        at_end_ = true;
        if (errno == ECONNRESET) return std::nullopt;
        return fail(ErrorKind::Io, std::string("read of a message stream: ") + std::strerror(errno));
      }
      if (n == 0) {
        at_end_ = true;
        auto last = framer_.finish();
        if (!last) return std::nullopt;
        if (!*last) return tl::unexpected<Error>(last->error());
        return **std::move(last);
      }
      framer_.feed({buffer, static_cast<std::size_t>(n)});
    }
  }

  void close() override {
    closed_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_fd_, &one, sizeof one);
  }

 private:
  bool wait_for(int fd, short events) {
    pollfd fds[2] = {{fd, events, 0}, {wake_fd_, POLLIN, 0}};
    while (!closed_) {
      const int n = ::poll(fds, 2, -1);
      if (n < 0 && errno != EINTR) return false;
      if (n > 0 && fds[1].revents == 0 && fds[0].revents != 0) return true;
    }
    return false;
  }

  ssize_t write_some(std::string_view bytes) {
    if (!write_is_pipe_) {
      const ssize_t n = ::send(write_fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n >= 0 || errno != ENOTSOCK) return n;
      write_is_pipe_ = true;
    }
    constexpr std::size_t kPipeBuf = 4096;
    return ::write(write_fd_, bytes.data(), std::min(bytes.size(), kPipeBuf));
  }

  const int read_fd_, write_fd_, wake_fd_;
  std::atomic<bool> closed_{false};
  bool at_end_ = false;
  LineFramer framer_;
  std::mutex write_mutex_;
  std::string line_;
  bool write_is_pipe_ = false;
};

}  // namespace

std::unique_ptr<Transport> fd_transport(int read_fd, int write_fd, std::size_t max_message_bytes) {
  return std::make_unique<FdTransport>(read_fd, write_fd, max_message_bytes);
}

}  // namespace amk::mcp
