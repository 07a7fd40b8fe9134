#include "orchestrator/store/workspace_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "orchestrator/store/filesystem.h"

namespace amk {

Result<WorkspaceLock> WorkspaceLock::acquire(const std::filesystem::path& workspace) {
  std::error_code code;
  const bool created = std::filesystem::create_directories(workspace, code);
  if (code) return system_error("mkdir", workspace, code.value());
  if (created) std::filesystem::permissions(workspace, std::filesystem::perms::owner_all, code);
  const std::filesystem::path path = workspace / "workspace.lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error("open", path, errno);
  WorkspaceLock lock(fd);
  int rc = 0;
  do rc = ::flock(fd, LOCK_EX | LOCK_NB);
  while (rc != 0 && errno == EINTR);
  if (rc != 0) {
    if (errno != EWOULDBLOCK) return system_error("flock", path, errno);
    char text[32] = {};
    const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
    const long pid = n > 0 ? std::strtol(text, nullptr, 10) : 0;
    return fail(ErrorKind::Conflict,
                "the workspace " + workspace.string() + " is in use by another process" + (pid > 0 ? " (pid " + std::to_string(pid) + ")" : ""),
                {{"reason", "locked"}, {"pid", pid}, {"path", path.string()}});
  }
  // For people who wonder who holds it; nothing reads it to decide anything, so a full disk is no reason to fail.
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0) return lock;
  return lock;
}

WorkspaceLock::WorkspaceLock(WorkspaceLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
WorkspaceLock& WorkspaceLock::operator=(WorkspaceLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
WorkspaceLock::~WorkspaceLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace amk
