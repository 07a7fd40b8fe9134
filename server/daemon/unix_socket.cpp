#include "server/daemon/unix_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace amk::daemon {
namespace {

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  const std::string text = path.string();
  if (text.size() > kMaxSocketPath)
    return fail(ErrorKind::InvalidArgument, "socket path " + text + " is longer than " + std::to_string(kMaxSocketPath) + " bytes");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, text.data(), text.size());
  return address;
}

const sockaddr* generic(const sockaddr_un& a) { return reinterpret_cast<const sockaddr*>(&a); }

}  // namespace

tl::unexpected<Error> os_error(const std::string& call, const std::string& what, ErrorKind kind) {
  const int code = errno;
  return fail(kind, call + " " + what + ": " + std::strerror(code), {{"call", call}, {"errno", code}});
}

Result<int> listen_unix(const std::filesystem::path& path) {
  AMK_TRY(address, address_of(path));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return os_error("socket", path.string());
  ::unlink(path.c_str());
  // The mode is set by the umask from the first moment on: a chmod after bind would leave a gap.
  const mode_t before = ::umask(0177);
  const int bound = ::bind(fd, generic(address), sizeof address);
  ::umask(before);
  if (bound != 0 || ::listen(fd, 256) != 0) {
    auto error = os_error(bound != 0 ? "bind" : "listen", path.string());
    ::close(fd);
    return error;
  }
  return fd;
}

Result<int> connect_unix(const std::filesystem::path& path) {
  AMK_TRY(address, address_of(path));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return os_error("socket", path.string());
  int status;
  do status = ::connect(fd, generic(address), sizeof address);
  while (status != 0 && errno == EINTR);
  if (status != 0) {
    auto error = os_error("connect", path.string(), ErrorKind::Unavailable);
    ::close(fd);
    return error;
  }
  if (!peer_is_us(fd)) {
    ::close(fd);
    return fail(ErrorKind::Unavailable, "the server at " + path.string() + " belongs to another user");
  }
  return fd;
}

bool peer_is_us(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

}  // namespace amk::daemon
