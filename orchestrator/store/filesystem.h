// What SQLite and our exports need to know of, and do with, the file system. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/files.h"

namespace amk {

enum class FilesystemKind {
  Local,    // locks and shared memory work
  Unknown,  // FUSE and the like: may lack shared memory, so no write-ahead log
  Network,  // locks may be lies: refused
};
struct FilesystemInfo {
  FilesystemKind kind = FilesystemKind::Local;
  std::string name;  // "nfs", "ext4", "fuse.sshfs"; "0x…" when not known by name
};
// By statfs magic and, for FUSE, the type in /proc/self/mountinfo ("" when not known).
FilesystemInfo classify_filesystem(std::uint64_t magic, std::string_view mount_type);
Result<FilesystemInfo> filesystem_of(const std::filesystem::path& existing);

Result<std::int64_t> free_bytes(const std::filesystem::path& existing);  // to this user
// Allocates (not merely sizes) a file of this many bytes. Unavailable {"reason": "disk-full"} when there is no room; nothing is left then.
Status reserve_file(const std::filesystem::path& path, std::int64_t bytes);

}  // namespace amk
