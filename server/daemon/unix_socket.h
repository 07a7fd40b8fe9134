// Unix stream sockets between processes of one user. All descriptors are close-on-exec.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.h"

namespace amk::daemon {

inline constexpr std::size_t kMaxSocketPath = 107;  // sizeof sockaddr_un::sun_path - 1

// A listening, non-blocking socket with mode 0600. Replaces a stale file at `path`: call it only as the holder of the daemon's lock.
Result<int> listen_unix(const std::filesystem::path& path);

// Connected and blocking. Unavailable if nobody listens; refuses a server of another user.
Result<int> connect_unix(const std::filesystem::path& path);

// Whether the process at the other end runs as our user (SO_PEERCRED).
bool peer_is_us(int fd);

// "CALL PATH: reason": for failed operating-system calls.
tl::unexpected<Error> os_error(const std::string& call, const std::string& what, ErrorKind kind = ErrorKind::Io);

}  // namespace amk::daemon
