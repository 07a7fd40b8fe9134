// Streamable HTTP over real sockets: sessions, streams, resumption, both eras.
#include <doctest/doctest.h>

#include <thread>

#include "server/http/http_service.h"
#include "tests/support/fake_server/fake_server.h"
#include "tests/unit/http/raw_client.h"

using namespace amk;
using amk::testing::RawClient;

namespace {

struct FakeService {
  std::shared_ptr<mcp::Server> server;
  std::unique_ptr<http::Service> service;

  explicit FakeService(mcp::ServerDefinition definition = amk::testing::fake_definition())
      : server(std::make_shared<mcp::Server>(std::move(definition))) {
    auto started = http::Service::start(server, {});
    REQUIRE(started);
    service = std::move(*started);
  }

  std::string request(const std::string& method, const std::string& headers, const std::string& body) const {
    return method + " /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n" + headers +
           (body.empty() ? "" : "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
  }
  // A connection of its own, closed by the server after its one answer.
  std::unique_ptr<RawClient> ask(const std::string& method, std::string headers, const Json& body) {
    auto c = std::make_unique<RawClient>(service->port());
    c->send(request(method, headers + "Connection: close\r\n", body.is_null() ? "" : body.dump()));
    c->read_all();
    return c;
  }
  std::string initialize(const std::string& version = "2025-11-25") {
    const auto c = ask("POST", "", {{"jsonrpc", "2.0"}, {"id", 0}, {"method", "initialize"}, {"params", {{"protocolVersion", version}}}});
    CHECK(c->status() == 200);
    const std::string key = "Mcp-Session-Id: ";
    const std::size_t at = c->got.find(key);
    REQUIRE(at != std::string::npos);
    return key + c->got.substr(at + key.size(), 32) + "\r\n";
  }
};

Json call(int id, const std::string& tool, Json args = Json::object(), Json meta = Json::object()) {
  return {{"jsonrpc", "2.0"},
          {"id", id},
          {"method", "tools/call"},
          {"params", {{"name", tool}, {"arguments", std::move(args)}, {"_meta", std::move(meta)}}}};
}
Json body_of(const RawClient& c) {
  const std::size_t at = c.got.find("\r\n\r\n");
  return at == std::string::npos ? Json() : Json::parse(c.got.substr(at + 4), nullptr, false);
}
// The value of the last "id: " line.
std::string last_event_id(const std::string& text) {
  const std::size_t at = text.rfind("id: ");
  return at == std::string::npos ? "" : text.substr(at + 4, text.find('\n', at) - at - 4);
}

const Json kModernMeta = {{"io.modelcontextprotocol/protocolVersion", "2026-07-28"}, {"io.modelcontextprotocol/clientCapabilities", Json::object()}};
std::string modern_headers(const std::string& method, const std::string& name = "") {
  return "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: " + method + "\r\n" + (name.empty() ? "" : "Mcp-Name: " + name + "\r\n");
}

}  // namespace

TEST_CASE("legacy sessions: ids that cannot be guessed, required, unknown 404, ended by DELETE") {
  FakeService f;
  const std::string session = f.initialize();
  CHECK(f.initialize() != session);
  CHECK(f.ask("POST", session, call(1, "counter"))->status() == 200);
  CHECK(f.ask("POST", "", call(1, "counter"))->status() == 400);
  CHECK(f.ask("POST", "Mcp-Session-Id: 00000000000000000000000000000000\r\n", call(1, "counter"))->status() == 404);
  const auto accepted = f.ask("POST", session, {{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}});
  CHECK(accepted->status() == 202);
  CHECK(accepted->got.ends_with("\r\n\r\n"));  // no body
  CHECK(f.ask("DELETE", session, nullptr)->status() == 204);
  CHECK(f.ask("POST", session, call(2, "counter"))->status() == 404);
  CHECK(f.ask("GET", session, nullptr)->status() == 404);
  CHECK(f.ask("GET", "", nullptr)->status() == 405);
  CHECK(f.ask("PUT", "", nullptr)->status() == 405);
}

TEST_CASE("what a session held is gone with it: nothing holds itself") {
  // The server outlives its sessions' last references only if it is referenced from nowhere else; a tool's handler tells when it is gone.
  const auto token = std::make_shared<int>(0);
  auto definition = amk::testing::fake_definition();
  definition.tools.front().call = [token](const Json& args, mcp::RequestContext&) -> Result<Json> { return args; };
  {
    FakeService f(std::move(definition));
    CHECK(token.use_count() > 1);
    const std::string one = f.initialize(), two = f.initialize("2025-06-18");
    f.ask("DELETE", "Mcp-Session-Id: " + one + "\r\n", nullptr);
    CHECK(two != one);
  }
  CHECK(token.use_count() == 1);
}

TEST_CASE("bad posts have statuses of their own") {
  FakeService f;
  const std::string session = f.initialize();
  RawClient text(f.service->port());
  text.send("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
  text.read_all();
  CHECK(text.status() == 415);
  RawClient html(f.service->port());
  html.send(
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: "
      "close\r\n\r\n{}");
  html.read_all();
  CHECK(html.status() == 406);
  RawClient broken(f.service->port());
  broken.send(f.request("POST", session + "Connection: close\r\n", "{nonsense"));
  broken.read_all();
  CHECK(broken.status() == 400);
  CHECK(body_of(broken)["error"]["code"] == -32700);
  CHECK(f.ask("POST", session, Json{{"jsonrpc", "2.0"}})->status() == 400);
  CHECK(f.ask("POST", session + "MCP-Protocol-Version: 1999-01-01\r\n", call(1, "counter"))->status() == 400);
  RawClient evil(f.service->port());
  evil.send("POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n");
  evil.read_all();
  CHECK(evil.status() == 403);
  RawClient elsewhere(f.service->port());
  elsewhere.send("GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  elsewhere.read_all();
  CHECK(elsewhere.status() == 404);
}

TEST_CASE("a quick answer is JSON; progress or time turns it into an event stream that ends with the reply") {
  FakeService f;
  const std::string session = f.initialize();
  const auto quick = f.ask("POST", session, call(1, "counter"));
  CHECK(quick->got.find("Content-Type: application/json") != std::string::npos);
  CHECK(body_of(*quick)["result"]["structuredContent"]["n"] == 1);
  const auto slow = f.ask("POST", session, call(2, "slow", {{"seconds", 0.4}, {"steps", 2}}, {{"progressToken", "t"}}));
  CHECK(slow->got.find("Content-Type: text/event-stream") != std::string::npos);
  const std::size_t first = slow->got.find("\"progress\":1"), second = slow->got.find("\"progress\":2"), reply = slow->got.find("slept_s");
  CHECK((first < second && second < reply && reply != std::string::npos));
  CHECK(slow->got.ends_with("0\r\n\r\n"));
  const auto silent = f.ask("POST", session, call(3, "slow", {{"seconds", 0.4}}));
  CHECK(silent->got.find("text/event-stream") != std::string::npos);
}

TEST_CASE("legacy: a broken stream does not cancel, and is resumed from its last event id, once and exactly") {
  FakeService f;
  const std::string session = f.initialize();
  std::string id;
  {
    RawClient stream(f.service->port());
    stream.send(f.request("POST", session, call(5, "slow", {{"seconds", 1}, {"steps", 4}}, {{"progressToken", "t"}}).dump()));
    id = last_event_id(stream.read_until("\"progress\":1,"));
  }
  REQUIRE(!id.empty());
  const auto resumed = f.ask("GET", session + "Last-Event-ID: " + id + "\r\n", nullptr);
  CHECK(resumed->got.find("\"progress\":1,") == std::string::npos);
  for (const char* expected : {"\"progress\":2,", "\"progress\":3,", "\"progress\":4,", "slept_s"})
    CHECK(resumed->got.find(expected) != std::string::npos);
  // The whole of it is still there for a client that saw nothing.
  const auto again = f.ask("GET", session + "Last-Event-ID: " + id.substr(0, id.rfind('-')) + "-0\r\n", nullptr);
  CHECK(again->got.find("\"progress\":1,") != std::string::npos);
  CHECK(f.ask("GET", session + "Last-Event-ID: p99-1\r\n", nullptr)->status() == 404);
  CHECK(f.ask("GET", session + "Last-Event-ID: x\r\n", nullptr)->status() == 400);
  // Another session's stream is out of reach.
  CHECK(f.ask("GET", f.initialize() + "Last-Event-ID: " + id + "\r\n", nullptr)->status() == 404);
}

TEST_CASE("legacy: a call that its client cancels ends its answer: the stream, or a status without a body") {
  FakeService f;
  const std::string session = f.initialize();
  const auto cancel = [&](int id) {
    CHECK(f.ask("POST", session, {{"jsonrpc", "2.0"}, {"method", "notifications/cancelled"}, {"params", {{"requestId", id}}}})->status() == 202);
  };
  RawClient stream(f.service->port()), plain(f.service->port()), batch(f.service->port());
  stream.send(f.request("POST", session + "Connection: close\r\n", call(5, "slow", {{"seconds", 600}}).dump()));
  const std::string id = last_event_id(stream.read_until("id: "));
  cancel(5);
  stream.read_all();
  CHECK(stream.ended);
  CHECK(stream.got.ends_with("0\r\n\r\n"));
  // Asked for again there is its end.
  const auto again = f.ask("GET", session + "Last-Event-ID: " + id + "\r\n", nullptr);
  CHECK(again->status() == 200);
  CHECK(again->got.ends_with("0\r\n\r\n"));

  const std::string body = call(6, "slow", {{"seconds", 600}}).dump();
  plain.send("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nConnection: close\r\n" + session +
             "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  // Until it is known to the session a cancellation has nothing to cancel.
  for (int i = 0; i < 20 && !plain.ended; ++i) {
    cancel(6);
    plain.read_all(100);
  }
  CHECK(plain.status() == 202);

  const std::string old = f.initialize("2025-03-26");
  batch.send(f.request("POST", old + "Connection: close\r\n", Json::array({call(7, "slow", {{"seconds", 600}})}).dump()));
  batch.read_until("text/event-stream");
  f.ask("POST", old, {{"jsonrpc", "2.0"}, {"method", "notifications/cancelled"}, {"params", {{"requestId", 7}}}});
  batch.read_all();
  CHECK(batch.ended);
}

TEST_CASE("legacy: what is kept for clients that come back is bounded by bytes; the newest stays") {
  auto definition = amk::testing::fake_definition();
  for (mcp::ToolSpec& tool : definition.tools)
    if (tool.name == "big")
      tool.call = [whole = tool.call](const Json& args, mcp::RequestContext& context) {
        context.progress(1, 2, "half");  // a stream
        return whole(args, context);
      };
  FakeService f(std::move(definition));
  const std::string session = f.initialize();
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) {  // 2 MB as structure, and as much as text
    const auto c = f.ask("POST", session, call(10 + i, "big", {{"bytes", 2 << 20}}, {{"progressToken", i}}));
    CHECK(c->got.size() > (4u << 20));
    ids.push_back(c->got.substr(c->got.find("id: ") + 4, 4));
  }
  const auto status = [&](const std::string& id) {
    return f.ask("GET", session + "Last-Event-ID: " + id.substr(0, id.find('-')) + "-0\r\n", nullptr)->status();
  };
  CHECK(status(ids[4]) == 200);
  CHECK(status(ids[3]) == 200);
  CHECK(status(ids[0]) == 404);
}

TEST_CASE("an answer larger than what may be unsent arrives; a page that fails ends its own request") {
  FakeService f;
  f.service->add_page("/throws", true, [](const http::Request&, const std::shared_ptr<http::Exchange>&) { throw std::runtime_error("boom"); });
  f.service->add_page("/no-memory", true, [](const http::Request&, const std::shared_ptr<http::Exchange>&) { throw std::bad_alloc(); });
  f.service->add_page("/half", true, [](const http::Request&, const std::shared_ptr<http::Exchange>& exchange) {
    exchange->start_events({});
    throw std::runtime_error("boom");
  });
  const auto status = [&](const std::string& path) {
    RawClient c(f.service->port());
    c.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    c.read_all();
    CHECK(c.ended);
    return c.status();
  };
  CHECK(status("/throws") == 500);
  CHECK(status("/no-memory") == 503);
  CHECK(status("/half") == 500);
  const auto large = f.ask("POST", f.initialize(), call(1, "big", {{"bytes", 10 << 20}}));
  CHECK(large->got.size() > (20u << 20));
}

TEST_CASE("legacy: the GET stream carries what belongs to no request; one at a time") {
  FakeService f;
  const std::string session = f.initialize();
  f.ask("POST", session, {{"jsonrpc", "2.0"}, {"id", 1}, {"method", "resources/subscribe"}, {"params", {{"uri", "fake://static"}}}});
  f.server->resource_updated("fake://static");  // nobody listens yet: it waits
  RawClient stream(f.service->port());
  stream.send(f.request("GET", session, ""));
  CHECK(stream.read_until("fake://static").find("notifications/resources/updated") != std::string::npos);
  CHECK(f.ask("GET", session, nullptr)->status() == 409);
  stream.got.clear();
  f.server->resource_updated("fake://static");
  CHECK(stream.read_until("fake://static").find("updated") != std::string::npos);
  f.ask("DELETE", session, nullptr);
  CHECK(stream.read_until("0\r\n\r\n").ends_with("0\r\n\r\n"));  // the connection itself stays
}

TEST_CASE("modern: no session, headers that mirror the body, statuses of errors") {
  FakeService f;
  auto ask = [&](const std::string& method, Json params, const std::string& headers) {
    params["_meta"] = kModernMeta;
    return f.ask("POST", headers, {{"jsonrpc", "2.0"}, {"id", 9}, {"method", method}, {"params", std::move(params)}});
  };
  const auto ok = ask("tools/call", {{"name", "counter"}}, modern_headers("tools/call", "counter"));
  CHECK(ok->status() == 200);
  CHECK(body_of(*ok)["result"]["resultType"] == "complete");
  CHECK(ok->got.find("Mcp-Session-Id") == std::string::npos);
  const auto mismatch = ask("tools/call", {{"name", "counter"}}, modern_headers("tools/call", "other"));
  CHECK(mismatch->status() == 400);
  CHECK(body_of(*mismatch)["error"]["code"] == -32020);
  CHECK(body_of(*mismatch)["id"] == 9);
  const auto unknown = ask("no/such", Json::object(), modern_headers("no/such"));
  CHECK(unknown->status() == 404);
  CHECK(body_of(*unknown)["error"]["code"] == -32601);
  CHECK(ask("initialize", Json::object(), modern_headers("initialize"))->status() == 404);
  const auto capability = ask("tools/call", {{"name", "ask"}}, modern_headers("tools/call", "ask"));
  CHECK(capability->status() == 400);
  CHECK(body_of(*capability)["error"]["code"] == -32021);
  const auto no_meta = f.ask("POST", modern_headers("tools/list"), {{"jsonrpc", "2.0"}, {"id", 9}, {"method", "tools/list"}});
  CHECK(no_meta->status() == 400);
  CHECK(body_of(*no_meta)["error"]["code"] == -32602);
  const auto version = f.ask(
      "POST", "MCP-Protocol-Version: 2099-01-01\r\nMcp-Method: tools/list\r\n",
      {{"jsonrpc", "2.0"},
       {"id", 9},
       {"method", "tools/list"},
       {"params",
        {{"_meta", {{"io.modelcontextprotocol/protocolVersion", "2099-01-01"}, {"io.modelcontextprotocol/clientCapabilities", Json::object()}}}}}});
  CHECK(version->status() == 400);
  CHECK(body_of(*version)["error"]["code"] == -32022);
  CHECK(f.ask("POST", modern_headers("x"), Json::array({call(1, "counter")}))->status() == 400);
  CHECK(f.service->sessions() == 0);
}

TEST_CASE("modern: the end of the stream cancels; a subscription lives as long as its stream") {
  FakeService f;
  {
    RawClient c(f.service->port());
    Json message = call(1, "slow", {{"seconds", 600}});
    message["params"]["_meta"] = kModernMeta;
    c.send(f.request("POST", modern_headers("tools/call", "slow"), message.dump()));
    c.read_until("text/event-stream");
  }
  while (f.service->connections() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  RawClient sub(f.service->port());
  sub.send(f.request("POST", modern_headers("subscriptions/listen"),
                     Json{{"jsonrpc", "2.0"},
                          {"id", 4},
                          {"method", "subscriptions/listen"},
                          {"params", {{"_meta", kModernMeta}, {"notifications", {{"resourceSubscriptions", {"fake://static"}}}}}}}
                         .dump()));
  CHECK(sub.read_until("acknowledged").find("text/event-stream") != std::string::npos);
  f.server->resource_updated("fake://static");
  CHECK(sub.read_until("resources/updated").find("subscriptionId\":4") != std::string::npos);
  f.server->shut_down();
  CHECK(sub.read_until("\"id\":4").find("resultType") != std::string::npos);
  f.service.reset();  // would hang for 600 s if the call above had not been cancelled
  f.server.reset();
}

TEST_CASE("both eras: a call whose client closes only his sending side is answered") {
  FakeService f;
  const std::string session = f.initialize();
  for (const bool modern : {true, false}) {
    CAPTURE(modern);
    RawClient c(f.service->port());
    Json message = call(7, "slow", {{"seconds", 0.3}});
    if (modern) message["params"]["_meta"] = kModernMeta;
    c.send(f.request("POST", modern ? modern_headers("tools/call", "slow") : session, message.dump()));
    c.sends_no_more();
    CHECK(c.read_all().find("\"id\":7") != std::string::npos);
    CHECK(c.ended);
  }
}

TEST_CASE("the rate of requests is bounded") {
  auto server = std::make_shared<mcp::Server>(amk::testing::fake_definition());
  auto service = http::Service::start(server, {.requests_per_s = 5});
  REQUIRE(service);
  int refused = 0;
  for (int i = 0; i < 30; ++i) {
    RawClient c((*service)->port());
    c.send("GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    c.read_all();
    refused += c.status() == 429;
  }
  CHECK(refused > 0);
}

TEST_CASE("a server that others can reach needs a token") {
  auto server = std::make_shared<mcp::Server>(amk::testing::fake_definition());
  CHECK_FALSE(http::Service::start(server, {.address = "0.0.0.0"}));
}

TEST_CASE("an answer keeps its order when threads take turns at it") {
  FakeService f;
  f.service->add_page("/turns", true, [](const http::Request&, const std::shared_ptr<http::Exchange>& exchange) {
    exchange->start_events({});
    // Joined before the server's thread goes on: what it says comes second nevertheless.
    std::thread([&] {
      exchange->send_events("data: first\n\n");
      exchange->finish_events();
    }).join();
  });
  RawClient client(f.service->port());
  client.send("GET /turns HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  client.read_all();
  CHECK(client.status() == 200);
  CHECK(client.got.find("data: first\n\n") != std::string::npos);
  CHECK(client.ended);
}
