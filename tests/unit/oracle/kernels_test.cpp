// The matrix-vector kernels: right, and the same bits in every instruction set, for any shape and alignment.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/random.h"
#include "core/model/weights.h"
#include "core/reference/dot_kernels.h"
#include "core/reference/exact_math.h"

using namespace amk;

namespace {

std::vector<std::byte> encode(const std::vector<float>& values, DType dtype, std::size_t shift) {
  std::vector<std::byte> out(shift + values.size() * static_cast<std::size_t>(dtype_bytes(dtype)));
  std::byte* at = out.data() + shift;
  for (float v : values) {
    const std::uint16_t half = dtype == DType::F16 ? f32_to_f16(v) : f32_to_bf16(v);
    if (dtype == DType::F32) {
      std::memcpy(at, &v, 4);
    } else {
      std::memcpy(at, &half, 2);
    }
    at += dtype_bytes(dtype);
  }
  return out;
}

}  // namespace

TEST_CASE("every variant agrees with a sum in double, and bit for bit with the narrowest") {
  Rng rng(11);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (const std::int64_t cols : {1, 2, 15, 16, 31, 32, 33, 63, 64, 100, 257, 1000})
      for (const std::int64_t rows : {1, 2, 3, 7}) {
        std::vector<float> w(static_cast<std::size_t>(rows * cols)), x(static_cast<std::size_t>(cols));
        for (float& v : w) v = static_cast<float>(rng.normal());
        for (float& v : x) v = static_cast<float>(rng.normal());
        const std::size_t shift = rng.below(5);
        const auto bytes = encode(w, dtype, shift);
        std::vector<float> narrow(static_cast<std::size_t>(rows)), y(static_cast<std::size_t>(rows)), row(static_cast<std::size_t>(cols));
        all_dot_kernels().front().gemv(bytes.data() + shift, dtype, rows, cols, x.data(), narrow.data());
        for (std::int64_t r = 0; r < rows; ++r) {
          row_to_f32({bytes.data() + shift, dtype, rows, cols}, r, row);
          double sum = 0, magnitude = 0;
          for (std::size_t c = 0; c < row.size(); ++c) {
            sum += static_cast<double>(row[c]) * x[c];
            magnitude += std::abs(static_cast<double>(row[c]) * x[c]);
          }
          // cols / 32 + 5 additions on the longest path, each at most half an ulp of the running sum, and the products.
          const double bound = (static_cast<double>(cols) / 32 + 7) * 0x1p-24 * magnitude;
          CHECK(std::abs(narrow[static_cast<std::size_t>(r)] - sum) <= bound);
        }
        for (const DotKernels& k : all_dot_kernels()) {
          CAPTURE(k.name);
          k.gemv(bytes.data() + shift, dtype, rows, cols, x.data(), y.data());
          CHECK(std::memcmp(y.data(), narrow.data(), y.size() * sizeof(float)) == 0);
        }
      }
}

TEST_CASE("every 16-bit pattern enters the vector and the tail path with its exact value") {
  for (const DType dtype : {DType::F16, DType::BF16})
    for (const DotKernels& k : all_dot_kernels()) {
      CAPTURE(k.name);
      int wrong = 0;
      std::vector<std::uint16_t> row(33, 0);
      const std::vector<float> ones(33, 1.0f);
      for (int bits = 0; bits < 65536; ++bits) {
        const auto b = static_cast<std::uint16_t>(bits);
        const float want = dtype == DType::F16 ? f16_to_f32(b) : bf16_to_f32(b);
        for (const std::size_t at : {static_cast<std::size_t>(bits % 32), std::size_t{32}}) {
          row[at] = b;
          float got = 0;
          k.gemv(reinterpret_cast<const std::byte*>(row.data()), dtype, 1, 33, ones.data(), &got);
          row[at] = 0;
          wrong += std::isnan(want) ? !std::isnan(got) : got != want;
        }
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("exact_exp is within 0.51 ulp of the double result, over the whole range") {
  Rng rng(3);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(rng.uniform() * 190.0 - 102.0);
    const double want = std::exp(static_cast<double>(x));
    const float got = exact_exp(x);
    if (want >= 0x1p-126 && want < 3.4028235e38) {
      int exponent = 0;
      (void)std::frexp(want, &exponent);
      worst = std::max(worst, std::abs(got - want) / std::ldexp(1.0, exponent - 24));
    } else if (want < 0x1p-126) {
      CHECK(std::abs(got - want) <= 0x1p-150 * 1.01);  // subnormal: half a unit of 2^-149
    }
  }
  CHECK(worst <= 0.51);
  CHECK(exact_exp(0.0f) == 1.0f);
  CHECK(exact_exp(-INFINITY) == 0.0f);
  CHECK(exact_exp(INFINITY) == INFINITY);
  CHECK(exact_exp(88.8f) == INFINITY);
  CHECK(std::isnan(exact_exp(NAN)));
  CHECK(exact_silu(0.0f) == 0.0f);
  CHECK(exact_silu(-200.0f) == 0.0f);
  CHECK(exact_silu(200.0f) == 200.0f);
}
