#include "orchestrator/results/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <utility>

#include "orchestrator/store/failpoint.h"
#include "orchestrator/store/filesystem.h"

namespace amk {
namespace {

constexpr std::size_t kBuffer = 1 << 20;

Status write_all(int fd, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  std::filesystem::path partial = path.string() + ".partial";
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("open", partial, errno);
  return AtomicFile(path, std::move(partial), fd);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(partial_.c_str());
}

Status AtomicFile::flush() {
  AMK_CHECK(write_all(fd_, buffer_, partial_));
  buffer_.clear();
  return {};
}

Status AtomicFile::write(std::string_view bytes) {
  buffer_ += bytes;
  size_ += static_cast<std::int64_t>(bytes.size());
  return buffer_.size() >= kBuffer ? flush() : Status{};
}

Status AtomicFile::publish() {
  AMK_CHECK(flush());
  if (::fsync(fd_) != 0) return system_error("fsync", partial_, errno);
  AMK_CHECK(failpoint::check(Failpoint::ExportWritten));
  if (::rename(partial_.c_str(), path_.c_str()) != 0) return system_error("rename", path_, errno);
  ::close(std::exchange(fd_, -1));
  const std::filesystem::path folder = path_.parent_path();
  AMK_CHECK(sync_directory(folder.empty() ? std::filesystem::path(".") : folder));
  return failpoint::check(Failpoint::ExportRenamed);
}

Status append_bytes(const std::filesystem::path& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("open", path, errno);
  const Status written = write_all(fd, bytes, path);
  ::close(fd);
  return written;
}

}  // namespace amk
