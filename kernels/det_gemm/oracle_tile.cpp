#include "kernels/det_gemm/oracle_tile.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#if defined(__x86_64__)
#define AMK_X86 1
#else
#define AMK_X86 0
#endif

namespace amk::det_gemm {
namespace {

constexpr int kLanes = kStripColumns;

// Every loop over lanes is independent per lane: with 16 lanes of 32 bits the compiler turns each into one or two vector instructions.
// Width check: |product| < 2^16, so sixteen of them shifted left by 11 stay below 2^31 (65025 · 2^11 · 16 = 2,130,739,200).
template <int kStep, int kFraction>
[[gnu::always_inline]] inline void tile(const TileArguments& t) {
  constexpr int kProductShift = kFraction - 14, kAccumulatorShift = kFraction - 23;
  static_assert(65025ll * (1ll << kProductShift) * kStep < (1ll << 31));
  for (int row = 0; row < t.rows; ++row) {
    std::uint32_t bits[kLanes], irregular[kLanes];
    for (int l = 0; l < kLanes; ++l) bits[l] = t.accumulator[row * kLanes + l];
    for (int l = 0; l < kLanes; ++l) irregular[l] = t.irregular[row * kLanes + l];
    for (int s = 0; s < t.steps; ++s) {
      const SplitValue* x = t.x + (static_cast<std::int64_t>(row) * t.steps + s) * kStep;
      const std::int32_t* ys = t.y_significand + static_cast<std::int64_t>(s) * kStep * kLanes;
      const std::int32_t* ye = t.y_exponent + static_cast<std::int64_t>(s) * kStep * kLanes;
      std::int32_t c_exponent[kLanes], largest[kLanes], sum[kLanes], c_term[kLanes];
      for (int l = 0; l < kLanes; ++l) {
        const auto field = static_cast<std::int32_t>((bits[l] >> 23) & 0xFF);
        c_exponent[l] = field == 0 ? kZeroExponent : field - 127;
        largest[l] = c_exponent[l];
        sum[l] = 0;
      }
      for (int i = 0; i < kStep; ++i) {
        const std::int32_t xe = x[i].exponent;
        for (int l = 0; l < kLanes; ++l) largest[l] = std::max(largest[l], xe + ye[i * kLanes + l]);
      }
      for (int i = 0; i < kStep; ++i) {
        const std::int32_t xe = x[i].exponent, xs = x[i].significand;
        for (int l = 0; l < kLanes; ++l) {
          const std::int32_t product = xs * ys[i * kLanes + l];
          const std::int32_t shift = std::min(largest[l] - (xe + ye[i * kLanes + l]), 31);
          const std::int32_t sign = product >> 31;
          const auto kept = static_cast<std::int32_t>((static_cast<std::uint32_t>((product ^ sign) - sign) << kProductShift) >> shift);
          sum[l] += (kept ^ sign) - sign;
        }
      }
      for (int l = 0; l < kLanes; ++l) {
        const std::int32_t significand =
            c_exponent[l] == kZeroExponent ? 0 : static_cast<std::int32_t>(((bits[l] & 0x7FFFFFu) | 0x800000u) << kAccumulatorShift);
        const std::int32_t kept = significand >> std::min(largest[l] - c_exponent[l], 31);
        const std::int32_t sign = static_cast<std::int32_t>(bits[l]) >> 31;
        c_term[l] = (kept ^ sign) - sign;
      }
      for (int l = 0; l < kLanes; ++l) {
        // Exact in double; clearing the 29 bits that fp32 lacks rounds toward zero; the scaling is exact, and so is the conversion unless
        // the value leaves the normal range, which is flagged.
        const double total = static_cast<double>(sum[l]) + static_cast<double>(c_term[l]);
        const double kept = std::bit_cast<double>(std::bit_cast<std::uint64_t>(total) & ~((1ull << 29) - 1));
        const auto scale_field = static_cast<std::uint64_t>(static_cast<std::uint32_t>(std::max(largest[l], -600) - kFraction + 1023));
        const double value = kept * std::bit_cast<double>(scale_field << 52);
        bits[l] = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      }
      for (int l = 0; l < kLanes; ++l) {
        const std::uint32_t magnitude = bits[l] & 0x7FFFFFFFu;
        const bool vanished = magnitude == 0 && sum[l] + static_cast<std::int64_t>(c_term[l]) != 0;
        irregular[l] |= static_cast<std::uint32_t>(magnitude >= 0x7F800000u) | static_cast<std::uint32_t>(magnitude - 1u < 0x7FFFFFu) |
                        static_cast<std::uint32_t>(vanished);
      }
    }
    for (int l = 0; l < kLanes; ++l) t.accumulator[row * kLanes + l] = bits[l];
    for (int l = 0; l < kLanes; ++l) t.irregular[row * kLanes + l] = irregular[l];
  }
}

[[gnu::always_inline]] inline void tile_of(const TileArguments& t, const ChainStep& step) {
  if (step == ChainStep{16, 25}) return tile<16, 25>(t);
  if (step == ChainStep{8, 24}) return tile<8, 24>(t);
  std::abort();  // our own mistake: callers check the class
}

void tile_baseline(const TileArguments& t, const ChainStep& step) { tile_of(t, step); }
#if AMK_X86
[[gnu::target("avx2")]] void tile_avx2(const TileArguments& t, const ChainStep& step) { tile_of(t, step); }
#endif

}  // namespace

SplitValue split_bf16(std::uint16_t bits) {
  const int field = (bits >> 7) & 0xFF;
  const int magnitude = (bits & 0x7F) | (field == 0 ? 0 : 0x80);
  if (magnitude == 0) return {0, kZeroExponent};
  return {static_cast<std::int16_t>((bits >> 15) != 0 ? -magnitude : magnitude), static_cast<std::int16_t>(std::max(field, 1) - 127)};
}

Simd best_simd() {
#if AMK_X86
  if (__builtin_cpu_supports("avx2")) return Simd::Avx2;
#endif
  return Simd::Baseline;
}

void run_tile(const TileArguments& arguments, const ChainStep& step, Simd simd) {
#if AMK_X86
  if (simd == Simd::Avx2 && best_simd() == Simd::Avx2) return tile_avx2(arguments, step);
#endif
  tile_baseline(arguments, step);
}

}  // namespace amk::det_gemm
