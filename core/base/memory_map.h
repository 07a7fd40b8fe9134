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
  bool operator==(const FileIdentity&) const = default;
};

// Owns the mapping. Thread-safe to read. Move-only.
class MemoryMap {
 public:
  // A regular file, whole, read-only. The size is taken once, here. Where another process cuts the file afterwards, or the disk cannot read it, a
  // mapping raises SIGBUS; this one shows zeros from there on, and mapped_read_failures() counts it. The first call takes over SIGBUS for the
  // process; what is of no such mapping goes to whoever had it before. Never blocks on a FIFO or device. Errors: NotFound, Io (names call and path),
  // InvalidArgument (not a regular file).
  static Result<MemoryMap> open_file(const std::filesystem::path& path, FileIdentity* known_by = nullptr);
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
  MemoryMap(std::byte* data, std::size_t size, int guard) : data_(data), size_(size), guard_(guard) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int guard_ = -1;  // its place among those whose faults are caught
};

// How often a mapped file could not be read in this process, so far. Who computed from files looks before and after: Io when there were more.
std::uint64_t mapped_read_failures();
Status mapped_reads_succeeded_since(std::uint64_t before);

// What one state of a file is known by, now. NotFound, Io.
Result<FileIdentity> identity_of(const std::filesystem::path& path);

// Bytes this process could still commit without swapping: MemAvailable, lowered by the cgroup's limit. 0 if unknown.
std::uint64_t available_memory_bytes();

}  // namespace amk
