#include "core/base/resources.h"

#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

namespace amk {
namespace fs = std::filesystem;
namespace {

bool holds_resources(const fs::path& dir) {
  std::error_code ignored;
  return fs::is_directory(dir / "config", ignored) && fs::is_directory(dir / "schemas", ignored);
}

fs::path running_binary_dir() {
  std::error_code failed;
  const fs::path binary = fs::read_symlink("/proc/self/exe", failed);
  return failed ? fs::path() : binary.parent_path();
}

}  // namespace

Result<Resources> find_resources(const fs::path& override_dir, const fs::path& binary_dir, const fs::path& source_dir) {
  std::vector<fs::path> candidates;
  if (!override_dir.empty()) {
    candidates = {override_dir};
  } else {
    if (!binary_dir.empty()) {
      candidates.push_back(binary_dir / ".." / "share" / "amk");
      candidates.push_back(binary_dir);
    }
    if (!source_dir.empty()) candidates.push_back(source_dir);
  }
  std::string tried;
  for (const fs::path& dir : candidates) {
    if (holds_resources(dir)) return Resources{dir.lexically_normal()};
    tried += (tried.empty() ? "" : ", ") + dir.lexically_normal().string();
  }
  return fail(ErrorKind::NotFound, "no folder with config/ and schemas/ among: " + tried + "; set AMK_RESOURCES to one",
              {{"field", "AMK_RESOURCES"}, {"tried", tried}});
}

Result<Resources> find_resources() {
  const char* override_dir = std::getenv("AMK_RESOURCES");
  return find_resources(override_dir == nullptr ? fs::path() : fs::path(override_dir), running_binary_dir(), AMK_SOURCE_DIR);
}

}  // namespace amk
