#include "server/daemon/shim_state.h"

#include <doctest/doctest.h>

using namespace amk;
using amk::daemon::ShimState;

TEST_CASE("pending requests are those not answered; a cancelled one is not waited for; subscriptions never end") {
  ShimState s;
  CHECK_FALSE(s.waiting());
  s.note_client(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}})");
  s.note_client(R"({"jsonrpc":"2.0","id":"a\"b","method":"tools/call","params":{}})");
  CHECK(s.waiting());
  CHECK(s.note_daemon(R"({"jsonrpc":"2.0","method":"notifications/progress","params":{}})"));
  CHECK(s.note_daemon(R"({"id":1,"jsonrpc":"2.0","result":{}})"));
  CHECK(s.waiting());
  CHECK(s.note_daemon(R"({"id":"a\"b","jsonrpc":"2.0","result":{}})"));
  CHECK_FALSE(s.waiting());
  s.note_client(R"({"jsonrpc":"2.0","id":2,"method":"tools/call"})");
  CHECK(s.note_daemon(R"({"error":{"code":-32602,"message":"m"},"id":2,"jsonrpc":"2.0"})"));
  CHECK_FALSE(s.waiting());
  s.note_client(R"({"jsonrpc":"2.0","id":3,"method":"tools/call"})");
  s.note_client(R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}})");
  CHECK_FALSE(s.waiting());
  s.note_client(R"({"jsonrpc":"2.0","id":4,"method":"subscriptions/listen"})");
  CHECK_FALSE(s.waiting());
  s.note_client(R"([{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","id":6,"method":"ping"}])");
  CHECK(s.waiting());
  CHECK(s.note_daemon(R"([{"id":5,"jsonrpc":"2.0","result":{}},{"id":6,"jsonrpc":"2.0","result":{}}])"));
  CHECK_FALSE(s.waiting());
  s.note_client("{nonsense");
  s.note_client("[]");
  s.note_client("7");
  CHECK_FALSE(s.waiting());
}

TEST_CASE("when the daemon goes every unanswered request gets one error, with its own id") {
  ShimState s;
  s.note_client(R"({"jsonrpc":"2.0","id":1,"method":"tools/call"})");
  s.note_client(R"({"jsonrpc":"2.0","id":"x","method":"subscriptions/listen"})");
  const auto replies = s.fail_pending("gone");
  REQUIRE(replies.size() == 2);
  for (const std::string& r : replies) {
    const Json m = Json::parse(r);
    CHECK((m["id"] == 1 || m["id"] == "x"));
    CHECK(m["error"]["code"] == -32603);
    CHECK(m["error"]["message"].get<std::string>().starts_with("gone; "));
    CHECK(m["error"]["data"]["retry"] == true);
  }
  CHECK(s.fail_pending("again").empty());
}

TEST_CASE("a new daemon hears the handshake again under ids of the shim's, whose replies the client never sees") {
  ShimState s;
  CHECK(s.handshake().empty());
  s.note_client(R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}})");
  s.note_client(R"({"jsonrpc":"2.0","method":"notifications/initialized"})");
  s.note_client(R"({"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}})");
  s.note_client(R"({"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a://b"}})");
  s.note_client(R"({"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a://c"}})");
  s.note_client(R"({"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"a://c"}})");
  s.fail_pending("gone");
  const auto lines = s.handshake();
  REQUIRE(lines.size() == 4);
  const Json init = Json::parse(lines[0]);
  CHECK(init["method"] == "initialize");
  CHECK(init["params"]["protocolVersion"] == "2025-06-18");
  CHECK(Json::parse(lines[1])["method"] == "notifications/initialized");
  CHECK(Json::parse(lines[2])["params"]["level"] == "debug");
  CHECK(Json::parse(lines[3])["params"]["uri"] == "a://b");
  CHECK_FALSE(s.note_daemon(Json{{"id", init["id"]}, {"jsonrpc", "2.0"}, {"result", Json::object()}}.dump()));
  CHECK_FALSE(s.note_daemon(Json{{"error", {{"code", 1}, {"message", "m"}}}, {"id", init["id"]}, {"jsonrpc", "2.0"}}.dump()));
  CHECK_FALSE(s.waiting());
}
