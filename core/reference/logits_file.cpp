#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/reference/generate.h"

namespace amk {
namespace {

tl::unexpected<Error> io_error(const char* call, const std::filesystem::path& path, int code) {
  return fail(ErrorKind::Io, std::string(call) + " " + path.string() + ": " + std::strerror(code), {{"path", path.string()}, {"errno", code}});
}

}  // namespace

Result<LogitsFile> LogitsFile::create(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return io_error("open", path, errno);
  return LogitsFile(path, fd);
}

Status LogitsFile::append(std::span<const float> logits) {
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  const char* at = reinterpret_cast<const char*>(logits.data());
  for (std::size_t left = logits.size_bytes(); left > 0;) {
    const ssize_t n = ::write(fd_, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("write", path_, errno);
    at += n;
    left -= static_cast<std::size_t>(n);
  }
  return {};
}

Status LogitsFile::finish() {
  // close() reports write errors that were deferred (quotas, network file systems).
  if (::close(std::exchange(fd_, -1)) != 0) return io_error("close", path_, errno);
  return {};
}

LogitsFile::LogitsFile(LogitsFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

LogitsFile& LogitsFile::operator=(LogitsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

LogitsFile::~LogitsFile() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace amk
