#include "kernels/det_gemm/step_cases.h"

#include <bit>
#include <cmath>

#include "kernels/det_gemm/bf16.h"

namespace amk::det_gemm {
namespace {

std::uint16_t normal16(Rng& rng, int spread) {
  const int shift = spread == 0 ? 0 : static_cast<int>(rng.below(static_cast<std::uint64_t>(2 * spread + 1))) - spread;
  return float_to_bf16(std::ldexp(static_cast<float>(rng.normal()), shift));
}
std::uint32_t normal32(Rng& rng, int spread) {
  const int shift = spread == 0 ? 1 : static_cast<int>(rng.below(static_cast<std::uint64_t>(2 * spread + 1))) - spread;
  return std::bit_cast<std::uint32_t>(std::ldexp(static_cast<float>(rng.normal()), shift));
}
// Random sign and fraction, exponent field in [low, high].
std::uint16_t with_field16(Rng& rng, int low, int high) {
  const auto field = static_cast<std::uint16_t>(low + static_cast<int>(rng.below(static_cast<std::uint64_t>(high - low + 1))));
  return static_cast<std::uint16_t>((rng.next() & 0x807Fu) | (field << 7));
}
std::uint32_t with_field32(Rng& rng, int low, int high) {
  const auto field = static_cast<std::uint32_t>(low + static_cast<int>(rng.below(static_cast<std::uint64_t>(high - low + 1))));
  return (static_cast<std::uint32_t>(rng.next()) & 0x807FFFFFu) | (field << 23);
}
std::uint16_t zero16(Rng& rng) { return static_cast<std::uint16_t>(rng.next() & 0x8000u); }
std::uint32_t zero32(Rng& rng) { return static_cast<std::uint32_t>(rng.next()) & 0x80000000u; }

std::uint16_t factor(StepFamily family, Rng& rng) {
  switch (family) {
    case StepFamily::Normal:
      return normal16(rng, 0);
    case StepFamily::Wide:
      return normal16(rng, 10);
    case StepFamily::VeryWide:
      return with_field16(rng, 70, 184);
    case StepFamily::AnyFinite:
      return with_field16(rng, 0, 254);
    case StepFamily::Specials:
      return rng.below(40) == 0   ? with_field16(rng, 255, 255)
             : rng.below(40) == 0 ? static_cast<std::uint16_t>(0x7F80u | zero16(rng))
             : rng.below(20) == 0 ? zero16(rng)
                                  : normal16(rng, 4);
    case StepFamily::HugeTimesZero:
      return rng.below(2) == 0 ? zero16(rng) : rng.below(2) == 0 ? with_field16(rng, 220, 254) : with_field16(rng, 1, 60);
    case StepFamily::SubnormalInputs:
      return rng.below(2) == 0 ? with_field16(rng, 0, 0) : with_field16(rng, 120, 254);
    case StepFamily::TinyResults:
      return with_field16(rng, 45, 68);
    case StepFamily::Overflow:
      return with_field16(rng, 184, 192);
    case StepFamily::SignedZeros:
      return rng.below(3) != 0 ? zero16(rng) : with_field16(rng, 0, 30);
    case StepFamily::Cancellation:
      return normal16(rng, 6);
    case StepFamily::ZeroProducts:
      return rng.below(2) == 0 ? zero16(rng) : normal16(rng, 20);
  }
  return 0;
}

std::uint32_t accumulator(StepFamily family, Rng& rng) {
  switch (family) {
    case StepFamily::Normal:
      return normal32(rng, 0);
    case StepFamily::Wide:
      return normal32(rng, 20);
    case StepFamily::VeryWide:
      return with_field32(rng, 20, 240);
    case StepFamily::AnyFinite:
      return with_field32(rng, 0, 254);
    case StepFamily::Specials:
      return rng.below(30) == 0 ? with_field32(rng, 255, 255) : rng.below(30) == 0 ? 0x7F800000u | zero32(rng) : normal32(rng, 4);
    case StepFamily::HugeTimesZero:
      return rng.below(3) == 0 ? zero32(rng) : with_field32(rng, 1, 140);
    case StepFamily::SubnormalInputs:
      return rng.below(3) == 0 ? zero32(rng) : with_field32(rng, 60, 140);
    case StepFamily::TinyResults:
      return rng.below(2) == 0 ? with_field32(rng, 0, 0) : with_field32(rng, 0, 12);
    case StepFamily::Overflow:
      return with_field32(rng, 250, 254);
    case StepFamily::SignedZeros:
      return rng.below(3) == 0 ? with_field32(rng, 0, 1) : zero32(rng);
    case StepFamily::Cancellation:
      return rng.below(2) == 0 ? zero32(rng) : normal32(rng, 6);
    case StepFamily::ZeroProducts:
      return rng.below(4) == 0 ? zero32(rng) : with_field32(rng, 0, 254);
  }
  return 0;
}

}  // namespace

std::string_view to_string(StepFamily family) {
  constexpr std::string_view kNames[kStepFamilies] = {
      "normal",           "wide",         "very_wide", "any_finite",   "specials",     "huge_times_zero",
      "subnormal_inputs", "tiny_results", "overflow",  "signed_zeros", "cancellation", "zero_products"};
  return kNames[static_cast<int>(family)];
}

StepUnit step_unit(StepFamily family, std::uint64_t seed) {
  Rng rng(mix64(seed) ^ static_cast<std::uint64_t>(family));
  StepUnit unit;
  unit.a.resize(64 * 16);
  unit.b.resize(8 * 16);
  unit.c.resize(64 * 8);
  for (auto& v : unit.a) v = factor(family, rng);
  for (auto& v : unit.b) v = factor(family, rng);
  for (auto& v : unit.c) v = accumulator(family, rng);
  if (family == StepFamily::Cancellation) {
    // Equal factors of opposite sign in neighbouring positions of k; a few pairs are left alone.
    for (std::size_t i = 0; i < unit.a.size(); i += 2)
      if (rng.below(8) != 0) unit.a[i + 1] = static_cast<std::uint16_t>(unit.a[i] ^ 0x8000u);
    for (std::size_t i = 0; i < unit.b.size(); i += 2) unit.b[i + 1] = unit.b[i];
  }
  if (family == StepFamily::ZeroProducts) {
    // Where b is not zero, a is.
    for (std::size_t k = 0; k < 16; ++k) {
      const bool b_zero = rng.below(2) == 0;
      for (std::size_t j = 0; j < 8; ++j)
        if (b_zero) unit.b[j * 16 + k] &= 0x8000u;
      for (std::size_t i = 0; i < 64; ++i)
        if (!b_zero) unit.a[i * 16 + k] &= 0x8000u;
    }
  }
  return unit;
}

}  // namespace amk::det_gemm
