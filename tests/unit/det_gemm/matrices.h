// Random bf16 matrices and wrong arithmetic for the tests of this folder.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/random.h"
#include "kernels/det_gemm/bf16.h"
#include "kernels/det_gemm/chain_step.h"
#include "kernels/det_gemm/oracle.h"

namespace amk::det_gemm::test {

enum class Values { Normal, Wide, SmallIntegers, AnyFinite, AnyBits };

inline std::uint16_t draw(Rng& rng, Values values) {
  switch (values) {
    case Values::Normal:
      return float_to_bf16(static_cast<float>(rng.normal()));
    case Values::Wide:
      return float_to_bf16(std::ldexp(static_cast<float>(rng.normal()), static_cast<int>(rng.below(21)) - 10));
    case Values::SmallIntegers:
      return float_to_bf16(static_cast<float>(static_cast<int>(rng.below(9)) - 4));
    case Values::AnyFinite: {
      const auto bits = static_cast<std::uint16_t>(rng.next());
      return is_finite16(bits) ? bits : static_cast<std::uint16_t>(bits & 0x807Fu);
    }
    case Values::AnyBits:
      return static_cast<std::uint16_t>(rng.next());
  }
  return 0;
}

// Owns its operands; `shape` may be given any major order.
struct Case {
  std::vector<std::uint16_t> x, y;
  Inputs inputs;
  Case(const Canonical& shape, Values values, std::uint64_t seed) {
    Rng rng(seed);
    x.resize(static_cast<std::size_t>(shape.m * shape.k));
    y.resize(static_cast<std::size_t>(shape.n * shape.k));
    for (auto& v : x) v = draw(rng, values);
    for (auto& v : y) v = draw(rng, values);
    inputs = {shape, {x.data(), dense_stride_x(shape), shape.x_k_contiguous}, {y.data(), dense_stride_y(shape), shape.y_k_contiguous}};
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
};

// A chain over the given order of k16 steps, with any step arithmetic: the wrong variants are built from it.
inline std::uint32_t chain_over(const Inputs& in, std::int64_t row, std::int64_t col, const ChainStep& step, std::int64_t begin, std::int64_t end,
                                bool reversed = false, int round_every = 0) {
  std::uint32_t acc = 0;
  const std::int64_t count = (end - begin + step.k_step - 1) / step.k_step;
  for (std::int64_t s = 0; s < count; ++s) {
    const std::int64_t k = begin + (reversed ? count - 1 - s : s) * step.k_step;
    std::uint16_t a[16] = {}, b[16] = {};
    for (int i = 0; i < step.k_step && k + i < end; ++i) {
      a[i] = in.x.at(row, k + i);
      b[i] = in.y.at(col, k + i);
    }
    acc = chain_step(acc, a, b, step);
    if (round_every > 0 && (s + 1) % round_every == 0) acc = static_cast<std::uint32_t>(float_to_bf16(std::bit_cast<float>(acc))) << 16;
  }
  return acc;
}

}  // namespace amk::det_gemm::test
