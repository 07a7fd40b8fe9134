// Why a call over HTTP does not wait: the kernel holds nothing back (TCP_NODELAY), and an answer leaves in one piece. A head and a body sent
// apart cost a client 40 ms each time Nagle's algorithm meets a delayed acknowledgement; a clock would show that on some days, the kernel's
// own count of segments (TCP_INFO) shows it on all.
#include <doctest/doctest.h>
#include <linux/tcp.h>

#include <filesystem>

#include "server/http/http_server.h"
#include "tests/unit/http/raw_client.h"

using namespace amk;
using amk::testing::RawClient;

namespace {

class Answerer final : public http::Handler {
 public:
  std::optional<http::Reply> admit(const http::Request& head) override {
    if (head.path == "/refused") return http::Reply{401, "text/plain", "refused"};
    return std::nullopt;
  }
  void handle(http::Request request, std::shared_ptr<http::Exchange> exchange) override {
    if (request.path != "/events") return exchange->reply({200, "text/plain", std::string(20'000, 'x')});
    exchange->start_events({});
    exchange->send_events("data: one\n\n");
    exchange->send_events("data: two\n\n");
    exchange->finish_events();
  }
};

// The server's end of the client's connection: the socket of this process whose peer is the client.
int accepted_socket(const RawClient& client) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sin_family == AF_INET && ntohs(peer.sin_port) == client.own_port())
      return fd;
  }
  return -1;
}

// Segments with data that the kernel has sent on this socket.
unsigned segments_sent(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
  return info.tcpi_data_segs_out;
}

}  // namespace

TEST_CASE("an answer is one packet on a socket without Nagle's algorithm, and connections are kept") {
  auto server = http::Server::start({}, std::make_shared<Answerer>());
  REQUIRE(server);
  RawClient client((*server)->port());
  const std::string call = "POST /call HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
  client.send(call);
  CHECK(client.read_response().ends_with("xxx"));

  const int fd = accepted_socket(client);
  REQUIRE(fd >= 0);
  int no_delay = 0;
  socklen_t size = sizeof no_delay;
  REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size) == 0);
  CHECK(no_delay != 0);
  CHECK(segments_sent(fd) == 1);
  CHECK(client.got.find("Connection: keep-alive") != std::string::npos);

  for (unsigned n = 2; n <= 5; ++n) {
    client.got.clear();
    client.send(call);
    client.read_response();
    CHECK(segments_sent(fd) == n);
  }
  CHECK((*server)->connections() == 1);

  // The head of a stream leaves at once; what is there when it has gone follows together, the stream's end included.
  client.got.clear();
  client.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.read_until("0\r\n\r\n").find("data: two\n\n") != std::string::npos);
  CHECK(segments_sent(fd) == 7);
}

TEST_CASE("no client is kept waiting for a body that was announced: 100 Continue comes at once, and a refusal without it") {
  auto server = http::Server::start({}, std::make_shared<Answerer>());
  REQUIRE(server);
  RawClient client((*server)->port());
  client.send("POST /call HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  CHECK(client.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  client.got.clear();
  client.send("{}");
  client.read_response();
  CHECK(client.status() == 200);

  RawClient refused((*server)->port());
  refused.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  CHECK(refused.read_until("refused").starts_with("HTTP/1.1 401"));
}
