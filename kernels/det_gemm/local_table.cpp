// The file of autotune.h.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/files.h"
#include "core/base/json.h"
#include "kernels/det_gemm/autotune.h"

namespace amk::det_gemm {
namespace {

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
  if (lock.fd() < 0) return system_error("open", lock_path, errno);
  if (::flock(lock.fd(), LOCK_EX) != 0) return system_error("flock", lock_path, errno);
  AMK_TRY(table, load_local_table(path));  // again: another process may have added to it
  AMK_TRY(one, TunedTable::parse(tuned_file({entry})));
  table.append(std::move(one));
  return replace_file(path, tuned_file(table.entries()).dump(1) + "\n", {.mode = 0600});
}

}  // namespace amk::det_gemm
