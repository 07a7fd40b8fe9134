#include "server/protocol/framing.h"

#include <doctest/doctest.h>

#include <vector>

#include "core/base/random.h"
#include "server/protocol/base64.h"
#include "server/protocol/uri_template.h"

using namespace amk;
using namespace amk::mcp;

namespace {

// Lines, with "!" for an over-long one.
std::vector<std::string> drain(LineFramer& f) {
  std::vector<std::string> out;
  while (auto line = f.next()) out.push_back(*line ? **line : "!");
  return out;
}

}  // namespace

TEST_CASE("LineFramer: lines, CRLF, empty lines, the unfinished last one") {
  LineFramer f(10);
  f.feed("ab\r\n\n  \ncd\nef");
  CHECK(drain(f) == std::vector<std::string>{"ab", "cd"});
  CHECK(**f.finish() == "ef");
  CHECK_FALSE(f.finish());
}

TEST_CASE("LineFramer: a line over the limit is reported once, its bytes are not kept, the next line survives") {
  LineFramer f(4);
  f.feed("12345\nok\n");
  CHECK(drain(f) == std::vector<std::string>{"!", "ok"});
  for (int i = 0; i < 1000; ++i) {
    f.feed(std::string(1000, 'x'));
    CHECK_FALSE(f.next());
    CHECK(f.buffered_bytes() <= 1000);
  }
  f.feed("\nok\n");
  CHECK(drain(f) == std::vector<std::string>{"!", "ok"});
  f.feed("1234567");
  CHECK_FALSE(f.next());
  CHECK_FALSE(f.finish()->has_value());
}

TEST_CASE("LineFramer: a line of just the limit is taken whatever ends it and wherever that is cut") {
  for (const std::string& end : {std::string("\n"), std::string("\r\n"), std::string("")})
    for (std::size_t length : {3, 4, 5})
      for (std::size_t cut = 1; cut <= length + end.size(); ++cut) {
        CAPTURE(end);
        CAPTURE(length);
        CAPTURE(cut);
        const std::string stream = std::string(length, 'x') + end;
        LineFramer f(4);
        f.feed(stream.substr(0, cut));
        std::vector<std::string> got = drain(f);
        f.feed(stream.substr(cut));
        for (std::string& line : drain(f)) got.push_back(std::move(line));
        if (auto last = f.finish()) got.push_back(*last ? **last : "!");
        CHECK(got == std::vector<std::string>{length <= 4 ? std::string(length, 'x') : "!"});
      }
  // A carriage return that ends no line is one byte of it.
  LineFramer f(4);
  f.feed("123\r");
  CHECK_FALSE(f.next());
  f.feed("4\n1234\r");
  CHECK(drain(f) == std::vector<std::string>{"!"});
  f.feed("5\n");
  CHECK(drain(f) == std::vector<std::string>{"!"});
}

TEST_CASE("LineFramer: how the bytes are cut does not matter") {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    std::string stream;
    std::vector<std::string> expected;
    for (int i = 0; i < 20; ++i) {
      std::string line(1 + rng.below(30), static_cast<char>('a' + rng.below(26)));
      expected.push_back(line.size() > 20 ? "!" : line);
      stream += line + "\n";
    }
    LineFramer f(20);
    std::vector<std::string> got;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t n = std::min<std::size_t>(1 + rng.below(40), stream.size() - at);
      f.feed(std::string_view(stream).substr(at, n));
      at += n;
      for (std::string& line : drain(f)) got.push_back(std::move(line));
    }
    REQUIRE(got == expected);
  }
}

TEST_CASE("base64: RFC 4648 section 10 vectors, strictness") {
  const std::pair<const char*, const char*> vectors[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : vectors) {
    CHECK(base64_encode(plain) == encoded);
    CHECK(base64_decode(encoded) == plain);
  }
  CHECK(base64_encode("Hello, 世界") == "SGVsbG8sIOS4lueVjA==");  // 2026-07-28, "Value Encoding"
  for (const char* bad : {"Zg=", "Zg", "Z===", "====", "Zh==", "Zm9v====", "Zm 9", "Z-=="}) CHECK_FALSE(base64_decode(bad));
}

TEST_CASE("URI templates of RFC 6570 level 1") {
  using Vars = std::map<std::string, std::string>;
  CHECK(match_uri_template("a://x/{id}/report", "a://x/7/report") == Vars{{"id", "7"}});
  CHECK(match_uri_template("a://{x}/{y}", "a://1/b%20c") == Vars{{"x", "1"}, {"y", "b c"}});
  CHECK(match_uri_template("a://{x}", "a://") == std::nullopt);
  CHECK(match_uri_template("a://{x}", "a://b/c") == std::nullopt);
  CHECK(match_uri_template("a://x/{id}/report", "a://x/7/reports") == std::nullopt);
  CHECK(match_uri_template("a://x/{id}/report", "a://x//report") == std::nullopt);
  CHECK(match_uri_template("a://{x}", "a://%zz") == std::nullopt);
  CHECK(match_uri_template("a://{x}", "a://%00") == std::nullopt);
  CHECK(match_uri_template("a://{x}", "a://..%2fb") == Vars{{"x", "../b"}});  // decoded: handlers must treat it as a name
  CHECK(match_uri_template("a://fixed", "a://fixed") == Vars{});
}
