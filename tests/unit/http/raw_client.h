// A client that sends exactly the bytes it is told to, for what no HTTP library would send.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace amk::testing {

class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(fd_, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(const std::string& bytes) { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  std::uint16_t own_port() const {
    sockaddr_in a{};
    socklen_t size = sizeof a;
    return ::getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size) == 0 ? ntohs(a.sin_port) : 0;
  }
  void sends_no_more() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Reads until `text` has arrived or the stream ended; everything read so far.
  const std::string& read_until(const std::string& text, int limit_ms = 20'000) {
    return read_while([&] { return text.empty() || got.find(text) == std::string::npos; }, limit_ms);
  }
  // Reads one response that has a Content-Length, whole.
  const std::string& read_response(int limit_ms = 20'000) {
    return read_while(
        [&] {
          const std::size_t body = got.find("\r\n\r\n"), length = got.find("Content-Length: ");
          return body == std::string::npos || length > body || got.size() < body + 4 + std::stoul(got.substr(length + 16));
        },
        limit_ms);
  }
  template <class Unfinished>
  const std::string& read_while(const Unfinished& unfinished, int limit_ms) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    while (unfinished()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      pollfd p{fd_, POLLIN, 0};
      if (left <= 0 || ::poll(&p, 1, static_cast<int>(left)) <= 0) return got;
      char buffer[16384];
      const ssize_t n = ::read(fd_, buffer, sizeof buffer);
      if (n <= 0) {
        ended = true;
        return got;
      }
      got.append(buffer, static_cast<std::size_t>(n));
    }
    return got;
  }
  const std::string& read_all(int limit_ms = 20'000) { return read_until("", limit_ms); }
  // The status of the first response in `got`, 0 if there is none.
  int status() const { return got.starts_with("HTTP/1.1 ") ? std::stoi(got.substr(9, 3)) : 0; }

  std::string got;
  bool connected = false, ended = false;

 private:
  int fd_;
};

}  // namespace amk::testing
