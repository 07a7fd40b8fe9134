#include "server/http/access.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>

#include "server/http/event_log.h"
#include "server/http/http_service.h"
#include "server/http/mcp_endpoint.h"
#include "server/protocol/random_id.h"

using namespace amk;
using namespace amk::http;

namespace {

int answer(const AccessPolicy& policy, std::vector<std::pair<std::string, std::string>> headers, bool with_token = true) {
  Request r;
  r.headers = std::move(headers);
  const auto refused = refuse_access(policy, r, with_token);
  return refused ? refused->status : 200;
}

}  // namespace

TEST_CASE("Host and Origin: this machine's names on any port, nothing else; the token in addition") {
  AccessPolicy p;
  for (const char* host : {"127.0.0.1", "127.0.0.1:80", "localhost:8123", "LOCALHOST", "[::1]", "[::1]:9"}) CHECK(answer(p, {{"host", host}}) == 200);
  for (const char* host :
       {"evil.example", "127.0.0.1.evil.example", "127.0.0.1:80:80", "localhost:", "localhost:x", "localhost@evil", "", "[::2]:1", "10.0.0.1"}) {
    CAPTURE(host);
    CHECK(answer(p, {{"host", host}}) == 403);
  }
  CHECK(answer(p, {}) == 400);
  CHECK(answer(p, {{"host", "localhost"}, {"host", "localhost"}}) == 400);
  auto origin = [&](const char* o) { return answer(p, {{"host", "localhost"}, {"origin", o}}); };
  for (const char* o : {"http://localhost", "https://127.0.0.1:3000", "http://[::1]:1"}) CHECK(origin(o) == 200);
  for (const char* o :
       {"null", "http://evil.example", "http://localhost.evil.example", "file://", "http://localhost@evil.example", "localhost", ""}) {
    CAPTURE(o);
    CHECK(origin(o) == 403);
  }
  p.hosts.push_back("box.local");
  CHECK(answer(p, {{"host", "box.local:1"}}) == 200);

  p.token = std::string(64, 'a');
  auto with = [&](std::string value) { return answer(p, {{"host", "localhost"}, {"authorization", std::move(value)}}); };
  CHECK(with("Bearer " + p.token) == 200);
  CHECK(with("bearer " + p.token) == 200);
  for (const std::string& bad :
       {std::string("Bearer "), "Bearer " + p.token + "a", "Bearer " + p.token.substr(1), "Basic " + p.token, p.token, std::string()})
    CHECK(with(bad) == 401);
  CHECK(answer(p, {{"host", "localhost"}}) == 401);
  CHECK(answer(p, {{"host", "localhost"}}, false) == 200);
  CHECK(answer(p, {{"host", "evil.example"}}, false) == 403);
}

TEST_CASE("the token's file: made with 0600, read again, refused when others can read it or it holds no token") {
  const auto path = std::filesystem::temp_directory_path() / ("amk-token-" + random_id());
  const std::string token = *load_or_make_token(path);
  CHECK(token.size() == 64);
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(*load_or_make_token(path) == token);
  ::chmod(path.c_str(), 0640);
  CHECK_FALSE(load_or_make_token(path));
  ::chmod(path.c_str(), 0600);
  { std::ofstream(path) << "short\n"; }
  CHECK_FALSE(load_or_make_token(path));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/etc/hostname", path);
  CHECK_FALSE(load_or_make_token(path));
  std::filesystem::remove(path);
}

TEST_CASE("endpoints are written ADDRESS:PORT") {
  using Pair = std::pair<std::string, std::uint16_t>;
  CHECK(*parse_endpoint("127.0.0.1:80") == Pair{"127.0.0.1", 80});
  CHECK(*parse_endpoint("[::1]:0") == Pair{"::1", 0});
  CHECK(*parse_endpoint("localhost:9") == Pair{"127.0.0.1", 9});
  CHECK(*parse_endpoint(":9") == Pair{"127.0.0.1", 9});
  for (const char* bad : {"", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:-1"}) CHECK_FALSE(parse_endpoint(bad));
}

TEST_CASE("request metadata (2026-07-28 streamable-http, Server Validation and Value Encoding)") {
  const Json schema = Json::parse(R"({"properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},
      "o":{"type":"object","properties":{"deep":{"type":"boolean","x-mcp-header":"Deep"}}}}})");
  auto mismatch = [&](std::vector<std::pair<std::string, std::string>> extra, Json arguments = Json::object(), std::string name = "tool") {
    Request r;
    r.headers = {{"mcp-protocol-version", "2026-07-28"}, {"mcp-method", "tools/call"}, {"mcp-name", "tool"}};
    for (auto& [k, v] : extra) {
      std::erase_if(r.headers, [&, key = k](const auto& h) { return h.first == key; });
      if (!v.empty()) r.headers.emplace_back(k, v);
    }
    const Json message = {
        {"method", "tools/call"},
        {"params", {{"name", name}, {"arguments", std::move(arguments)}, {"_meta", {{"io.modelcontextprotocol/protocolVersion", "2026-07-28"}}}}}};
    return header_mismatch(r, message, &schema);
  };
  CHECK(mismatch({}) == "");
  CHECK(mismatch({{"mcp-name", ""}}) == "Mcp-Name is missing");
  CHECK(mismatch({{"mcp-method", ""}}) == "Mcp-Method is missing");
  CHECK(mismatch({{"mcp-protocol-version", ""}}) == "MCP-Protocol-Version is missing");
  CHECK(mismatch({{"mcp-method", "TOOLS/CALL"}}) != "");
  CHECK(mismatch({{"mcp-name", "other"}}) != "");
  CHECK(mismatch({{"mcp-protocol-version", "2025-11-25"}}) != "");
  CHECK(mismatch({{"mcp-name", "=?base64?dG9vbA==?="}}) == "");  // "tool"
  CHECK(mismatch({{"mcp-name", "=?base64?dG9vbA=?="}}) != "");
  CHECK(mismatch({{"mcp-name", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}}, Json::object(), "=?base64?literal?=") == "");  // the specification's example
  CHECK(mismatch({{"mcp-param-region", "us-west1"}}, {{"region", "us-west1"}}) == "");
  CHECK(mismatch({}, {{"region", "us-west1"}}) != "");
  CHECK(mismatch({{"mcp-param-region", "us-west1"}}) != "");
  CHECK(mismatch({}, {{"region", nullptr}}) == "");
  CHECK(mismatch({{"mcp-param-region", "=?base64?SGVsbG8sIOS4lueVjA==?="}}, {{"region", "Hello, 世界"}}) == "");
  CHECK(mismatch({{"mcp-param-n", "42.0"}}, {{"n", 42}}) == "");
  CHECK(mismatch({{"mcp-param-n", "43"}}, {{"n", 42}}) != "");
  CHECK(mismatch({{"mcp-param-deep", "true"}}, {{"o", {{"deep", true}}}}) == "");
  CHECK(mismatch({{"mcp-param-deep", "false"}}, {{"o", {{"deep", true}}}}) != "");
}

TEST_CASE("event ids are taken apart strictly") {
  std::string name;
  std::uint64_t number = 0;
  CHECK(parse_event_id("p12-7", name, number));
  CHECK((name == "p12" && number == 7));
  for (const char* bad : {"", "-", "p", "p-", "-7", "p-x", "p-7x", "p--7"}) CHECK_FALSE((parse_event_id(bad, name, number) && name == "p"));
}
