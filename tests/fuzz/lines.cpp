// A client's byte stream: framing does not depend on how the bytes arrive, and a session answers every line with JSON-RPC of its own.
#include <atomic>

#include "core/base/parse_json.h"
#include "server/protocol/framing.h"
#include "server/protocol/server.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_server.h"

using namespace amk;
using fuzz::require;

namespace {

constexpr std::size_t kLongest = 512;  // within reach of short inputs

// The lines as text; an over-long one as "!".
std::vector<std::string> lines_of(std::string_view bytes, std::size_t chunk) {
  mcp::LineFramer framer(kLongest);
  std::vector<std::string> lines;
  const auto take = [&](std::optional<Result<std::string>> line) {
    if (!line) return false;
    lines.push_back(*line ? "=" + **line : "!");
    return true;
  };
  for (std::size_t at = 0; at < bytes.size(); at += chunk) {
    framer.feed(bytes.substr(at, chunk));
    while (take(framer.next())) {
    }
    require(framer.buffered_bytes() <= kLongest + chunk, "memory is bounded while a line is too long");
  }
  while (take(framer.finish())) {
  }
  return lines;
}

struct Answers final : mcp::Outlet {
  std::atomic<int> sent{0};
  void send(const Json& message) override {
    if (message.is_array()) {  // the answers to a batch of revision 2025-03-26
      require(!message.empty(), "a batch is answered by at least one message");
      for (const Json& one : message) hold(one);
    } else {
      hold(message);
    }
    require(canonical_dump(message).find('\n') == std::string::npos, "one line each");
    ++sent;
  }

 private:
  static void hold(const Json& message) {
    require(message.is_object() && message.value("jsonrpc", "") == "2.0", "what leaves is JSON-RPC 2.0");
    require(message.contains("result") || message.contains("error") || message.contains("method"), "an answer has a result or an error");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = fuzz::text_of(data, size);
  const auto lines = lines_of(bytes, std::max<std::size_t>(1, size));
  require(lines == lines_of(bytes, 1), "byte by byte: the same lines");
  require(lines == lines_of(bytes, 7), "in sevens: the same lines");

  static mcp::Server server(fuzz::small_definition(), {.max_threads = 1, .log = {}});
  const auto outlet = std::make_shared<Answers>();
  const auto session = server.open(outlet);
  for (const std::string& line : lines) {
    if (line == "!")
      session->refuse(Error{ErrorKind::InvalidArgument, "too long", Json::object()});
    else
      session->receive(std::string_view(line).substr(1));
  }
  session->close();
  return 0;
}
