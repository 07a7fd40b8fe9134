// The oracle's inner loop: one chain per output for a strip of 16 columns, in integer arithmetic that compilers vectorise. Handles
// finite inputs whose accumulators stay zero or normal; anything else is flagged and left to chain_step(). Pure, thread-safe.
#pragma once

#include <cstdint>

#include "kernels/det_gemm/numeric_class.h"

namespace amk::det_gemm {

constexpr int kStripColumns = 16;
constexpr int kZeroExponent = -8192;  // below every real exponent, so that a zero term never decides the alignment

// A bf16 value taken apart: value = significand · 2^(exponent - 7). Subnormals keep exponent -126.
struct SplitValue {
  std::int16_t significand = 0;
  std::int16_t exponent = kZeroExponent;
};
SplitValue split_bf16(std::uint16_t bits);  // finite values only

struct TileArguments {
  const SplitValue* x = nullptr;                // [rows][steps·k_step]
  const std::int32_t* y_significand = nullptr;  // [steps·k_step][16]
  const std::int32_t* y_exponent = nullptr;     // [steps·k_step][16]
  int rows = 0;
  int steps = 0;
  std::uint32_t* accumulator = nullptr;  // [rows][16] fp32 bits, read and written
  std::uint32_t* irregular = nullptr;    // [rows][16], set to nonzero where the accumulator left the normal range
};

// AVX-512 gains nothing over AVX2 here (measured on a Zen 4: 1.36 against 1.18 s for 512×1024×4096 on one core).
enum class Simd { Baseline, Avx2 };
Simd best_simd();  // of this processor

// Runs the tile with the widest vectors that `simd` allows. `step` must be {16, 25} or {8, 24}.
void run_tile(const TileArguments& arguments, const ChainStep& step, Simd simd);

}  // namespace amk::det_gemm
