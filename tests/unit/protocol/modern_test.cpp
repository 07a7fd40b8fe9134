// Revision 2026-07-28: values from its basic, versioning, caching, subscriptions and MRTR pages.
#include <doctest/doctest.h>

#include "tests/support/fake_server/fake_server.h"
#include "tests/support/peer.h"

using namespace amk;
using amk::testing::fake_definition;
using amk::testing::Peer;

namespace {

constexpr const char* kVersion = "io.modelcontextprotocol/protocolVersion";
constexpr const char* kCaps = "io.modelcontextprotocol/clientCapabilities";
constexpr const char* kServerInfo = "io.modelcontextprotocol/serverInfo";
constexpr const char* kSubscription = "io.modelcontextprotocol/subscriptionId";

}  // namespace

TEST_CASE("server/discover without any handshake") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  const Json r = peer.modern("server/discover")["result"];
  CHECK(r["resultType"] == "complete");
  CHECK(r["supportedVersions"] == Json{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"});
  CHECK(r["capabilities"]["tools"] == Json::object());
  CHECK(r["capabilities"]["resources"] == Json{{"subscribe", true}});
  CHECK(r["_meta"][kServerInfo]["name"] == "fake");
  CHECK(r["ttlMs"] == 300000);
  CHECK(r["cacheScope"] == "public");
  CHECK_FALSE(peer.session().initialized());
}

TEST_CASE("_meta is checked on every request") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  auto with = [&](Json meta) { return peer.request("tools/list", {{"_meta", std::move(meta)}}); };
  CHECK(with({{kVersion, "2026-07-28"}})["error"]["code"] == -32602);
  CHECK(with({{kVersion, "2026-07-28"}, {kCaps, "none"}})["error"]["code"] == -32602);
  CHECK(with({{kVersion, 7}, {kCaps, Json::object()}})["error"]["code"] == -32602);
  CHECK(with({{kVersion, "2026-07-28"}, {kCaps, Json::object()}, {"io.modelcontextprotocol/clientInfo", 3}})["error"]["code"] == -32602);
  CHECK(with({{kVersion, "2026-07-28"}, {kCaps, Json::object()}, {"io.modelcontextprotocol/logLevel", "loud"}})["error"]["code"] == -32602);
  CHECK(with({{kVersion, "2026-07-28"}, {kCaps, Json::object()}, {"progressToken", Json::object()}})["error"]["code"] == -32602);
  CHECK(peer.request("server/discover")["error"]["code"] == -32602);
  for (const char* v : {"2099-01-01", "2025-11-25"}) {
    const Json e = with({{kVersion, v}, {kCaps, Json::object()}})["error"];
    CHECK(e["code"] == -32022);
    CHECK(e["data"]["requested"] == v);
    CHECK(e["data"]["supported"][0] == "2026-07-28");
  }
  CHECK(with({{kVersion, "2026-07-28"}, {kCaps, Json::object()}}).contains("result"));
}

TEST_CASE("methods that the revision removed are unknown; both eras share one connection") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  for (const char* method : {"ping", "logging/setLevel", "resources/subscribe", "no/such"}) CHECK(peer.modern(method)["error"]["code"] == -32601);
  peer.initialize("2025-06-18");
  CHECK(peer.request("ping").contains("result"));
  CHECK(peer.modern("ping")["error"]["code"] == -32601);
  CHECK(peer.modern("tools/list")["result"]["resultType"] == "complete");
  CHECK_FALSE(peer.request("tools/list")["result"].contains("resultType"));
}

TEST_CASE("results: resultType and server everywhere, caching hints where the revision wants them and nowhere else") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  struct Case {
    const char* method;
    Json params;
    bool cacheable;
  };
  for (const Case& c :
       {Case{"tools/list", Json::object(), true}, Case{"prompts/list", Json::object(), true}, Case{"resources/list", Json::object(), true},
        Case{"resources/templates/list", Json::object(), true}, Case{"resources/read", {{"uri", "fake://static"}}, true},
        Case{"tools/call", {{"name", "counter"}}, false}, Case{"prompts/get", {{"name", "greet"}, {"arguments", {{"who", "x"}}}}, false},
        Case{"completion/complete", {{"ref", {{"type", "ref/prompt"}, {"name", "greet"}}}, {"argument", {{"name", "who"}, {"value", ""}}}}, false}}) {
    CAPTURE(c.method);
    const Json r = peer.modern(c.method, c.params)["result"];
    CHECK(r["resultType"] == "complete");
    CHECK(r["_meta"][kServerInfo]["version"] == "1.2.3");
    CHECK(r.contains("ttlMs") == c.cacheable);
    CHECK(r.contains("cacheScope") == c.cacheable);
  }
  CHECK(peer.modern("resources/read", {{"uri", "fake://static"}})["result"]["ttlMs"] == 1000);
}

TEST_CASE("a missing resource is -32602, an unknown tool or prompt too") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  CHECK(peer.modern("resources/read", {{"uri", "fake://no"}})["error"]["code"] == -32602);
  CHECK(peer.modern("tools/call", {{"name", "no"}})["error"]["code"] == -32602);
  CHECK(peer.modern("prompts/get", {{"name", "no"}})["error"]["code"] == -32602);
}

TEST_CASE("log messages only for requests that ask for them") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  auto logged = [&](Json meta) {
    peer.clear();
    peer.modern("tools/call", {{"name", "slow"}, {"arguments", {{"seconds", 0}}}, {"_meta", std::move(meta)}});
    int n = 0;
    for (const Json& m : peer.messages()) n += m.value("method", "") == "notifications/message";
    return n;
  };
  CHECK(logged(Json::object()) == 0);
  CHECK(logged({{"io.modelcontextprotocol/logLevel", "debug"}}) == 1);
  CHECK(logged({{"io.modelcontextprotocol/logLevel", "error"}}) == 0);
}

TEST_CASE("a question to the client is another round of the same call") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  const Json caps = {{"elicitation", Json::object()}};
  const Json first = peer.modern("tools/call", {{"name", "ask"}}, caps)["result"];
  CHECK(first["resultType"] == "input_required");
  CHECK(first["inputRequests"]["who"]["method"] == "elicitation/create");
  CHECK_FALSE(first.contains("content"));
  const Json second = peer.modern(
      "tools/call", {{"name", "ask"}, {"inputResponses", {{"who", {{"action", "accept"}, {"content", {{"name", "Ada"}}}}}}}}, caps)["result"];
  CHECK(second["structuredContent"] == Json{{"greeting", "hello Ada"}});
  const Json refused = peer.modern("tools/call", {{"name", "ask"}})["error"];
  CHECK(refused["code"] == -32021);
  CHECK(refused["data"]["requiredCapabilities"] == Json{{"elicitation", Json::object()}});
}

TEST_CASE("subscriptions/listen: acknowledged first with what is honoured, tagged updates, ends by cancellation or shutdown") {
  auto server = std::make_unique<mcp::Server>(fake_definition());
  Peer peer(*server);
  auto listen = [&](int id, Json filter) {
    peer.send({{"jsonrpc", "2.0"},
               {"id", id},
               {"method", "subscriptions/listen"},
               {"params", {{"_meta", {{kVersion, "2026-07-28"}, {kCaps, Json::object()}}}, {"notifications", std::move(filter)}}}});
  };
  listen(5, {{"toolsListChanged", true}, {"resourceSubscriptions", {"fake://static", "fake://no"}}});
  REQUIRE(peer.messages().size() == 1);
  CHECK(peer.messages()[0] == Json{{"jsonrpc", "2.0"},
                                   {"method", "notifications/subscriptions/acknowledged"},
                                   {"params", {{"_meta", {{kSubscription, 5}}}, {"notifications", {{"resourceSubscriptions", {"fake://static"}}}}}}});
  listen(6, {{"resourceSubscriptions", {"fake://items/1"}}});
  peer.clear();
  server->resource_updated("fake://static");
  REQUIRE(peer.messages().size() == 1);
  CHECK(peer.messages()[0]["params"] == Json{{"_meta", {{kSubscription, 5}}}, {"uri", "fake://static"}});
  peer.notify("notifications/cancelled", {{"requestId", 5}});
  peer.clear();
  server->resource_updated("fake://static");
  CHECK(peer.messages().empty());
  server.reset();
  const Json end = peer.messages().at(0);
  CHECK(end["id"] == 6);
  CHECK(end["result"]["_meta"][kSubscription] == 6);
  CHECK(end["result"]["resultType"] == "complete");
}
