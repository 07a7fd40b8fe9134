// exp and silu with the same bits on every machine: C libraries choose variants with and without fused multiply-add at run time.
#pragma once

#include <bit>
#include <cstdint>

namespace amk {

// Within 0.51 ulp of fp32: a polynomial in double, rounded once. exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
inline float exact_exp(float x) {
  if (!(x < 89.0f)) return x < 0 ? x : x + std::bit_cast<float>(0x7F800000u);  // overflow to infinity; NaN + inf = NaN
  if (x < -104.0f) return 0.0f;
  const double v = x;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding and subtracting it rounds to an integer
  const double n = (v * 1.4426950408889634 + kRound) - kRound;
  const double r = (v - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;  // ln 2 in two parts
  // Taylor's series on |r| <= 0.347: the first term left out is below 2^-57.
  double p = 1.0 / 6227020800.0;
  constexpr double kInverseFactorials[] = {1.0 / 479001600.0,
                                           1.0 / 39916800.0,
                                           1.0 / 3628800.0,
                                           1.0 / 362880.0,
                                           1.0 / 40320.0,
                                           1.0 / 5040.0,
                                           1.0 / 720.0,
                                           1.0 / 120.0,
                                           1.0 / 24.0,
                                           1.0 / 6.0,
                                           0.5,
                                           1.0,
                                           1.0};
  for (double c : kInverseFactorials) p = p * r + c;
  const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52;
  return static_cast<float>(p * std::bit_cast<double>(exponent));
}

inline float exact_silu(float x) { return x / (1.0f + exact_exp(-x)); }

}  // namespace amk
