// Hostile and clumsy bytes: each gets one clear answer or a closed connection, never a second request that nobody sent.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "server/http/http_server.h"
#include "tests/unit/http/raw_client.h"

using namespace amk;
using amk::testing::RawClient;

namespace {

// Echoes what it was asked, so that a test sees how many requests the server believes in.
class Echo final : public http::Handler {
 public:
  std::optional<http::Reply> admit(const http::Request& head) override {
    if (head.path == "/refuse") return http::Reply{401, "text/plain", "refused"};
    return std::nullopt;
  }
  void handle(http::Request request, std::shared_ptr<http::Exchange> exchange) override {
    if (request.path == "/events") {
      exchange->start_events({});
      exchange->send_events("data: one\n\n");
      events.push_back(exchange);
      return;
    }
    if (request.path == "/never") {
      exchange->on_closed([this] { ++closed; });
      events.push_back(exchange);
      return;
    }
    exchange->reply({200, "text/plain", request.method + " " + request.path + " [" + request.body + "]"});
  }
  std::vector<std::shared_ptr<http::Exchange>> events;
  std::atomic<int> closed{0};
};

struct EchoServer {
  std::shared_ptr<Echo> echo = std::make_shared<Echo>();
  std::unique_ptr<http::Server> server;
  explicit EchoServer(http::Options options = {}) {
    auto started = http::Server::start(options, echo);
    REQUIRE(started);
    server = std::move(*started);
  }
  // One connection, these bytes, all that comes back.
  RawClient& ask(const std::string& bytes, const std::string& until = "") {
    client = std::make_unique<RawClient>(server->port());
    client->send(bytes);
    client->read_until(until, until.empty() ? 3'000 : 20'000);
    return *client;
  }
  std::unique_ptr<RawClient> client;
};

int responses(const std::string& text) {
  int n = 0;
  for (std::size_t at = text.find("HTTP/1.1 "); at != std::string::npos; at = text.find("HTTP/1.1 ", at + 1)) ++n;
  return n;
}

const std::string kGet = "GET /a HTTP/1.1\r\nHost: x\r\n";

}  // namespace

TEST_CASE("plain requests: keep-alive, close, HTTP/1.0, chunked bodies, pipelining") {
  EchoServer f;
  CHECK(f.ask(kGet + "\r\n", "GET /a []").status() == 200);
  CHECK(f.ask("POST /b?q=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "POST /b [abc]").status() == 200);
  CHECK(f.ask("POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", "POST /b [abc]").status() == 200);
  CHECK(f.ask("GET /a HTTP/1.0\r\nHost: x\r\n\r\n").ended);
  CHECK(f.client->status() == 200);
  CHECK(f.ask(kGet + "Connection: close\r\n\r\n").ended);
  CHECK(responses(f.ask(kGet + "\r\n" + kGet + "\r\n" + kGet + "Connection: close\r\n\r\n").got) == 3);
  CHECK(f.ask("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\nok").got.find("[ok]") !=
        std::string::npos);
}

TEST_CASE("smuggling: an ambiguous length is refused and the connection closed, so that no second request can hide") {
  EchoServer f;
  const std::string hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string cases[] = {
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 34\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 0x0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      "POST /b HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n",
      "POST /b HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
      "POST /b HTTP/1.1\r\nHost: x\nContent-Length: 0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\n\x01"
      "Bad: 0\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nA: b\x01"
      "c\r\n\r\n",
      std::string("POST /b HTTP/1.1\r\nHost: x\r\nA: b") + '\0' + "c\r\n\r\n",
      "POST /b HTTP/9.9\r\nHost: x\r\n\r\n",
      "POST http://evil/b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
      "nonsense\r\n\r\n",
      "POST  /b HTTP/1.1\r\nHost: x\r\n\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
      "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
  };
  for (const std::string& bytes : cases) {
    CAPTURE(bytes);
    RawClient& c = f.ask(bytes + hidden);
    CHECK(c.ended);
    CHECK(c.got.find("/hidden") == std::string::npos);
    CHECK(responses(c.got) <= 1);
    if (responses(c.got) == 1) CHECK((c.status() == 400 || c.status() == 413));
  }
}

TEST_CASE("limits: headers, bodies, refusal before the body is read") {
  EchoServer f({.max_header_bytes = 4096, .max_body_bytes = 1000});
  CHECK(f.ask("GET /a HTTP/1.1\r\nHost: x\r\nA: " + std::string(10'000, 'a') + "\r\n\r\n").status() == 431);
  CHECK(f.ask("GET /" + std::string(10'000, 'a') + " HTTP/1.1\r\n").status() == 431);
  CHECK(f.ask("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n").status() == 413);
  CHECK(f.ask("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n").ended);
  CHECK(f.ask("POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x') + "\r\n0\r\n\r\n").status() == 413);
  // Refused by its head: the body is not waited for.
  CHECK(f.ask("POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n").status() == 401);
  CHECK(f.client->ended);
  CHECK(f.ask("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 200-ok\r\n\r\n").status() == 417);
}

TEST_CASE("slow loris: a request that trickles in is cut off, a silent connection too, and others are served meanwhile") {
  EchoServer f({.header_timeout = std::chrono::milliseconds(300),
                .body_timeout = std::chrono::milliseconds(300),
                .idle_timeout = std::chrono::milliseconds(300)});
  RawClient slow_head(f.server->port()), slow_body(f.server->port()), silent(f.server->port());
  slow_head.send("GET /a HTTP/1.1\r\nHo");
  slow_body.send("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab");
  CHECK(f.ask(kGet + "\r\n", "GET /a []").status() == 200);
  CHECK(slow_head.read_all().starts_with("HTTP/1.1 408"));
  CHECK(slow_body.read_all().starts_with("HTTP/1.1 408"));
  silent.read_all();
  CHECK((slow_head.ended && slow_body.ended && silent.ended));
}

TEST_CASE("too many connections: 503, and the others live on") {
  EchoServer f({.max_connections = 3});
  std::vector<std::unique_ptr<RawClient>> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(std::make_unique<RawClient>(f.server->port()));
    held.back()->send(kGet + "\r\n");
    CHECK(held.back()->read_until("GET /a []").find("200 OK") != std::string::npos);
  }
  CHECK(f.ask("").status() == 503);
  held[0]->send(kGet + "\r\n");
  held[0]->got.clear();
  CHECK(held[0]->read_until("GET /a []").find("200 OK") != std::string::npos);
}

TEST_CASE("events: headers at once, comments while it is quiet, an end when the server stops; a client that leaves is noticed") {
  EchoServer f({.keep_alive = std::chrono::milliseconds(50), .half_closed = std::chrono::milliseconds(20)});
  RawClient stream(f.server->port());
  stream.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string& got = stream.read_until(":\n\n");
  CHECK(got.find("Content-Type: text/event-stream") != std::string::npos);
  CHECK(got.find("data: one\n\n") < got.find(":\n\n"));

  RawClient leaver(f.server->port());
  leaver.send("GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
  while (f.server->connections() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  leaver.close();
  while (f.echo->closed == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));

  f.server->stop();
  CHECK(stream.read_until("0\r\n\r\n").ends_with("0\r\n\r\n"));
  // Late words of a handler find nobody and do no harm.
  for (const auto& e : f.echo->events) {
    e->send_events("data: late\n\n");
    e->finish_events();
    e->reply({200, "", ""});
    e->on_closed([] {});
    e->after(std::chrono::milliseconds(1), [] {});
  }
  // Nor do they keep anything: with the server and its exchanges goes what the handler holds (a daemon's store).
  f.server.reset();
  f.echo->events.clear();
  const std::weak_ptr<Echo> handler = f.echo;
  f.echo.reset();
  CHECK(handler.expired());
}

TEST_CASE("who sends no more but reads is answered; who has left is noticed by what is written to him") {
  EchoServer f({.keep_alive = std::chrono::hours(1), .half_closed = std::chrono::hours(1)});
  // A plain answer to a request that came with the end.
  RawClient plain(f.server->port());
  plain.send("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
  plain.sends_no_more();
  CHECK(plain.read_all().find("[abc]") != std::string::npos);
  CHECK(plain.ended);  // no next request can come

  // A stream goes on, asked by a comment; the next client leaves after it, and this comment is refused.
  RawClient reader(f.server->port());
  reader.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  reader.read_until("data: one\n\n");
  reader.sends_no_more();
  CHECK(reader.read_until(":\n\n").ends_with(":\n\n\r\n"));
  RawClient leaver(f.server->port());
  leaver.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  leaver.read_until("data: one\n\n");
  CHECK(f.server->connections() >= 2);
  leaver.close();
  while (f.server->connections() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK_FALSE(reader.ended);
  f.echo->events.front()->send_events("data: two\n\n");
  f.echo->events.front()->finish_events();
  CHECK(reader.read_all().find("data: two\n\n") != std::string::npos);
}

TEST_CASE("large bodies of many at once are not kept without end; what was reserved for one is given back") {
  EchoServer f({.max_body_bytes = 1u << 20, .max_bodies_bytes = 2u << 20});
  const auto head = [](const std::string& length) { return "POST /b HTTP/1.1\r\nHost: x\r\n" + length + "\r\n\r\n"; };
  const std::string megabyte = head("Content-Length: 1048576"), chunked = head("Transfer-Encoding: chunked");
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    RawClient one(f.server->port()), two(f.server->port()), three(f.server->port()), small(f.server->port());
    one.send(megabyte + "x");
    two.send(megabyte + "x");
    while (f.server->connections() < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    small.send(head("Content-Length: 3\r\nConnection: close") + "abc");  // after it the two above have been read
    CHECK(small.read_all().find("[abc]") != std::string::npos);
    three.send(round == 0 ? chunked : megabyte);
    three.read_all();
    CHECK(three.status() == 503);
    one.close();  // in the middle
    two.send(std::string((1 << 20) - 1, 'y'));
    CHECK(two.read_until("y]").size() > (1u << 20));
    while (f.server->connections() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  RawClient endless(f.server->port());
  endless.send(chunked);
  for (int i = 0; i < 5; ++i) endless.send("10000\r\n" + std::string(0x10000, 'z') + "\r\n");
  endless.read_until("\r\n\r\n");
  CHECK(endless.status() == 413);
}

TEST_CASE("a client that does not read its stream is cut off at the bound") {
  EchoServer f({.max_unsent_bytes = 1u << 20});
  RawClient stream(f.server->port());
  stream.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  stream.read_until("data: one");
  while (f.echo->events.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string event = "data: " + std::string(100'000, 'x') + "\n\n";
  for (int i = 0; i < 200 && f.server->connections() > 0; ++i) {
    f.echo->events[0]->send_events(event);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  while (f.server->connections() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("an address that cannot be bound, or is none, is an error that names it") {
  EchoServer f;
  auto again = http::Server::start({.port = f.server->port()}, f.echo);
  REQUIRE_FALSE(again);
  CHECK(again.error().message.find(std::to_string(f.server->port())) != std::string::npos);
  CHECK_FALSE(http::Server::start({.address = "localhost"}, f.echo));
}
