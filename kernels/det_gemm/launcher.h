// A plan on a real GPU: compilation request, loaded kernel, launch. A CompiledGemm belongs to the thread whose context loaded it.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>

#include "core/base/error.h"
#include "kernels/det_gemm/plan.h"
#include "kernels/evaluator/cuda_runtime.h"
#include "kernels/evaluator/nvrtc.h"

namespace amk::det_gemm {

// Source, headers and -D constants of a plan. `kernels_dir` holds det_gemm/device.
Result<CompileRequest> compile_request(const Plan& plan, const std::filesystem::path& kernels_dir);

// Device addresses, in the caller's order (x, y as in plan.shape). The plan's storage promised their alignment; launch() checks it.
struct Buffers {
  cuda::DevicePtr x = 0, y = 0, out = 0;
  cuda::DevicePtr total_in = 0;  // fp32 sums [m][n] to continue from: resumed, or chunked, where 0 starts at zero
};

class CompiledGemm {
 public:
  // Loads machine code made from compile_request(plan). Rejected when the device cannot hold one block of it.
  static Result<CompiledGemm> load(const Plan& plan, std::span<const std::byte> cubin, int sm_count);

  // Asynchronous. InvalidArgument for an address that breaks the promised alignment. At most `max_blocks` blocks when > 0 (the paths
  // that are not persistent ignore it): results do not depend on it.
  Status launch(const Buffers& buffers, cuda::abi::Stream stream, int max_blocks = 0) const;

  const Plan& plan() const { return plan_; }
  int registers() const { return registers_; }
  int resident_blocks() const { return resident_blocks_; }  // on the whole device, whole clusters

 private:
  Status launch_wgmma(const Buffers& buffers, cuda::abi::Stream stream, int max_blocks) const;
  Status launch_simple(const Buffers& buffers, cuda::abi::Stream stream) const;
  Status enqueue(std::int64_t blocks, void* parameters, cuda::abi::Stream stream) const;
  using LaunchAttributes = std::array<cuda::abi::LaunchAttribute, 2>;
  cuda::abi::LaunchConfig launch_config(std::int64_t blocks, cuda::abi::Stream stream, LaunchAttributes& attributes) const;
  Plan plan_;
  cuda::Module module_;
  cuda::Function function_;
  int registers_ = 0;
  int resident_blocks_ = 0;
};

}  // namespace amk::det_gemm
