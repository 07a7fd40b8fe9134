// The rigorous fp64 guard: how far an fp32 chain of k16 steps may be from the exact product. It guards the oracle itself, and is the
// gate on architectures whose class was never compared bit for bit. Pure, thread-safe.
#pragma once

#include <span>
#include <vector>

#include "kernels/det_gemm/oracle.h"

namespace amk::det_gemm {

struct GuardElement {
  double reference = 0;  // Σ x·y in double: products of bf16 are exact, the sum's own error is covered by the bound
  double bound = 0;      // |result − reference| ≤ bound
};

// For each element of the block, row-major. Per step, 17 terms lose less than 2^(e−25) each and the result 2^−23 of itself, with
// 2^e and the partial results at most Σ|x||y| (times 1.004 for growth over the chain): 21·2^−25·Σ|x||y| a step; chunked chains add
// one rounding (2^−24) a chunk. bf16 output adds half a unit, bounded by 2^−8·|reference|. Subnormal results lose 2^−149 a step.
// An element with a non-finite input, or whose Σ|x||y| could overflow, gets an infinite bound: the guard says nothing there.
std::vector<GuardElement> fp64_guard(const Inputs& inputs, const NumericClass& numeric, const Block& block);

// The first element that violates its bound (NaN does, unless the bound is infinite), or -1. `values` are fp32 of the result.
std::int64_t first_violation(std::span<const GuardElement> guard, std::span<const float> values);

}  // namespace amk::det_gemm
