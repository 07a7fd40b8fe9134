// A shared library opened at run time: the program links no CUDA library, so that one binary runs with and without a GPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace amk {

// Owns the handle; never unloaded (driver libraries keep threads). Movable, thread-safe when const.
class SharedLibrary {
 public:
  // The first of `names` that opens, each tried plain (loader's path) and then in `folders`. Unavailable lists what was tried and why
  // it failed; `what` says what the library is for ("the NVIDIA driver").
  static Result<SharedLibrary> open(std::string_view what, const std::vector<std::string>& names, const std::vector<std::string>& folders = {});

  void* find(const char* symbol) const;  // nullptr when absent
  // Sets `function`; Unavailable says that the library is too old for `symbol`.
  template <class F>
  Status load(F*& function, const char* symbol) const {
    function = reinterpret_cast<F*>(find(symbol));
    if (function != nullptr) return {};
    return missing(symbol);
  }
  const std::string& name() const { return name_; }

 private:
  Status missing(const char* symbol) const;
  void* handle_ = nullptr;
  std::string name_;
};

// Folders in which a CUDA toolkit keeps its libraries: $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, each with lib64 and lib.
std::vector<std::string> cuda_library_folders();

}  // namespace amk
