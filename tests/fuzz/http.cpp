// Bytes on a connection to the HTTP server, MCP behind it: every connection ends, every answer is HTTP, and as many are sent as were asked for.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "server/http/http_service.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_server.h"

using namespace amk;
using fuzz::require;

namespace {

http::Service& service() {
  static const auto server = std::make_shared<mcp::Server>(fuzz::small_definition(), mcp::Server::Options{.max_threads = 1, .log = {}});
  static const auto held = [] {
    http::ServiceOptions options;
    options.requests_per_s = 0;  // none counted
    options.server.max_body_bytes = 1 << 16;
    auto started = http::Service::start(server, options);
    require(started.has_value(), "the server starts");
    return std::move(*started);
  }();
  return *held;
}

// Everything that comes back until the server closes; empty when it does not within a second (an open event stream).
std::string exchange(std::uint16_t port, std::string_view bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Whoever closes first keeps the pair of ports for a minute: many addresses of our own, or thousands of connections a second use them up.
  static unsigned connections = 0;
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + connections++ % 60'000);
  require(fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0, "an address of the loopback network");
  int connected = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  if (connected != 0 && errno == EINTR) {  // libFuzzer's alarm: the handshake goes on by itself
    pollfd p{fd, POLLOUT, 0};
    while (::poll(&p, 1, 5000) < 0 && errno == EINTR) {
    }
    connected = (p.revents & POLLERR) != 0 ? -1 : 0;
  }
  if (connected != 0)
    require(false, "the server accepts (" + std::string(std::strerror(errno)) + ", " + std::to_string(service().connections()) + " open)");
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(fd, SHUT_WR);
  std::string got;
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, 1000) <= 0) break;
    char buffer[8192];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) break;
    got.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return got;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > (1u << 16)) return 0;
  const std::string got = exchange(service().port(), fuzz::text_of(data, size));
  require(service().connections() < 100, "connections end when their clients are gone");
  require(got.empty() || got.starts_with("HTTP/1.1 "), "an answer is HTTP");
  require(!got.starts_with("HTTP/1.1 500"), "no request makes the server fail");
  return 0;
}
