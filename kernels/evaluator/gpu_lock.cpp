#include "kernels/evaluator/gpu_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace amk {

Result<GpuLock> GpuLock::acquire(const std::string& uuid, std::chrono::milliseconds limit, const std::function<bool()>& stop,
                                 const std::filesystem::path& folder) {
  std::string name = "amk-gpu-";
  for (const char c : uuid) name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  const std::filesystem::path path = folder / (name + ".lock");
  // Readable by all: users of one machine share its GPUs. An existing file of another user is opened read-only, which is enough for flock.
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return fail(ErrorKind::Io, "open " + path.string() + ": " + std::strerror(errno), {{"path", path.string()}, {"errno", errno}});
  GpuLock lock(fd);
  const auto end = std::chrono::steady_clock::now() + limit;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail(ErrorKind::Io, "flock " + path.string() + ": " + std::strerror(errno), {{"errno", errno}});
    if (stop && stop()) return fail(ErrorKind::Cancelled, "cancelled while waiting for the GPU");
    if (std::chrono::steady_clock::now() >= end)
      return fail(ErrorKind::Timeout, "another comparison holds the GPU " + uuid + " (" + path.string() + ")", {{"uuid", uuid}});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return lock;
}

GpuLock::~GpuLock() {
  if (fd_ >= 0) ::close(fd_);  // releases the lock
}

GpuLock::GpuLock(GpuLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

}  // namespace amk
