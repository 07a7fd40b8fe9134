// Matrix-vector products in fp32, compiled for several instruction sets and chosen at run time. Every variant gives the same bits:
// 32 partial sums (sum j takes the columns congruent to j mod 32, in order, product and sum rounded separately), then a fixed tree.
// The products are bound by memory, so the fused multiply-add that would make variants differ gains nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/model_spec.h"

namespace amk {

struct DotKernels {
  const char* name;  // "sse2" (the x86-64 baseline, or plain code elsewhere), "avx2", "avx512"
  // y[r] = sum over c of rows[r][c] * x[c] for r in [0, count). `rows`: contiguous [count, cols] of F32, F16 or BF16, any alignment.
  void (*gemv)(const std::byte* rows, DType dtype, std::int64_t count, std::int64_t cols, const float* x, float* y);
};

const DotKernels& dot_kernels();                // the widest this CPU runs
std::span<const DotKernels> all_dot_kernels();  // every one this CPU runs, narrowest first

}  // namespace amk
