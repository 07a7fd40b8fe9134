// Numeric classes: the arithmetic that a result is defined by, apart from the kernel that computed it. Two kernels of one class give
// equal bits whatever their tiles, warps or schedules. Results of different classes are never mixed. Value types, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk::det_gemm {

// How a matrix instruction adds `k_step` exact products to an fp32 accumulator: every term is truncated toward zero to `fraction_bits`
// bits below the largest exponent among the terms, the sum is exact, and the result is rounded toward zero to fp32.
// A product's exponent is the sum of its factors' exponents, not renormalised.
struct ChainStep {
  int k_step = 16;
  int fraction_bits = 25;
  bool operator==(const ChainStep&) const = default;
};

struct NumericClass {
  std::string id;  // travels with every result: "hopper-k16", "hopper-k16/chunk512"
  ChainStep step;
  std::int64_t chunk = 0;  // > 0: the contraction is cut at multiples of `chunk`; partial chains are added in ascending order in fp32
  bool verified = false;   // bits compared with real hardware; otherwise only the error bound can be a gate
  bool operator==(const NumericClass&) const = default;
};

// The class that a GPU's mma.sync m16n8k16 and (where present) wgmma implement. Architectures whose arithmetic was never compared bit
// for bit are not `verified`: there a candidate is gated by the error bound, and by equality of bits with the plain kernel on the same
// device, never with this model. Unsupported below sm_80.
Result<NumericClass> numeric_class_of(int sm_major, int sm_minor);

// The same arithmetic with the contraction cut into chunks; `chunk` is a positive multiple of k_step.
Result<NumericClass> chunked(const NumericClass& base, std::int64_t chunk);

}  // namespace amk::det_gemm
