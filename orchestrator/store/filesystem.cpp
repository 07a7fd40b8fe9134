#include "orchestrator/store/filesystem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace amk {
namespace {

struct Known {
  std::uint64_t magic;
  const char* name;
  FilesystemKind kind;
};

// Magic numbers: linux/magic.h and the file systems' own headers.
constexpr Known kKnown[] = {
    {0x6969, "nfs", FilesystemKind::Network},         {0x517B, "smb", FilesystemKind::Network},
    {0xFF534D42, "cifs", FilesystemKind::Network},    {0xFE534D42, "smb2", FilesystemKind::Network},
    {0x01021997, "9p", FilesystemKind::Network},      {0x5346414F, "afs", FilesystemKind::Network},
    {0x6B414653, "kafs", FilesystemKind::Network},    {0x73757245, "coda", FilesystemKind::Network},
    {0x564C, "ncp", FilesystemKind::Network},         {0x00C36400, "ceph", FilesystemKind::Network},
    {0x0BD00BD0, "lustre", FilesystemKind::Network},  {0x47504653, "gpfs", FilesystemKind::Network},
    {0x19830326, "beegfs", FilesystemKind::Network},  {0xAAD7AAEA, "panfs", FilesystemKind::Network},
    {0x7461636F, "ocfs2", FilesystemKind::Network},   {0x01161970, "gfs2", FilesystemKind::Network},
    {0x786F4256, "vboxsf", FilesystemKind::Network},  {0x7C7C6673, "prl_fs", FilesystemKind::Network},
    {0xEF53, "ext4", FilesystemKind::Local},          {0x58465342, "xfs", FilesystemKind::Local},
    {0x9123683E, "btrfs", FilesystemKind::Local},     {0x01021994, "tmpfs", FilesystemKind::Local},
    {0x794C7630, "overlayfs", FilesystemKind::Local}, {0x2FC12FC1, "zfs", FilesystemKind::Local},
    {0xF2F52010, "f2fs", FilesystemKind::Local},      {0xCA451A4E, "bcachefs", FilesystemKind::Local},
    {0x65735546, "fuse", FilesystemKind::Unknown},
};

// FUSE file systems whose data is on another machine.
constexpr const char* kRemoteFuse[] = {"fuse.sshfs",     "fuse.rclone",    "fuse.s3fs",   "fuse.gcsfuse",    "fuse.glusterfs",
                                       "fuse.ceph-fuse", "fuse.juicefs",   "fuse.mfs",    "fuse.davfs",      "fuse.curlftpfs",
                                       "fuse.blobfuse",  "fuse.blobfuse2", "fuse.goofys", "fuse.nfs-ganesha"};

// Type of the deepest mount that holds `path`; "" when it cannot be told.
std::string mount_type_of(const std::filesystem::path& path) {
  std::error_code code;
  const std::string target = std::filesystem::canonical(path, code).string();
  if (code) return {};
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line, best_type;
  std::size_t best_length = 0;
  while (std::getline(mounts, line)) {
    // id parent major:minor root mount-point options… - type source options
    std::istringstream fields(line);
    std::string skip, mount, type;
    fields >> skip >> skip >> skip >> skip >> mount;
    while (fields >> skip && skip != "-") {
    }
    fields >> type;
    const bool inside = mount == "/" || target == mount || (target.starts_with(mount) && target[mount.size()] == '/');
    if (inside && mount.size() >= best_length) {
      best_length = mount.size();
      best_type = type;
    }
  }
  return best_type;
}

}  // namespace

FilesystemInfo classify_filesystem(std::uint64_t magic, std::string_view mount_type) {
  for (const Known& known : kKnown) {
    if (known.magic != magic) continue;
    if (known.kind != FilesystemKind::Unknown) return {known.kind, known.name};
    for (const char* remote : kRemoteFuse)
      if (mount_type == remote) return {FilesystemKind::Network, std::string(mount_type)};
    return {FilesystemKind::Unknown, mount_type.empty() ? known.name : std::string(mount_type)};
  }
  std::array<char, 24> hex{};
  std::snprintf(hex.data(), hex.size(), "0x%llx", static_cast<unsigned long long>(magic));
  return {FilesystemKind::Local, std::string(mount_type.empty() ? hex.data() : mount_type)};
}

Result<FilesystemInfo> filesystem_of(const std::filesystem::path& existing) {
  struct statfs info {};
  int rc = 0;
  do rc = ::statfs(existing.c_str(), &info);
  while (rc != 0 && errno == EINTR);
  if (rc != 0) return system_error("statfs", existing, errno);
  // f_type is signed on some architectures: only its low 32 bits are the magic number.
  return classify_filesystem(static_cast<std::uint32_t>(info.f_type), mount_type_of(existing));
}

Result<std::int64_t> free_bytes(const std::filesystem::path& existing) {
  struct statvfs info {};
  if (::statvfs(existing.c_str(), &info) != 0) return system_error("statvfs", existing, errno);
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

Status reserve_file(const std::filesystem::path& path, std::int64_t bytes) {
  AMK_TRY(fd, open_regular(path, O_RDWR | O_CREAT, 0600));
  const int code = ::posix_fallocate(fd, 0, bytes);
  ::close(fd);
  if (code != 0) {
    ::unlink(path.c_str());
    return system_error("posix_fallocate", path, code);
  }
  return {};
}

}  // namespace amk
