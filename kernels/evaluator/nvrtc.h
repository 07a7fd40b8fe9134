// NVRTC, the CUDA run-time compiler, opened at run time. No GPU and no driver needed to compile.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace amk {

// A compilation as a value: equal requests give equal machine code.
struct CompileRequest {
  std::string name;  // shown in diagnostics: "megakernel.cu"
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;  // {name as included, text}
  std::vector<std::string> options;                          // "-DN=16", "-std=c++17" …; not the architecture
  std::string architecture;                                  // "sm_90a"
};

struct CompiledKernel {
  std::vector<std::byte> cubin;
  std::string log;  // compiler's and assembler's report (registers, spills)
};

// Thread-safe: NVRTC compiles in parallel threads.
class Nvrtc {
 public:
  // Opens libnvrtc.so.13 or .12 once per process. Unavailable says what is missing.
  static Result<const Nvrtc*> open();
  int major() const { return major_; }
  int minor() const { return minor_; }
  std::string version() const { return std::to_string(major_) + "." + std::to_string(minor_); }
  const std::string& library() const { return library_; }
  bool supports(const std::string& architecture) const;  // "sm_90a": by the list that NVRTC gives

  // InvalidArgument with the compiler's log in data.log when the source does not compile.
  Result<CompiledKernel> compile(const CompileRequest& request) const;

 private:
  struct Api;
  friend struct NvrtcLoader;
  const Api* api_ = nullptr;
  int major_ = 0, minor_ = 0;
  std::string library_;
  std::vector<int> architectures_;
};

}  // namespace amk
