// The handshake revisions: values from the specification's pages of 2024-11-05 … 2025-11-25.
#include <doctest/doctest.h>

#include "tests/support/fake_server/fake_server.h"
#include "tests/support/peer.h"

using namespace amk;
using amk::testing::fake_definition;
using amk::testing::Peer;

TEST_CASE("initialize: a supported version is echoed, any other is answered with the newest legacy one") {
  mcp::Server server(fake_definition());
  for (const char* v : {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}) {
    Peer peer(server);
    CHECK(peer.initialize(v)["result"]["protocolVersion"] == v);
    CHECK(peer.session().protocol_version() == v);
  }
  for (const char* v : {"2026-07-28", "1.0", "2099-01-01", ""}) {
    Peer peer(server);
    CHECK(peer.initialize(v)["result"]["protocolVersion"] == "2025-11-25");
  }
  Peer peer(server);
  CHECK(peer.request("initialize", {{"protocolVersion", 3}})["error"]["code"] == -32602);
  CHECK(peer.request("initialize")["error"]["code"] == -32602);
  const Json result = peer.initialize()["result"];
  CHECK(result["serverInfo"] == Json{{"name", "fake"}, {"title", "Fake server"}, {"version", "1.2.3"}});
  CHECK(result["capabilities"] == Json{{"completions", Json::object()},
                                       {"logging", Json::object()},
                                       {"prompts", Json::object()},
                                       {"resources", {{"subscribe", true}}},
                                       {"tools", Json::object()}});
  CHECK(result["instructions"] == "Call echo.");
  CHECK_FALSE(result.contains("resultType"));
}

TEST_CASE("before initialize only ping is served") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  CHECK(peer.request("ping")["result"] == Json::object());
  CHECK(peer.request("tools/list")["error"]["code"] == -32602);
  peer.initialize();
  CHECK(peer.request("tools/list").contains("result"));
}

TEST_CASE("ids are echoed as they came; a reply has jsonrpc 2.0; unknown methods, bad messages") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  CHECK(peer.request("ping", Json::object(), "a b") == Json{{"jsonrpc", "2.0"}, {"id", "a b"}, {"result", Json::object()}});
  CHECK(peer.request("ping", Json::object(), -7)["id"] == -7);
  CHECK(peer.request("no/such")["error"]["code"] == -32601);
  CHECK(peer.request("server/discover")["error"]["code"] == -32602);  // a modern method without its _meta
  CHECK(peer.request("tasks/list")["error"]["code"] == -32601);       // never declared

  peer.clear();
  peer.send_text("{nonsense");
  CHECK(peer.messages().back()["error"]["code"] == -32700);
  CHECK_FALSE(peer.messages().back().contains("id"));
  const std::pair<const char*, bool> invalid[] = {{R"({"id":50,"method":"ping"})", true},
                                                  {R"({"jsonrpc":"1.0","id":50,"method":"ping"})", true},
                                                  {R"({"jsonrpc":"2.0","id":null,"method":"ping"})", false},
                                                  {R"({"jsonrpc":"2.0","id":1.5,"method":"ping"})", false},
                                                  {R"({"jsonrpc":"2.0","id":50,"method":7})", true},
                                                  {R"({"jsonrpc":"2.0","id":50,"method":"ping","params":[]})", true},
                                                  {R"({"jsonrpc":"2.0","id":50})", true},
                                                  {R"(3)", false},
                                                  {R"([])", false}};
  for (const auto& [text, has_id] : invalid) {
    CAPTURE(text);
    peer.clear();
    peer.send_text(text);
    REQUIRE(peer.messages().size() == 1);
    CHECK(peer.messages()[0]["error"]["code"] == -32600);
    CHECK(peer.messages()[0].contains("id") == has_id);
  }
  // What is repeated with everything that is said of a request is short.
  for (const std::size_t bytes : {1024u, 1025u}) {
    const std::string text(bytes, 'x');
    const auto ok = [&](const Json& m) { return m.contains("result") == (bytes == 1024); };
    peer.clear();
    peer.send({{"jsonrpc", "2.0"}, {"id", text}, {"method", "ping"}});
    REQUIRE(peer.messages().size() == 1);
    CHECK(ok(peer.messages()[0]));
    peer.clear();
    CHECK(ok(peer.request("ping", {{"_meta", {{"progressToken", text}}}})));
  }
  peer.clear();
  peer.notify("notifications/initialized");
  peer.notify("notifications/unknown");
  peer.notify("notifications/cancelled", {{"requestId", 999}});
  peer.send({{"jsonrpc", "2.0"}, {"id", "stray"}, {"result", Json::object()}});
  CHECK(peer.messages().empty());
}

TEST_CASE("whatever is asked for, an error that names it is short") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  const std::string much = [] {
    std::string text;
    while (text.size() < 300'000) text += "ü€x";
    return text;
  }();
  const std::pair<std::string, Json> asked[] = {
      {much, Json::object()},
      {"tools/call", {{"name", much}}},
      {"tools/call", {{"name", "add"}, {"arguments", {{much, 1}}}}},
      {"tools/list", {{"cursor", much}}},
      {"resources/read", {{"uri", "amk://" + much}}},
      {"resources/subscribe", {{"uri", much}}},
      {"prompts/get", {{"name", much}}},
      {"prompts/get", {{"name", "greet"}, {"arguments", {{"who", much}}}}},
      {"prompts/get", {{"name", "greet"}, {"arguments", {{much, "x"}, {"who", "y"}}}}},
      {"completion/complete", {{"ref", {{"type", "ref/prompt"}, {"name", much}}}, {"argument", {{"name", "a"}, {"value", much}}}}},
      {"logging/setLevel", {{"level", much}}}};
  for (const auto& [method, params] : asked) {
    const Json reply = peer.request(method, params);
    CAPTURE(method.substr(0, 40));
    CAPTURE(params.dump().substr(0, 60));
    CHECK(reply.dump().size() < 8000);
  }
}

TEST_CASE("batches: received in 2025-03-26 only; one array of replies, none for notifications; initialize not inside") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize("2025-03-26");
  peer.clear();
  peer.send_text(R"([{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},
                     {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"counter"}},
                     {"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}])");
  const Json replies = peer.wait([](const Json& m) { return m.is_array(); });
  REQUIRE(replies.size() == 3);
  for (const Json& r : replies) CHECK(r.contains(r["id"] == 3 ? "error" : "result"));
  peer.clear();
  peer.send_text(R"([{"jsonrpc":"2.0","method":"notifications/initialized"}])");
  CHECK(peer.messages().empty());

  // As many as may be in flight; more would keep everybody waiting, and their replies in memory.
  for (const std::size_t n : {64u, 65u}) {
    Json many = Json::array();
    while (many.size() < n) many.push_back({{"jsonrpc", "2.0"}, {"id", many.size()}, {"method", "tools/list"}});
    peer.clear();
    peer.send(many);
    REQUIRE(peer.messages().size() == 1);
    const Json told = peer.messages()[0];
    if (n == 64) CHECK(told.size() == 64);
    if (n == 65) CHECK(told["error"]["message"] == "a batch of 65 messages; accepted: at most 64");
  }

  for (const char* v : {"2024-11-05", "2025-06-18", "2025-11-25"}) {
    Peer other(server);
    other.initialize(v);
    other.clear();
    other.send_text(R"([{"jsonrpc":"2.0","id":1,"method":"ping"}])");
    CHECK(other.messages()[0]["error"]["code"] == -32600);
  }
}

TEST_CASE("tools/list: fields by revision; outputSchema admits the error shape") {
  mcp::Server server(fake_definition());
  Peer old(server), now(server);
  old.initialize("2024-11-05");
  now.initialize("2025-11-25");
  const Json before = old.request("tools/list")["result"]["tools"][0], after = now.request("tools/list")["result"]["tools"][0];
  CHECK(before["name"] == "echo");
  for (const char* k : {"annotations", "outputSchema", "title"}) CHECK_FALSE(before.contains(k));
  CHECK(after["annotations"] ==
        Json{{"title", "Echo"}, {"readOnlyHint", true}, {"destructiveHint", false}, {"idempotentHint", false}, {"openWorldHint", false}});
  CHECK(after["title"] == "Echo");
  CHECK_FALSE(after["outputSchema"].contains("required"));
  CHECK(after["outputSchema"]["properties"].contains("error"));
  CHECK(after["inputSchema"]["required"] == Json{"text"});
}

TEST_CASE("lists page by cursor; a cursor that was never handed out is -32602") {
  auto definition = fake_definition();
  definition.page_size = 3;
  const std::size_t count = definition.tools.size();
  mcp::Server server(definition);
  Peer peer(server);
  peer.initialize();
  std::size_t seen = 0;
  Json params = Json::object();
  for (int page = 0; page < 10; ++page) {
    const Json result = peer.request("tools/list", params)["result"];
    seen += result["tools"].size();
    if (!result.contains("nextCursor")) break;
    params["cursor"] = result["nextCursor"];
  }
  CHECK(seen == count);
  for (const Json& bad : {Json("x"), Json("at:"), Json("at:-1"), Json("at:0"), Json("at:999"), Json("at:1x"), Json(7)})
    CHECK(peer.request("tools/list", {{"cursor", bad}})["error"]["code"] == -32602);
}

TEST_CASE("resources: read text, bytes and templates; -32002 for what is missing") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  CHECK(peer.request("resources/list")["result"]["resources"].size() == 2);
  CHECK(peer.request("resources/templates/list")["result"]["resourceTemplates"][0]["uriTemplate"] == "fake://items/{id}");
  auto read = [&](const char* uri) { return peer.request("resources/read", {{"uri", uri}}); };
  CHECK(read("fake://static")["result"] == Json{{"contents", {{{"uri", "fake://static"}, {"mimeType", "text/plain"}, {"text", "fixed"}}}}});
  CHECK(read("fake://bytes")["result"]["contents"][0]["blob"] == "AP8=");
  CHECK(read("fake://items/a%20b")["result"]["contents"][0]["text"] == "item a b");
  for (const char* missing : {"fake://no", "fake://items/missing", "fake://items/", ""}) {
    const Json error = read(missing)["error"];
    CHECK(error["code"] == -32002);
    CHECK(error["data"]["uri"] == missing);
  }
  CHECK(peer.request("resources/read")["error"]["code"] == -32602);
}

TEST_CASE("resources/subscribe: updates reach only who asked, until they unsubscribe") {
  mcp::Server server(fake_definition());
  Peer a(server), b(server);
  a.initialize();
  b.initialize();
  CHECK(a.request("resources/subscribe", {{"uri", "fake://static"}})["result"] == Json::object());
  CHECK(a.request("resources/subscribe", {{"uri", "fake://no"}})["error"]["code"] == -32002);
  b.clear();
  server.resource_updated("fake://static");
  CHECK(a.messages().back() == Json{{"jsonrpc", "2.0"}, {"method", "notifications/resources/updated"}, {"params", {{"uri", "fake://static"}}}});
  CHECK(b.messages().empty());
  a.request("resources/unsubscribe", {{"uri", "fake://static"}});
  a.clear();
  server.resource_updated("fake://static");
  CHECK(a.messages().empty());
}

TEST_CASE("prompts and completion") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  const Json prompt = peer.request("prompts/list")["result"]["prompts"][0];
  CHECK(prompt["arguments"] == Json{{{"name", "who"}, {"description", "whom"}, {"required", true}}});
  CHECK(peer.request("prompts/get", {{"name", "greet"}, {"arguments", {{"who", "you"}}}})["result"]["messages"][0]["content"]["text"] == "hello you");
  CHECK(peer.request("prompts/get", {{"name", "greet"}})["error"]["code"] == -32602);
  CHECK(peer.request("prompts/get", {{"name", "no"}})["error"]["code"] == -32602);

  auto complete = [&](Json ref, const char* name, const char* value) {
    return peer.request("completion/complete", {{"ref", std::move(ref)}, {"argument", {{"name", name}, {"value", value}}}});
  };
  CHECK(complete({{"type", "ref/prompt"}, {"name", "greet"}}, "who", "wo")["result"]["completion"] ==
        Json{{"values", {"world"}}, {"total", 1}, {"hasMore", false}});
  const Json all = complete({{"type", "ref/resource"}, {"uri", "fake://items/{id}"}}, "id", "")["result"]["completion"];
  CHECK(all["values"].size() == 100);  // the specification's limit
  CHECK(all["total"] == 150);
  CHECK(all["hasMore"] == true);
  CHECK(complete({{"type", "ref/prompt"}, {"name", "greet"}}, "unknown", "")["result"]["completion"]["values"] == Json::array());
  CHECK(complete({{"type", "ref/prompt"}, {"name", "no"}}, "who", "")["error"]["code"] == -32602);
  CHECK(complete({{"type", "ref/other"}}, "who", "")["error"]["code"] == -32602);
}

TEST_CASE("logging/setLevel decides which messages come") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  auto logged = [&] {
    peer.clear();
    peer.call("slow", {{"seconds", 0}});
    int n = 0;
    for (const Json& m : peer.messages()) n += m.value("method", "") == "notifications/message";
    return n;
  };
  CHECK(logged() == 1);  // default info; the tool logs at notice
  CHECK(peer.request("logging/setLevel", {{"level", "error"}})["result"] == Json::object());
  CHECK(logged() == 0);
  CHECK(peer.request("logging/setLevel", {{"level", "loud"}})["error"]["code"] == -32602);
}

TEST_CASE("a question to the client: sent as a request of ours, answered by its response; refused without the capability") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize("2025-11-25", {{"elicitation", Json::object()}});
  peer.send({{"jsonrpc", "2.0"}, {"id", 70}, {"method", "tools/call"}, {"params", {{"name", "ask"}}}});
  const Json question = peer.wait([](const Json& m) { return m.value("method", "") == "elicitation/create"; });
  CHECK(question["params"]["message"] == "Who?");
  peer.send({{"jsonrpc", "2.0"}, {"id", question["id"]}, {"result", {{"action", "accept"}, {"content", {{"name", "Ada"}}}}}});
  CHECK(peer.reply(70)["result"]["structuredContent"] == Json{{"greeting", "hello Ada"}});

  Peer mute(server);
  mute.initialize();
  const Json refused = mute.call("ask");
  CHECK(refused["isError"] == true);
  CHECK(refused["structuredContent"]["error"]["kind"] == "unsupported");
}
