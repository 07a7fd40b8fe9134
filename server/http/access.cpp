#include "server/http/access.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace amk::http {

std::string lower(std::string s) {
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return s;
}

namespace {

// The host of "host[:port]"; nullopt when it is not of that form.
std::optional<std::string> host_of(const std::string& authority) {
  std::string host = lower(authority);
  const std::size_t bracket = host.rfind(']');
  const std::size_t colon = host.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) {
    const std::string port = host.substr(colon + 1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    host.resize(colon);
  }
  if (host.empty()) return std::nullopt;
  return host;
}

bool listed(const AccessPolicy& policy, const std::optional<std::string>& host) {
  return host && std::find(policy.hosts.begin(), policy.hosts.end(), *host) != policy.hosts.end();
}

bool origin_allowed(const AccessPolicy& policy, const std::string& origin) {
  for (const std::string scheme : {"http://", "https://"})
    if (lower(origin).starts_with(scheme)) return listed(policy, host_of(origin.substr(scheme.size())));
  return false;
}

// Time that does not depend on where the first difference is.
bool equal_secret(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i % std::max<std::size_t>(1, b.size())]);
  return difference == 0;
}

bool token_matches(const std::string& token, const Request& head) {
  const std::string* value = head.header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (!value || head.count("authorization") != 1 || value->size() <= kScheme.size()) return false;
  if (lower(value->substr(0, kScheme.size())) != kScheme) return false;
  return equal_secret(value->substr(kScheme.size()), token);
}

}  // namespace

Reply text_reply(int status, std::string text) { return {status, "text/plain; charset=utf-8", std::move(text) + "\n"}; }

std::optional<Reply> refuse_access(const AccessPolicy& policy, const Request& head, bool with_token) {
  const std::string* host = head.header("host");
  if (!host || head.count("host") != 1) return text_reply(400, "one Host header is required");
  if (!listed(policy, host_of(*host))) return text_reply(403, "this server does not answer to the name in the Host header");
  if (head.count("origin") > 1) return text_reply(400, "more than one Origin header");
  if (const std::string* origin = head.header("origin"); origin && !origin_allowed(policy, *origin))
    return text_reply(403, "pages of this origin may not call this server");
  if (with_token && !policy.token.empty() && !token_matches(policy.token, head)) {
    Reply reply = text_reply(401, "a bearer token is required");
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  return std::nullopt;
}

Result<std::string> load_or_make_token(const std::filesystem::path& path) {
  auto failed = [&](const char* call) {
    return fail(ErrorKind::Io, std::string(call) + " " + path.string() + ": " + std::strerror(errno), {{"path", path.string()}});
  };
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);  // a FIFO would wait for its writer
  if (fd < 0 && errno == ENOENT) {
    unsigned char raw[32];
    if (::getrandom(raw, sizeof raw, 0) != static_cast<ssize_t>(sizeof raw)) return failed("getrandom for");
    std::string token;
    for (unsigned char b : raw) {
      constexpr char kHex[] = "0123456789abcdef";
      token += kHex[b >> 4];
      token += kHex[b & 15];
    }
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return failed("open");
    const std::string line = token + "\n";
    const bool written = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    ::close(fd);
    if (!written) return failed("write");
    return token;
  }
  if (fd < 0) return failed("open");
  struct stat info {};
  char buffer[512];
  const bool known = ::fstat(fd, &info) == 0;
  if (known && !S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(ErrorKind::InvalidArgument, path.string() + " is not a regular file; accepted: one of ours with mode 0600, which holds the token",
                {{"path", path.string()}});
  }
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  if (!known || n < 0) return failed("read");
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return fail(ErrorKind::InvalidArgument, path.string() + " must belong to us and have mode 0600: it holds the token", {{"path", path.string()}});
  std::string token(buffer, static_cast<std::size_t>(n));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' ')) token.pop_back();
  if (token.size() < 32 || token.find_first_of(" \t\r\n") != std::string::npos)
    return fail(ErrorKind::InvalidArgument, path.string() + " must hold one token of at least 32 characters on one line", {{"path", path.string()}});
  return token;
}

}  // namespace amk::http
