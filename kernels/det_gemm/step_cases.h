// Families of single k16 steps that probe the corners of the arithmetic: inputs for comparing hardware with chain_step(). Deterministic.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/random.h"

namespace amk::det_gemm {

enum class StepFamily {
  Normal,           // N(0,1) factors, accumulator of the same size
  Wide,             // exponents spread over ±10
  VeryWide,         // exponents over most of the range
  AnyFinite,        // random bits without infinities and NaN
  Specials,         // random bits, with infinities and NaN
  HugeTimesZero,    // zeros beside huge factors: does a zero product decide the alignment?
  SubnormalInputs,  // subnormal factors beside huge ones
  TinyResults,      // products and accumulators around the subnormal range of fp32
  Overflow,         // sums near and beyond the largest finite value
  SignedZeros,      // every term a zero or vanishing
  Cancellation,     // terms that cancel exactly or nearly
  ZeroProducts,     // products all zero: does the accumulator pass through?
};
constexpr int kStepFamilies = 12;
std::string_view to_string(StepFamily family);

// One unit of the probe kernel: a 64×16, b 8×16 (k contiguous), c 64×8 fp32 bits.
struct StepUnit {
  std::vector<std::uint16_t> a, b;
  std::vector<std::uint32_t> c;
};
StepUnit step_unit(StepFamily family, std::uint64_t seed);

}  // namespace amk::det_gemm
