// What every writer of files needs: errors that name the call and the path, and files that appear whole or not at all. Functions are thread-safe;
// an AtomicFile belongs to one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace amk {

// An Io error, or Unavailable disk-full / read-only, of a failed system call: names call, errno and path.
tl::unexpected<Error> system_error(std::string_view call, const std::filesystem::path& path, int error_number);

Status sync_directory(const std::filesystem::path& directory);

// A folder of ours that nobody else can write: this one, made if need be, or, where somebody was there first (/tmp is everybody's, and what is kept
// there may be run), another of a name that nobody can know.
std::filesystem::path own_folder(const std::filesystem::path& wanted);

// open() of a regular file that is its own: not through a link, whose target would be another's to choose, and never waiting for the other end of a
// FIFO that stands in its place. `flags` as of open(2); O_CLOEXEC is added. InvalidArgument says what is there instead.
Result<int> open_regular(const std::filesystem::path& path, int flags, mode_t mode = 0644);

// The bytes [from, to) of such a file, as far as it has them.
Result<std::string> read_range(const std::filesystem::path& path, std::int64_t from, std::int64_t to);

// All bytes at the end of such a file, made when missing.
Status append_bytes(const std::filesystem::path& path, std::string_view bytes);

// How a file is replaced.
struct Replacing {
  mode_t mode = 0644;      // the umask's share taken away, as open() does
  bool keep_mode = false;  // the permissions of the file that is replaced, where there is one
  bool durable = true;     // false: not synced; after a power loss the file may be the old one, the new one or empty
};

// Written under PATH.partial, then renamed. Writers of one path wait for each other, threads and processes alike: the temporary file is locked, so
// that its name can be the same every time and a killed writer leaves at most one, which the next one takes over.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path, const Replacing& how = {});
  AtomicFile(AtomicFile&& other) noexcept;
  ~AtomicFile();  // removes the temporary file unless publish() succeeded
  Status write(std::string_view bytes);
  Status complete();  // everything is in the temporary file, on the disk if durable; publish() does it when it was not done
  Status publish();
  std::int64_t size() const { return size_; }

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path partial, int fd, bool durable)
      : path_(std::move(path)), partial_(std::move(partial)), fd_(fd), durable_(durable) {}
  Status flush();
  std::filesystem::path path_, partial_;
  int fd_ = -1;
  bool durable_ = true, complete_ = false;
  std::int64_t size_ = 0;
  std::string buffer_;
};

// An AtomicFile of one text.
Status replace_file(const std::filesystem::path& path, std::string_view text, const Replacing& how = {});

}  // namespace amk
