// A disk whose power fails: what was written but not synced since is gone, whole or torn at sectors, in any mixture.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "orchestrator/store/vfs_shim.h"

namespace amk::test {

// Follows every write, sync, truncation and deletion of the store's files. At the `fail_at`-th step it writes what a disk may hold after a
// power failure at that instant into `image`, and ends the process with SIGKILL.
class PowerLoss final : public VfsObserver {
 public:
  void arm(std::uint64_t seed, std::uint64_t fail_at, std::filesystem::path image);

  int on_write(const std::string& path, StoreFile file, std::string_view bytes, std::int64_t offset) override;
  int on_sync(const std::string& path, StoreFile file) override;
  int on_truncate(const std::string& path, StoreFile file, std::int64_t size) override;
  int on_delete(const std::string& path, bool sync_directory) override;

 private:
  struct Change {
    std::int64_t offset = 0;  // of a write; the new size of a truncation
    std::string bytes;
    bool truncation = false;
  };
  struct File {
    bool exists = false;         // durably: its directory entry
    bool maybe_deleted = false;  // deleted without syncing the directory
    std::string durable;
    std::vector<Change> unsynced;
  };
  File& file_at(const std::string& path);
  void step();
  std::string after_failure(const File& file);

  std::mutex mutex_;
  Rng rng_{0};
  std::uint64_t steps_ = 0, fail_at_ = 0;  // 0: never
  std::filesystem::path image_;
  std::map<std::string, File> files_;
};

// The one PowerLoss of this process and the VFS that reports to it.
PowerLoss& power_loss();
std::string power_loss_vfs();

}  // namespace amk::test
