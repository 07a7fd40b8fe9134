// Where the program's data lives: config/ (targets, catalogue), schemas/ and the device sources under kernels/. Thread-safe.
#pragma once

#include <filesystem>

#include "core/base/error.h"

namespace amk {

struct Resources {
  std::filesystem::path root;
  std::filesystem::path config() const { return root / "config"; }
  std::filesystem::path schemas() const { return root / "schemas"; }
  std::filesystem::path kernels() const { return root / "kernels"; }
};

// $AMK_RESOURCES when set (and then nothing else: a wrong setting is an error, not a fallback); else beside the running binary
// (a bundle's <bin>/../share/amk, then <bin> itself); else the source tree that the binary was built from. A folder counts when it
// holds config/ and schemas/. NotFound lists what was tried.
Result<Resources> find_resources();

// The same with everything explicit, for tests: empty paths are skipped.
Result<Resources> find_resources(const std::filesystem::path& override_dir, const std::filesystem::path& binary_dir,
                                 const std::filesystem::path& source_dir);

}  // namespace amk
