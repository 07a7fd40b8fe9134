// What a tool call does in every era: coercion, errors, progress, cancellation, limits.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "core/base/parse_json.h"
#include "core/base/random.h"
#include "server/protocol/schema.h"
#include "tests/support/fake_server/fake_server.h"
#include "tests/support/no_threads.h"
#include "tests/support/peer.h"

using namespace amk;
using amk::testing::fake_definition;
using amk::testing::NoThreads;
using amk::testing::Peer;

TEST_CASE("a result comes as text and as structure, equal to each other") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  const Json r = peer.call("echo", {{"text", "hi"}, {"count", "3"}, {"tags", "[\"a\"]"}, {"flag", "true"}});
  CHECK(r["isError"] == false);
  CHECK(r["structuredContent"] == Json{{"text", "hi"}, {"count", 3}, {"tags", {"a"}}, {"flag", true}});
  CHECK(Json::parse(r["content"][0]["text"].get<std::string>()) == r["structuredContent"]);
  Peer old(server);
  old.initialize("2025-03-26");
  CHECK_FALSE(old.call("counter").contains("structuredContent"));
}

TEST_CASE("input errors are results with isError that name the field; both forms stand alone and are identical") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  const Json tools = peer.request("tools/list")["result"]["tools"];
  for (const auto& [args, message] : {std::pair<Json, std::string>{{{"text", "x"}, {"count", 99}}, "count is 99; accepted: integer from 1 to 10"},
                                      {{{"text", "x"}, {"mode", "quick"}}, "mode is \"quick\"; accepted: one of \"fast\", \"exact\""},
                                      {Json::object(), "text is missing; accepted: string"}}) {
    const Json r = peer.call("echo", args);
    CHECK(r["isError"] == true);
    CHECK(r["structuredContent"]["error"]["message"] == message);
    CHECK(r["structuredContent"]["error"]["kind"] == "invalid_argument");
    CHECK(Json::parse(r["content"][0]["text"].get<std::string>()) == r["structuredContent"]);
    CHECK(mcp::validate(tools[0]["outputSchema"], r["structuredContent"]));  // as clients do
  }
  CHECK(peer.request("tools/call", {{"name", "no_such"}})["error"]["code"] == -32602);
  CHECK(peer.request("tools/call", {{"arguments", Json::object()}})["error"]["code"] == -32602);
  CHECK(peer.request("tools/call", {{"name", "echo"}, {"arguments", {1}}})["error"]["code"] == -32602);
  CHECK(peer.request("tools/call", {{"name", "echo"}, {"arguments", R"({"text":"t"})"}})["result"]["structuredContent"]["text"] == "t");
}

TEST_CASE("failures of handlers: errors keep kind and data, exceptions and wrong results become internal errors") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  CHECK(peer.call("fails")["structuredContent"] ==
        Json{{"error", {{"kind", "rejected"}, {"message", "no"}, {"data", {{"witness", {{"task", 7}}}}}}}});
  CHECK(peer.call("throws")["structuredContent"]["error"]["message"] == "throws failed unexpectedly: boom");
  const Json wrong = peer.call("nonconforming");
  CHECK(wrong["isError"] == true);
  CHECK(wrong["structuredContent"]["error"]["message"] ==
        "nonconforming made a result that its schema does not allow: result.n is \"seven\"; accepted: integer");
}

TEST_CASE("progress: only with a token, with that token, strictly increasing, never after the reply") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  for (const Json& token : {Json("tok"), Json(17)}) {
    peer.clear();
    peer.request("tools/call", {{"name", "slow"}, {"arguments", {{"seconds", 0.4}, {"steps", 5}}}, {"_meta", {{"progressToken", token}}}});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    double last = -1;
    int n = 0;
    bool replied = false;
    for (const Json& m : peer.messages()) {
      if (m.contains("result")) replied = true;
      if (m.value("method", "") != "notifications/progress") continue;
      CHECK_FALSE(replied);
      CHECK(m["params"]["progressToken"] == token);
      CHECK(m["params"]["progress"].get<double>() > last);
      last = m["params"]["progress"].get<double>();
      CHECK(m["params"]["total"] == 5);
      ++n;
    }
    CHECK(n == 5);
  }
  peer.clear();
  peer.call("slow", {{"seconds", 0.05}, {"steps", 3}});
  for (const Json& m : peer.messages()) CHECK(m.value("method", "") != "notifications/progress");
}

TEST_CASE("progress that a handler repeats or resets still increases; a silent handler is spoken for") {
  auto definition = fake_definition();
  definition.heartbeat_s = 0.05;
  for (mcp::ToolSpec& t : definition.tools)
    if (t.name == "counter")
      t.call = [](const Json&, mcp::RequestContext& context) -> Result<Json> {
        for (double done : {5.0, 5.0, 2.0, 7.0}) {
          context.progress(done, 4, "x");
          std::this_thread::sleep_for(std::chrono::milliseconds(25));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return Json{{"n", 1}};
      };
  mcp::Server server(definition);
  Peer peer(server);
  peer.initialize();
  peer.request("tools/call", {{"name", "counter"}, {"_meta", {{"progressToken", 1}}}});
  double last = -1;
  int n = 0, heartbeats = 0;
  for (const Json& m : peer.messages()) {
    if (m.value("method", "") != "notifications/progress") continue;
    const Json& p = m["params"];
    CHECK(p["progress"].get<double>() > last);
    // The first may be a heartbeat, which knows no total yet.
    if (p.contains("total")) CHECK(p["total"].get<double>() >= p["progress"].get<double>());
    last = p["progress"].get<double>();
    ++n;
    heartbeats += p["message"].get<std::string>().starts_with("still working");
  }
  CHECK(n >= 4 + heartbeats - 1);
  CHECK(heartbeats >= 1);
}

TEST_CASE("cancellation stops the handler and nothing more is sent for the request") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  peer.clear();
  peer.send({{"jsonrpc", "2.0"},
             {"id", 9},
             {"method", "tools/call"},
             {"params", {{"name", "slow"}, {"arguments", {{"seconds", 600}, {"steps", 6000}}}, {"_meta", {{"progressToken", "p"}}}}}});
  peer.wait([](const Json& m) { return m.value("method", "") == "notifications/progress"; });
  peer.notify("notifications/cancelled", {{"requestId", 9}, {"reason", "test"}});
  peer.clear();
  while (peer.session().requests_in_flight() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // 600 s if the handler did not stop
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  CHECK(peer.messages().empty());
  peer.notify("notifications/cancelled", {{"requestId", 9}});
  CHECK(peer.request("ping").contains("result"));
}

TEST_CASE("a peer that goes away cancels what it started; the server's end cancels everything") {
  auto definition = fake_definition();
  std::atomic<int> started = 0, cancelled = 0;
  for (mcp::ToolSpec& t : definition.tools)
    if (t.name == "counter")
      t.call = [&](const Json&, mcp::RequestContext& context) -> Result<Json> {
        ++started;
        while (!context.stop_token().stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++cancelled;
        return fail(ErrorKind::Cancelled, "stopped");
      };
  auto server = std::make_unique<mcp::Server>(definition);
  Peer a(*server), b(*server);
  for (Peer* p : {&a, &b}) {
    p->initialize();
    p->send({{"jsonrpc", "2.0"}, {"id", 1}, {"method", "tools/call"}, {"params", {{"name", "counter"}}}});
  }
  while (started < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  a.session().close();
  while (cancelled < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server.reset();
  CHECK(cancelled == 2);
}

TEST_CASE("an id in use is refused, and may be used again after its reply; requests in flight are bounded") {
  mcp::Server::Options options;
  options.max_requests_per_session = 4;
  mcp::Server server(fake_definition(), options);
  Peer peer(server);
  peer.initialize();
  auto slow = [&](int id) {
    peer.send({{"jsonrpc", "2.0"}, {"id", id}, {"method", "tools/call"}, {"params", {{"name", "slow"}, {"arguments", {{"seconds", 30}}}}}});
  };
  slow(101);
  slow(101);
  CHECK(peer.reply(101)["error"]["code"] == -32600);
  for (int id : {102, 103, 104, 105}) slow(id);
  CHECK(peer.reply(105)["error"]["code"] == -32603);
  CHECK(peer.reply(105)["error"]["data"]["kind"] == "unavailable");
  for (int id : {101, 102, 103, 104}) peer.notify("notifications/cancelled", {{"requestId", id}});
  while (peer.session().requests_in_flight() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 0; i < 300; ++i) {
    peer.clear();
    REQUIRE(peer.request("tools/call", {{"name", "counter"}}, 1).contains("result"));
  }
}

TEST_CASE("where no thread is to be had a call is refused as unavailable, and the next one finds one") {
  mcp::Server server(fake_definition());
  Peer peer(server);
  peer.initialize();
  const Json params = {{"name", "counter"}, {"_meta", {{"progressToken", "t"}}}};
  {
    const NoThreads none;
    const Json refused = peer.request("tools/call", params);
    CHECK(refused["error"]["code"] == -32603);
    CHECK(refused["error"]["data"]["kind"] == "unavailable");
    CHECK(peer.session().requests_in_flight() == 0);
  }
  CHECK(peer.request("tools/call", params)["result"]["structuredContent"]["n"] == 1);
}

TEST_CASE("a call that outlives its deadline is answered and stopped") {
  auto definition = fake_definition();
  definition.call_deadline_s = 0.05;
  mcp::Server server(definition);
  Peer peer(server);
  peer.initialize();
  const Json reply = peer.request("tools/call", {{"name", "slow"}, {"arguments", {{"seconds", 600}}}});
  CHECK(reply["error"]["code"] == -32603);
  CHECK(reply["error"]["data"]["kind"] == "timeout");
  while (peer.session().requests_in_flight() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("many peers at once see one truth, and each its own replies") {
  mcp::Server server(fake_definition());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Peer peer(server);
      peer.initialize();
      for (int i = 0; i < 50; ++i) {
        const std::string text = std::to_string(t) + ":" + std::to_string(i);
        if (peer.call("echo", {{"text", text}})["structuredContent"]["text"] != text) ++wrong;
        peer.call("counter");
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  Peer peer(server);
  peer.initialize();
  CHECK(peer.call("counter")["structuredContent"]["n"] == 8 * 50 + 1);
}

TEST_CASE("random bytes and random messages never break a session") {
  mcp::Server server(fake_definition());
  Rng rng(11);
  const char* fragments[] = {"{",
                             "}",
                             "[",
                             "]",
                             "\"jsonrpc\":\"2.0\"",
                             "\"id\":1",
                             "\"method\":\"tools/call\"",
                             "\"params\":{}",
                             ",",
                             ":",
                             "null",
                             "-1e999",
                             "\"\\ud800\"",
                             "\"name\":\"echo\"",
                             "\xff",
                             "\"_meta\":{\"progressToken\":[]}",
                             " ",
                             "1",
                             "\"io.modelcontextprotocol/protocolVersion\""};
  Peer peer(server);
  peer.initialize("2025-03-26");
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (std::uint64_t n = 1 + rng.below(14); n > 0; --n) text += fragments[rng.below(std::size(fragments))];
    peer.send_text(text);
  }
  CHECK(peer.request("ping", Json::object(), "alive").contains("result"));
}

TEST_CASE("serve over an in-memory transport: replies come while the stream is open and after its end") {
  mcp::Server server(fake_definition());
  auto [client, host] = mcp::memory_transport_pair();
  std::thread thread([&, transport = host.get()] { mcp::serve(server, *transport, 5); });
  client->send(R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}})");
  CHECK(Json::parse(**client->receive())["id"] == 1);
  client->send(R"({"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"counter"}})");
  CHECK(Json::parse(**client->receive())["result"]["structuredContent"]["n"] == 1);
  client->close();
  thread.join();
}
