// The definition of a numeric class, one scalar step at a time: slow, readable, the arbiter of every faster path. Pure, thread-safe.
#pragma once

#include <cstdint>

#include "kernels/det_gemm/numeric_class.h"

namespace amk::det_gemm {

// One matrix-instruction step for one output element: accumulator bits (fp32) plus `step.k_step` products of bf16 pairs.
// `a` and `b` point to k_step values each.
std::uint32_t chain_step(std::uint32_t accumulator, const std::uint16_t* a, const std::uint16_t* b, const ChainStep& step);

}  // namespace amk::det_gemm
