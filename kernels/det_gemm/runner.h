// One GPU with everything that running plans on it needs: context, stream, compiler, build cache, loaded kernels. Belongs to the thread
// that opened it; prebuild() uses threads of its own.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/base/error.h"
#include "core/base/resources.h"
#include "core/target/gpu_target.h"
#include "kernels/det_gemm/launcher.h"
#include "kernels/evaluator/build_cache.h"
#include "kernels/evaluator/cuda_runtime.h"

namespace amk::det_gemm {

class Runner {
 public:
  // Unavailable without driver, GPU or NVRTC.
  static Result<std::unique_ptr<Runner>> open(int ordinal, const Resources& resources, const std::filesystem::path& cache_folder);

  const GpuTarget& target() const { return target_; }
  const std::string& uuid() const { return uuid_; }
  const cuda::Stream& stream() const { return stream_; }

  // Compiled (or from the cache) and loaded; kept for the life of the runner.
  Result<const CompiledGemm*> compile(const Plan& plan);

  // Fills the build cache for many plans on `threads` threads; no GPU work.
  static Status prebuild(std::span<const Plan> plans, const Resources& resources, const std::filesystem::path& cache_folder, int threads);

  // A kernel of another file of the device folder (fill.cu, step_probe.cu).
  Result<cuda::Function> helper(const std::string& source, const std::string& kernel, const std::vector<std::string>& options = {});

  // A kernel of the given source text, which may include the device folder's headers.
  Result<cuda::Function> helper_text(const std::string& name, const std::string& text, const std::string& kernel,
                                     const std::vector<std::string>& options = {});

  // Makes the GPU's context current on the calling thread.
  Status make_current() const { return context_.make_current(); }

  // Waits for the stream; any error of earlier work shows here.
  Status synchronize() const { return stream_.synchronize(); }

 private:
  Result<cuda::Function> helper_request(const std::string& key, CompileRequest request, const std::string& kernel,
                                        const std::vector<std::string>& options);
  Result<CompileRequest> bare_request(const std::string& source) const;
  Runner(cuda::Context context, BuildCache cache, NvrtcCompiler compiler)
      : context_(std::move(context)), cache_(std::move(cache)), compiler_(std::move(compiler)) {}
  cuda::Context context_;
  BuildCache cache_;
  NvrtcCompiler compiler_;
  Resources resources_;
  GpuTarget target_;
  std::string uuid_;
  cuda::Stream stream_;
  std::map<std::string, std::unique_ptr<CompiledGemm>> kernels_;
  std::map<std::string, cuda::Module> helpers_;
};

}  // namespace amk::det_gemm
