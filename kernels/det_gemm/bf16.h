// bfloat16 as raw bits. Pure functions, thread-safe.
#pragma once

#include <bit>
#include <cstdint>

namespace amk::det_gemm {

constexpr std::uint32_t kCanonicalNan32 = 0x7FFFFFFFu;  // what tensor cores and FADD return for every NaN
constexpr std::uint16_t kCanonicalNan16 = 0x7FFFu;      // what cvt.rn.bf16.f32 returns for every NaN (PTX ISA, cvt)

inline float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// Round to nearest, ties to even; overflow goes to infinity; NaN becomes canonical.
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return kCanonicalNan16;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline bool is_nan32(std::uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u; }
inline bool is_finite16(std::uint16_t bits) { return (bits & 0x7F80u) != 0x7F80u; }

}  // namespace amk::det_gemm
