// A file that appears whole or not at all: temporary name, fsync, rename, directory fsync. Not thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk {

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  ~AtomicFile();  // removes the temporary file unless publish() succeeded
  Status write(std::string_view bytes);
  Status publish();
  std::int64_t size() const { return size_; }

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path partial, int fd) : path_(std::move(path)), partial_(std::move(partial)), fd_(fd) {}
  Status flush();
  std::filesystem::path path_, partial_;
  int fd_ = -1;
  std::int64_t size_ = 0;
  std::string buffer_;
};

// All bytes at the end of a file, made when missing.
Status append_bytes(const std::filesystem::path& path, std::string_view bytes);

}  // namespace amk
