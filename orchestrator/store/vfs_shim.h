// A SQLite VFS that passes everything to the default one and tells an observer before each durable step: how tests stop the process at any
// write, fill the disk, or take the power away. Registered only when asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace amk {

enum class StoreFile { Database, Wal, Journal, Other };
StoreFile store_file_of(std::string_view path);  // by suffix

// Called on the thread that does the I/O, before it. A value other than 0 (SQLITE_OK) is returned to SQLite in its stead.
class VfsObserver {
 public:
  virtual ~VfsObserver() = default;
  virtual int on_write(const std::string& path, StoreFile file, std::string_view bytes, std::int64_t offset) = 0;
  virtual int on_sync(const std::string& path, StoreFile file) = 0;
  virtual int on_truncate(const std::string& path, StoreFile file, std::int64_t size) = 0;
  virtual int on_delete(const std::string& path, bool sync_directory) = 0;
};

// Registers (once) the VFS `name`, which reports to `observer`; both live as long as the process. Returns `name`.
std::string register_vfs_shim(const std::string& name, VfsObserver& observer);

// The shim whose observer is the failpoints vfs.*.
std::string failpoint_vfs();

}  // namespace amk
