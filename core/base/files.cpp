#include "core/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

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

bool leads_to(const std::filesystem::path& path, int fd) {
  struct stat there {
  }, ours{};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(fd, &ours) == 0 && there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
}

// The temporary file, locked and empty. Who had the lock before may have renamed it meanwhile: then the name leads elsewhere, and it is tried again.
Result<int> open_partial(const std::filesystem::path& partial, const std::filesystem::path& path, const Replacing& how) {
  for (;;) {
    AMK_TRY(fd, open_regular(partial, O_WRONLY | O_CREAT, how.mode));
    int locked = 0;
    do locked = ::flock(fd, LOCK_EX);
    while (locked != 0 && errno == EINTR);
    // A file system without locks: the last of two writers wins, whose file may be torn if they were at it at the same time.
    if (locked == 0 && !leads_to(partial, fd)) {
      ::close(fd);
      continue;
    }
    struct stat old {};
    const bool keep = how.keep_mode && ::stat(path.c_str(), &old) == 0;
    if (::ftruncate(fd, 0) == 0 && (!keep || ::fchmod(fd, old.st_mode & 07777) == 0)) return fd;
    const int error_number = errno;
    ::close(fd);
    return system_error("ftruncate", partial, error_number);
  }
}

}  // namespace

tl::unexpected<Error> system_error(std::string_view call, const std::filesystem::path& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;  // the last: a limit on this process (ulimit -f)
  const bool read_only = error_number == EROFS;
  char text[128];
  std::string message = std::string(call) + " " + path.string() + ": " + ::strerror_r(error_number, text, sizeof text);
  return fail(full || read_only ? ErrorKind::Unavailable : ErrorKind::Io, std::move(message),
              {{"reason", full        ? "disk-full"
                          : read_only ? "read-only"
                                      : "io"},
               {"call", call},
               {"errno", error_number},
               {"path", path.string()}});
}

Status sync_directory(const std::filesystem::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return system_error("open", directory, errno);
  const int rc = ::fsync(fd);
  const int error_number = errno;
  ::close(fd);
  if (rc != 0) return system_error("fsync", directory, error_number);
  return {};
}

std::filesystem::path own_folder(const std::filesystem::path& wanted) {
  if (::mkdir(wanted.c_str(), 0700) == 0) return wanted;
  struct stat info {};
  if (::lstat(wanted.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 022) == 0) return wanted;
  std::string other = wanted.string() + "-XXXXXX";
  return ::mkdtemp(other.data()) != nullptr ? std::filesystem::path(other) : wanted / "taken";  // where nothing can be made: who writes there is told
}

Result<int> open_regular(const std::filesystem::path& path, int flags, mode_t mode) {
  const auto stranger = [&path](std::string_view what) {
    return fail(ErrorKind::InvalidArgument, path.string() + " is " + std::string(what) + "; accepted: a regular file",
                {{"path", path.string()}, {"accepted", "a regular file"}});
  };
  // O_NONBLOCK means nothing to a regular file.
  const int fd = ::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);
  if (fd < 0) {
    struct stat there {};
    if ((errno == ELOOP || errno == ENXIO || errno == EISDIR) && ::lstat(path.c_str(), &there) == 0)
      return stranger(S_ISLNK(there.st_mode) ? "a symbolic link" : S_ISDIR(there.st_mode) ? "a folder" : "a FIFO, a socket or a device");
    return system_error("open", path, errno);
  }
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  return stranger(S_ISDIR(info.st_mode) ? "a folder" : "a FIFO, a socket or a device");
}

Result<std::string> read_range(const std::filesystem::path& path, std::int64_t from, std::int64_t to) {
  AMK_TRY(fd, open_regular(path, O_RDONLY));
  std::string bytes(static_cast<std::size_t>(std::max<std::int64_t>(0, to - from)), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(fd, bytes.data() + done, bytes.size() - done, from + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error_number = errno;
      ::close(fd);
      return system_error("read", path, error_number);
    }
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  ::close(fd);
  bytes.resize(done);
  return bytes;
}

Status append_bytes(const std::filesystem::path& path, std::string_view bytes) {
  AMK_TRY(fd, open_regular(path, O_WRONLY | O_CREAT | O_APPEND));
  Status written = write_all(fd, bytes, path);
  ::close(fd);
  return written;
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path, const Replacing& how) {
  std::filesystem::path partial = path.string() + ".partial";
  AMK_TRY(fd, open_partial(partial, path, how));
  return AtomicFile(path, std::move(partial), fd, how.durable);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      fd_(std::exchange(other.fd_, -1)),
      durable_(other.durable_),
      complete_(other.complete_),
      size_(other.size_),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  if (leads_to(partial_, fd_)) ::unlink(partial_.c_str());
  ::close(fd_);
}

Status AtomicFile::flush() {
  AMK_CHECK(write_all(fd_, buffer_, partial_));
  buffer_.clear();
  return {};
}

Status AtomicFile::write(std::string_view bytes) {
  complete_ = false;
  buffer_ += bytes;
  size_ += static_cast<std::int64_t>(bytes.size());
  return buffer_.size() >= kBuffer ? flush() : Status{};
}

Status AtomicFile::complete() {
  if (complete_) return {};
  AMK_CHECK(flush());
  if (durable_ && ::fsync(fd_) != 0) return system_error("fsync", partial_, errno);
  complete_ = true;
  return {};
}

Status AtomicFile::publish() {
  AMK_CHECK(complete());
  if (::rename(partial_.c_str(), path_.c_str()) != 0) return system_error("rename", path_, errno);
  ::close(std::exchange(fd_, -1));
  if (!durable_) return {};
  const std::filesystem::path folder = path_.parent_path();
  return sync_directory(folder.empty() ? std::filesystem::path(".") : folder);
}

Status replace_file(const std::filesystem::path& path, std::string_view text, const Replacing& how) {
  AMK_TRY(file, AtomicFile::create(path, how));
  AMK_CHECK(file.write(text));
  return file.publish();
}

}  // namespace amk
