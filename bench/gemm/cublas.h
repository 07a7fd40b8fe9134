// cuBLAS, opened at run time, as the peer to measure against: cublasGemmEx with bf16 in and out and fp32 accumulation, which is what
// PyTorch's matmul calls. Not thread-safe.
#pragma once

#include <string>

#include "core/base/error.h"
#include "kernels/det_gemm/problem.h"
#include "kernels/evaluator/cuda_runtime.h"
#include "kernels/evaluator/shared_library.h"

namespace amk::det_gemm {

class Cublas {
 public:
  // Looks in $AMK_CUBLAS_DIR, the loader's path and the toolkit's folders. Wants a current context.
  static Result<Cublas> open(const cuda::Stream& stream);
  Cublas(Cublas&& other) noexcept;
  ~Cublas();

  // Dense operands of the canonical form, bf16 or fp32 output.
  Status gemm(const Canonical& shape, cuda::DevicePtr x, cuda::DevicePtr y, cuda::DevicePtr out, float beta = 0) const;  // out = x·y + beta·out
  int version() const { return version_; }

 private:
  Cublas() = default;
  SharedLibrary library_;
  void* handle_ = nullptr;
  int version_ = 0;
  cuda::Memory workspace_;
  int (*destroy_)(void*) = nullptr;
  int (*gemm_ex_)(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int a_type, int lda, const void* b,
                  int b_type, int ldb, const void* beta, void* c, int c_type, int ldc, int compute, int algorithm) = nullptr;
};

}  // namespace amk::det_gemm
