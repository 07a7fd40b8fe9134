// Conversions between the 16-bit formats and fp32. Integer arithmetic only, so results do not depend on the rounding or flush mode.
#include <bit>
#include <cassert>
#include <cstring>

#include "core/model/weights.h"

namespace amk {

float bf16_to_f32(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t f32_to_bf16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);  // rounding could turn a NaN into infinity
  return static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: mantissa * 2^-24. Normalise until the implicit bit appears; every such value is a normal fp32.
  const int shift = std::countl_zero(mantissa) - 21;
  mantissa = (mantissa << shift) & 0x3FFu;
  return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(113 - shift) << 23) | (mantissa << 13));
}

std::uint16_t f32_to_f16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  const std::uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {                                                   // normal in fp16: at least 2^-14
    const std::uint32_t rebased = magnitude - (112u << 23);
    return static_cast<std::uint16_t>(sign | ((rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13));
  }
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return sign;  // below 2^-25, half of the smallest subnormal
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const std::uint32_t drop = 126 - exponent;  // 14 … 24 bits below the subnormal unit 2^-24
  const std::uint32_t kept = mantissa >> drop;
  const std::uint32_t rest = mantissa & ((1u << drop) - 1u);
  const std::uint32_t half = 1u << (drop - 1);
  const bool up = rest > half || (rest == half && (kept & 1u));
  return static_cast<std::uint16_t>(sign | (kept + (up ? 1u : 0u)));
}

void row_to_f32(const TensorView& view, std::int64_t row, std::span<float> out) {
  assert(row >= 0 && row < view.rows && static_cast<std::int64_t>(out.size()) == view.cols);
  // memcpy: a checkpoint may place a tensor at any byte.
  const std::byte* in = view.data + row * view.cols * dtype_bytes(view.dtype);
  const auto load16 = [&](std::size_t i) {
    std::uint16_t bits;
    std::memcpy(&bits, in + 2 * i, sizeof bits);
    return bits;
  };
  switch (view.dtype) {
    case DType::F32:
      std::memcpy(out.data(), in, out.size_bytes());
      break;
    case DType::BF16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_f32(load16(i));
      break;
    case DType::F16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = f16_to_f32(load16(i));
      break;
    case DType::I8: {
      const auto* const q = reinterpret_cast<const std::int8_t*>(in);
      const float scale = view.scales == nullptr ? 1.0f : view.scales[row];
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(q[i]) * scale;
      break;
    }
    case DType::I32:
      assert(false && "not a weight dtype");
      break;
  }
}

}  // namespace amk
