// One comparison at a time on a GPU, across all processes of this machine: an OS-released lock by the GPU's UUID.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "core/base/error.h"

namespace amk {

// The same for all processes, whatever TMPDIR they were started with: agents give their own to what they start.
inline constexpr const char* kGpuLockFolder = "/tmp";

class GpuLock {
 public:
  // Waits up to `limit`; `stop` (may be empty) is asked every 50 ms. Timeout or Cancelled otherwise. `folder` is the same for all processes.
  static Result<GpuLock> acquire(const std::string& uuid, std::chrono::milliseconds limit, const std::function<bool()>& stop = {},
                                 const std::filesystem::path& folder = kGpuLockFolder);
  ~GpuLock();
  GpuLock(GpuLock&& other) noexcept;
  GpuLock& operator=(GpuLock&&) = delete;

 private:
  explicit GpuLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace amk
