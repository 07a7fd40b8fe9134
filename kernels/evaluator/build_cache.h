// Machine code by content: key = hash of (source, headers, options, architecture, compiler version). One file an entry, written to a
// temporary name, synced, renamed: readers see a whole entry or none. Safe under several processes and threads; losing a race is fine.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "kernels/evaluator/nvrtc.h"

namespace amk {

// What turns a request into machine code; NVRTC in the program, a fake in tests. Thread-safe.
class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string version() const = 0;
  virtual Result<CompiledKernel> compile(const CompileRequest& request) const = 0;
};

class NvrtcCompiler final : public Compiler {
 public:
  static Result<NvrtcCompiler> open();
  std::string version() const override { return nvrtc_->version(); }
  Result<CompiledKernel> compile(const CompileRequest& request) const override { return nvrtc_->compile(request); }

 private:
  const Nvrtc* nvrtc_ = nullptr;
};

class BuildCache {
 public:
  struct Limits {
    std::int64_t bytes = 1LL << 30;  // of all entries; the least recently used go first
  };
  struct Built {
    CompiledKernel kernel;
    bool cached = false;
    double build_ms = 0;  // of this call: near 0 when cached
  };

  // Creates `folder` when absent. Io when that fails.
  static Result<BuildCache> open(std::filesystem::path folder, Limits limits);
  static Result<BuildCache> open(std::filesystem::path folder) { return open(std::move(folder), Limits{}); }

  // The entry, else compiles and stores it. A damaged entry counts as absent. A full disk costs the entry, not the build.
  Result<Built> build(const Compiler& compiler, const CompileRequest& request) const;

  static std::string key(const std::string& compiler_version, const CompileRequest& request);
  std::optional<CompiledKernel> find(const std::string& key) const;
  Status store(const std::string& key, const CompiledKernel& kernel) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  BuildCache(std::filesystem::path folder, Limits limits) : folder_(std::move(folder)), limits_(limits) {}
  void evict() const;
  std::filesystem::path folder_;
  Limits limits_;
};

}  // namespace amk
