#include "kernels/evaluator/framing.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/base/json.h"
#include "core/base/parse_json.h"

namespace amk {
namespace {

constexpr std::size_t kMostHeaderBytes = 64;

int remaining_ms(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

// Ready, or why not. The descriptor stays blocking: poll() says that one call will not block for long.
Status wait_ready(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd p{fd, events, 0};
    const int ready = ::poll(&p, 1, remaining_ms(deadline));
    if (ready > 0) return {};
    if (ready == 0) return fail(ErrorKind::Timeout, "no answer within the time limit");
    if (errno != EINTR) return fail(ErrorKind::Io, std::string("poll: ") + std::strerror(errno), {{"call", "poll"}, {"errno", errno}});
  }
}

Status write_all(int fd, const char* data, std::size_t size, Deadline deadline) {
  while (size > 0) {
    AMK_CHECK(wait_ready(fd, POLLOUT, deadline));
    // A pipe that is ready takes at least PIPE_BUF bytes without blocking.
    const ssize_t n = ::write(fd, data, std::min<std::size_t>(size, 4096));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0 && errno == EPIPE) return fail(ErrorKind::Unavailable, "the other end of the pipe is gone");
    if (n < 0) return fail(ErrorKind::Io, std::string("write: ") + std::strerror(errno), {{"call", "write"}, {"errno", errno}});
    data += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

Status read_some(int fd, char* data, std::size_t size, std::size_t& got, Deadline deadline) {
  while (true) {
    AMK_CHECK(wait_ready(fd, POLLIN, deadline));
    const ssize_t n = ::read(fd, data, size);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return fail(ErrorKind::Io, std::string("read: ") + std::strerror(errno), {{"call", "read"}, {"errno", errno}});
    if (n == 0) return fail(ErrorKind::Unavailable, "the other end of the pipe is gone");
    got = static_cast<std::size_t>(n);
    return {};
  }
}

Status read_all(int fd, char* data, std::size_t size, Deadline deadline) {
  while (size > 0) {
    std::size_t got = 0;
    AMK_CHECK(read_some(fd, data, size, got, deadline));
    data += got;
    size -= got;
  }
  return {};
}

// Grows with what arrives: an announcement alone costs nothing.
Status read_sized(int fd, std::string& into, std::int64_t bytes, Deadline deadline) {
  constexpr std::size_t kStep = std::size_t{1} << 20;
  const auto want = static_cast<std::size_t>(bytes);
  while (into.size() < want) {
    const std::size_t at = into.size();
    into.resize(std::min(want, std::max(at + kStep, 2 * at)));
    AMK_CHECK(read_all(fd, into.data() + at, into.size() - at, deadline));
  }
  return {};
}

// "amk1 12 345\n", nothing else: no signs, no spaces but one, no leading zeros that mean something else.
bool parse_header(std::string_view head, std::int64_t& json_bytes, std::int64_t& payload_bytes) {
  if (!head.starts_with("amk1 ") || !head.ends_with('\n')) return false;
  head = head.substr(5, head.size() - 6);
  const auto number = [&head](std::int64_t& out) {
    if (head.empty() || head.front() < '0' || head.front() > '9') return false;
    const auto [end, code] = std::from_chars(head.data(), head.data() + head.size(), out);
    head.remove_prefix(static_cast<std::size_t>(end - head.data()));
    return code == std::errc();
  };
  if (!number(json_bytes) || head.empty() || head.front() != ' ') return false;
  head.remove_prefix(1);
  return number(payload_bytes) && head.empty();
}

}  // namespace

Status write_message(int fd, const Message& message, Deadline deadline) {
  const std::string text = message.body.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string head = "amk1 " + std::to_string(text.size()) + " " + std::to_string(message.payload.size()) + "\n" + text;
  AMK_CHECK(write_all(fd, head.data(), head.size(), deadline));
  return write_all(fd, message.payload.data(), message.payload.size(), deadline);
}

Result<Message> read_message(int fd, Deadline deadline) {
  std::string head;
  while (head.empty() || head.back() != '\n') {  // short: byte by byte, so that nothing of the body is taken
    char c = 0;
    AMK_CHECK(read_all(fd, &c, 1, deadline));
    head += c;
    if (head.size() > kMostHeaderBytes) return fail(ErrorKind::Corrupt, "a worker message has no header");
  }
  std::int64_t json_bytes = 0, payload_bytes = 0;
  if (!parse_header(head, json_bytes, payload_bytes) || json_bytes > kMostJsonBytes || payload_bytes > kMostPayloadBytes)
    return fail(ErrorKind::Corrupt, "a worker message has a damaged header");
  std::string text;
  AMK_CHECK(read_sized(fd, text, json_bytes, deadline));
  Message message;
  auto body = parse_json(text, "worker message");
  if (!body) return fail(ErrorKind::Corrupt, body.error().message);
  if (!body->is_object()) return fail(ErrorKind::Corrupt, "a worker message is no JSON object");
  message.body = std::move(*body);
  AMK_CHECK(read_sized(fd, message.payload, payload_bytes, deadline));
  return message;
}

}  // namespace amk
