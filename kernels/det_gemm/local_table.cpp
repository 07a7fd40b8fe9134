// The file of autotune.h.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/json.h"
#include "kernels/det_gemm/autotune.h"

namespace amk::det_gemm {
namespace {

Error io_error(const char* call, const std::filesystem::path& path) {
  return {ErrorKind::Io, std::string(call) + " of " + path.string() + " failed: " + std::strerror(errno), {{"path", path.string()}}};
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Temporary name, fsync, rename: a reader sees the old file or the new one.
Status replace(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path partial = path.string() + ".partial";  // one writer at a time: the lock is held
  const File file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.fd() < 0) return tl::unexpected<Error>(io_error("open", partial));
  while (!text.empty()) {
    const ssize_t n = ::write(file.fd(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected<Error>(io_error("write", partial));
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(file.fd()) != 0) return tl::unexpected<Error>(io_error("fsync", partial));
  if (::rename(partial.c_str(), path.c_str()) != 0) return tl::unexpected<Error>(io_error("rename", partial));
  return {};
}

}  // namespace

Result<TunedTable> load_local_table(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code) && !code) return TunedTable();
  return TunedTable::load(path);
}

Status add_to_local_table(const std::filesystem::path& path, const TunedEntry& entry) {
  std::error_code code;
  std::filesystem::create_directories(path.parent_path(), code);  // if it failed, the next open says so
  const std::filesystem::path lock_path = path.string() + ".lock";
  const File lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.fd() < 0) return tl::unexpected<Error>(io_error("open", lock_path));
  if (::flock(lock.fd(), LOCK_EX) != 0) return tl::unexpected<Error>(io_error("flock", lock_path));
  AMK_TRY(table, load_local_table(path));  // again: another process may have added to it
  AMK_TRY(one, TunedTable::parse(tuned_file({entry})));
  table.append(std::move(one));
  return replace(path, tuned_file(table.entries()).dump(1) + "\n");
}

}  // namespace amk::det_gemm
