// Space kept aside in the workspace, given back to the file system when the disk is full so that finished results can still be written.
// Used by the writing thread only; held() from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "core/base/error.h"

namespace amk {

class Reserve {
 public:
  Reserve(std::filesystem::path path, std::int64_t bytes) : path_(std::move(path)), bytes_(bytes) {}
  // Takes the space unless it is held. Leaves as much free again: a reserve that itself fills the disk helps nobody.
  Status take();
  // True when there was something to give back.
  bool give_back();
  bool held() const { return held_; }

 private:
  std::filesystem::path path_;
  std::int64_t bytes_;
  std::atomic<bool> held_{false};
};

}  // namespace amk
