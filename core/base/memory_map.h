// Memory from the operating system: a file mapped read-only, or zeroed pages that cost nothing until touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/base/error.h"

namespace amk {

// What tells one state of a file from another without reading it.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;  // ctime: moves with every write and cannot be set back by a user
};

// Owns the mapping. Thread-safe to read. Move-only.
class MemoryMap {
 public:
  // A regular file, whole, read-only. The size is taken once, here. A file that another process truncates afterwards makes reads past
  // its new end raise SIGBUS, as with every mapping: do not overwrite checkpoints in place while they are in use.
  // Never blocks on a FIFO or device. Errors: NotFound, Io (names call and path), InvalidArgument (not a regular file).
  static Result<MemoryMap> open_file(const std::filesystem::path& path, FileIdentity* identity = nullptr);
  // Zero-filled, writable, committed page by page on first touch. Errors: Unavailable.
  static Result<MemoryMap> anonymous(std::size_t bytes);

  MemoryMap() = default;
  MemoryMap(MemoryMap&& other) noexcept;
  MemoryMap& operator=(MemoryMap&& other) noexcept;
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;
  ~MemoryMap();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::byte* data() { return data_; }  // of anonymous memory; a mapped file must not be written
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  MemoryMap(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Bytes this process could still commit without swapping: MemAvailable, lowered by the cgroup's limit. 0 if unknown.
std::uint64_t available_memory_bytes();

}  // namespace amk
