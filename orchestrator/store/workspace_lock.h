// One process per workspace. The lock lives in the kernel (flock on workspace.lock), so it goes when its holder dies in whatever way; the file
// stays and means nothing by itself. Not inherited across exec. Movable; released by the destructor.
#pragma once

#include <filesystem>

#include "core/base/error.h"

namespace amk {

class WorkspaceLock {
 public:
  // Creates the workspace (0700) when missing. Conflict {"reason": "locked", "pid"} when another holder lives.
  static Result<WorkspaceLock> acquire(const std::filesystem::path& workspace);
  WorkspaceLock(WorkspaceLock&& other) noexcept;
  WorkspaceLock& operator=(WorkspaceLock&& other) noexcept;
  ~WorkspaceLock();

 private:
  explicit WorkspaceLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace amk
