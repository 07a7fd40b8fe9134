#include "kernels/evaluator/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace amk {

Result<SharedLibrary> SharedLibrary::open(std::string_view what, const std::vector<std::string>& names, const std::vector<std::string>& folders) {
  std::string first_reason;
  const auto try_open = [&](const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr && first_reason.empty()) {
      const char* reason = dlerror();
      first_reason = reason != nullptr ? reason : "unknown reason";
    }
    return handle;
  };
  for (const std::string& name : names) {
    SharedLibrary library;
    library.name_ = name;
    library.handle_ = try_open(name);
    for (std::size_t i = 0; library.handle_ == nullptr && i < folders.size(); ++i) {
      library.name_ = folders[i] + "/" + name;
      library.handle_ = try_open(library.name_);
    }
    if (library.handle_ != nullptr) return library;
  }
  std::string tried;
  for (const std::string& name : names) tried += (tried.empty() ? "" : ", ") + name;
  return fail(ErrorKind::Unavailable, std::string(what) + " was not found (tried " + tried + "): " + first_reason,
              {{"library", names.empty() ? "" : names.front()}, {"tried", names}, {"folders", folders}});
}

void* SharedLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

Status SharedLibrary::missing(const char* symbol) const {
  return fail(ErrorKind::Unavailable, name_ + " is too old: it has no " + symbol, {{"library", name_}, {"symbol", symbol}});
}

std::vector<std::string> cuda_library_folders() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* root = std::getenv(variable);
    if (root == nullptr || *root == '\0') continue;
    folders.push_back(std::string(root) + "/lib64");
    folders.push_back(std::string(root) + "/lib");
  }
  folders.emplace_back("/usr/local/cuda/lib64");
  folders.emplace_back("/usr/local/cuda/lib");
  return folders;
}

}  // namespace amk
