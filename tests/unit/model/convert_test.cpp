// Both 16-bit formats over all 65,536 bit patterns, against their definitions evaluated with ldexp in double.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/model/weights.h"

using namespace amk;

namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
};
const Format kFormats[] = {{5, 10, f16_to_f32, f32_to_f16}, {8, 7, bf16_to_f32, f32_to_bf16}};

// IEEE 754: sign, biased exponent, fraction.
double definition(const Format& f, std::uint16_t bits) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = (bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << f.exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
}

}  // namespace

TEST_CASE("every 16-bit pattern widens to its defined value and narrows back to itself") {
  for (const Format& f : kFormats) {
    int wrong = 0;
    for (int bits = 0; bits < 65536; ++bits) {
      const auto b = static_cast<std::uint16_t>(bits);
      const double want = definition(f, b);
      const float got = f.widen(b);
      if (std::isnan(want)) {
        wrong += !std::isnan(got) || !std::isnan(f.widen(f.narrow(got)));
      } else {
        wrong += static_cast<double>(got) != want || std::signbit(got) != std::signbit(want) || f.narrow(got) != b;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("narrowing rounds to nearest, ties to even, at every boundary between neighbours") {
  for (const Format& f : kFormats) {
    int wrong = 0;
    const int infinity = ((1 << f.exponent_bits) - 1) << f.mantissa_bits;
    for (int bits = 0; bits < infinity; ++bits) {  // the boundary between bits and bits + 1; the last one is where overflow begins
      const double low = definition(f, static_cast<std::uint16_t>(bits));
      const double high =
          bits + 1 < infinity ? definition(f, static_cast<std::uint16_t>(bits + 1)) : 2 * low - definition(f, static_cast<std::uint16_t>(bits - 1));
      const auto middle = static_cast<float>((low + high) / 2);
      if (static_cast<double>(middle) != (low + high) / 2) continue;  // only bf16's subnormal boundaries below fp32's own unit
      const int even = bits % 2 == 0 ? bits : bits + 1;
      for (const int sign : {0, 0x8000}) {
        const float s = sign != 0 ? -1.0f : 1.0f;
        wrong += f.narrow(s * middle) != (even | sign);
        wrong += f.narrow(s * std::nextafterf(middle, 0.0f)) != (bits | sign);
        wrong += f.narrow(s * std::nextafterf(middle, INFINITY)) != ((bits + 1) | sign);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a NaN whose payload lies in the dropped bits stays a NaN") {
  const float sneaky = std::bit_cast<float>(0x7F800001u);
  CHECK(std::isnan(bf16_to_f32(f32_to_bf16(sneaky))));
  CHECK(std::isnan(f16_to_f32(f32_to_f16(sneaky))));
  CHECK(f32_to_f16(std::bit_cast<float>(0x7F7FFFFFu)) == 0x7C00);  // largest fp32: infinity
}

TEST_CASE("row_to_f32 reads rows at any byte address") {
  for (const std::size_t shift : {0u, 1u, 3u}) {
    std::vector<std::byte> memory(shift + 6 * sizeof(float));
    const float values[6] = {1, -2, 3.5f, 4, 0.25f, -6};
    std::memcpy(memory.data() + shift, values, sizeof values);
    float row[3];
    row_to_f32({memory.data() + shift, DType::F32, 2, 3}, 1, row);
    CHECK(row[0] == 4);
    CHECK(row[2] == -6);
    for (int i = 0; i < 6; ++i) {
      const std::uint16_t half = f32_to_f16(values[i]);
      std::memcpy(memory.data() + shift + 2 * i, &half, 2);
    }
    row_to_f32({memory.data() + shift, DType::F16, 2, 3}, 0, row);
    CHECK(row[1] == -2);
    CHECK(row[2] == 3.5f);
  }
}
