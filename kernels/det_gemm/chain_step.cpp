#include "kernels/det_gemm/chain_step.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/det_gemm/bf16.h"

namespace amk::det_gemm {
namespace {

// value = (negative ? -1 : 1) · significand · 2^(exponent - fraction). Subnormals keep the smallest normal exponent, unnormalised.
struct Term {
  bool negative = false;
  std::uint64_t significand = 0;
  int exponent = 0;
};

Term decode16(std::uint16_t bits) {
  const int field = (bits >> 7) & 0xFF;
  const std::uint64_t fraction = bits & 0x7Fu;
  return {(bits >> 15) != 0, field == 0 ? fraction : fraction | 0x80u, std::max(field, 1) - 127};
}

Term decode32(std::uint32_t bits) {
  const int field = static_cast<int>((bits >> 23) & 0xFF);
  const std::uint64_t fraction = bits & 0x7FFFFFu;
  return {(bits >> 31) != 0, field == 0 ? fraction : fraction | 0x800000u, std::max(field, 1) - 127};
}

std::uint64_t shift_right(std::uint64_t value, int by) { return by >= 64 ? 0 : value >> by; }

bool is_inf16(std::uint16_t bits) { return (bits & 0x7FFFu) == 0x7F80u; }
bool is_nan16(std::uint16_t bits) { return (bits & 0x7FFFu) > 0x7F80u; }
bool is_zero16(std::uint16_t bits) { return (bits & 0x7FFFu) == 0; }

// magnitude · 2^unit_exponent rounded toward zero to fp32; beyond the largest finite value: infinity. A zero result is +0 whatever was
// rounded away, and subnormal results are kept (both measured).
std::uint32_t to_float_toward_zero(bool negative, std::uint64_t magnitude, int unit_exponent) {
  const std::uint32_t sign = negative ? 0x80000000u : 0u;
  if (magnitude == 0) return 0;
  int top = 63 - std::countl_zero(magnitude);  // magnitude in [2^top, 2^(top+1))
  int exponent = top + unit_exponent;
  if (exponent > 127) return sign | 0x7F800000u;
  const int lowest = std::max(exponent, -126) - 23;  // weight of the result's last bit
  const int shift = lowest - unit_exponent;
  const std::uint64_t kept = shift >= 0 ? shift_right(magnitude, shift) : magnitude << -shift;
  if (kept == 0) return 0;
  if (exponent < -126) return sign | static_cast<std::uint32_t>(kept);
  return sign | (static_cast<std::uint32_t>(exponent + 127) << 23) | (static_cast<std::uint32_t>(kept) & 0x7FFFFFu);
}

}  // namespace

std::uint32_t chain_step(std::uint32_t accumulator, const std::uint16_t* a, const std::uint16_t* b, const ChainStep& step) {
  bool nan = is_nan32(accumulator);
  const bool accumulator_inf = (accumulator & 0x7FFFFFFFu) == 0x7F800000u;
  bool plus_inf = accumulator_inf && (accumulator >> 31) == 0, minus_inf = accumulator_inf && (accumulator >> 31) != 0;
  for (int i = 0; i < step.k_step; ++i) {
    nan = nan || is_nan16(a[i]) || is_nan16(b[i]);
    if (!is_inf16(a[i]) && !is_inf16(b[i])) continue;
    nan = nan || is_zero16(a[i]) || is_zero16(b[i]);
    (((a[i] ^ b[i]) >> 15) != 0 ? minus_inf : plus_inf) = true;
  }
  if (nan || (plus_inf && minus_inf)) return kCanonicalNan32;
  if (plus_inf) return 0x7F800000u;
  if (minus_inf) return 0xFF800000u;

  int largest = std::numeric_limits<int>::min();
  const Term c = decode32(accumulator);
  if (c.significand != 0) largest = c.exponent;
  for (int i = 0; i < step.k_step; ++i) {
    const Term x = decode16(a[i]), y = decode16(b[i]);
    if (x.significand != 0 && y.significand != 0) largest = std::max(largest, x.exponent + y.exponent);
  }
  if (largest == std::numeric_limits<int>::min()) return 0;

  // Units of 2^(largest - fraction_bits). A product has 14 fraction bits, the accumulator 23.
  std::int64_t sum = 0;
  const auto add = [&sum](bool negative, std::uint64_t magnitude) {
    sum += negative ? -static_cast<std::int64_t>(magnitude) : static_cast<std::int64_t>(magnitude);
  };
  add(c.negative, c.significand == 0 ? 0 : shift_right(c.significand << (step.fraction_bits - 23), largest - c.exponent));
  for (int i = 0; i < step.k_step; ++i) {
    const Term x = decode16(a[i]), y = decode16(b[i]);
    if (x.significand == 0 || y.significand == 0) continue;
    add(x.negative != y.negative, shift_right((x.significand * y.significand) << (step.fraction_bits - 14), largest - x.exponent - y.exponent));
  }
  return to_float_toward_zero(sum < 0, static_cast<std::uint64_t>(sum < 0 ? -sum : sum), largest - step.fraction_bits);
}

}  // namespace amk::det_gemm
