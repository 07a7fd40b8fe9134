// Hand-derived cases of one k16 step: every expected value follows from the definition in numeric_class.h by arithmetic on paper.
#include "kernels/det_gemm/chain_step.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>

#include "kernels/det_gemm/bf16.h"
#include "kernels/det_gemm/step_cases.h"

using namespace amk::det_gemm;

namespace {

constexpr ChainStep kHopperStep{16, 25};

struct Pair {
  float a, b;
};

std::uint32_t step_bits(float accumulator, std::initializer_list<Pair> pairs, const ChainStep& step = kHopperStep) {
  std::uint16_t a[16] = {}, b[16] = {};
  int i = 0;
  for (const Pair& p : pairs) {
    a[i] = float_to_bf16(p.a);
    b[i++] = float_to_bf16(p.b);
  }
  return chain_step(std::bit_cast<std::uint32_t>(accumulator), a, b, step);
}

float step(float accumulator, std::initializer_list<Pair> pairs, const ChainStep& s = kHopperStep) {
  return std::bit_cast<float>(step_bits(accumulator, pairs, s));
}

float p2(int e) { return std::ldexp(1.0f, e); }

}  // namespace

TEST_CASE("small integers are exact") {
  CHECK(step(0, {{1, 1}, {2, 3}, {-4, 5}}) == -13);
  CHECK(step(100, {{1, 1}, {2, 3}, {-4, 5}}) == 87);
  CHECK(step(0, {}) == 0);
}

TEST_CASE("each term is truncated on its own, 25 bits below the largest exponent") {
  // Largest exponent 26: units of 2^1, so each product 1 is lost although together they would be 16.
  CHECK(step(p2(26),
             {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}) ==
        p2(26));
  // Exponent 25: units of 2^0, all sixteen are kept; 2^25 + 16 is an fp32 value.
  CHECK(step(p2(25),
             {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}) ==
        p2(25) + 16);
  // One more bit would keep them at 2^26, one fewer would lose them at 2^25.
  const ChainStep finer{16, 26}, coarser{16, 24};
  CHECK(step(p2(26), {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, finer) == p2(26) + 8);
  CHECK(step(p2(25), {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, coarser) == p2(25));
}

TEST_CASE("truncation and the final rounding are toward zero for both signs") {
  CHECK(step(1, {{-p2(-13), p2(-13)}}) == 1);            // −2^−26 is below the unit 2^−25: dropped, not rounded down
  CHECK(step(1, {{-p2(-12), p2(-13)}}) == 1 - p2(-24));  // 1 − 2^−25 lies between fp32 values; toward zero
  CHECK(step(-1, {{p2(-12), p2(-13)}}) == -(1 - p2(-24)));
  CHECK(step(1, {{p2(-12), p2(-12)}}) == 1);                                // 1 + 2^−24: toward zero
  CHECK(step(1, {{p2(-12), p2(-12)}, {p2(-12), p2(-12)}}) == 1 + p2(-23));  // exact sum before rounding
}

TEST_CASE("a product's exponent is the sum of its factors' exponents, not renormalised") {
  // 1.9921875² = 3.96881… has exponent 0 here, so the unit is 2^−25 and eight products of 2^−25 add up to 2^−22, one ulp.
  const float big = 1.9921875f;
  const std::initializer_list<Pair> pairs = {{big, big},         {p2(-12), p2(-13)}, {p2(-12), p2(-13)}, {p2(-12), p2(-13)}, {p2(-12), p2(-13)},
                                             {p2(-12), p2(-13)}, {p2(-12), p2(-13)}, {p2(-12), p2(-13)}, {p2(-12), p2(-13)}};
  CHECK(step(0, pairs) == big * big + p2(-22));
}

TEST_CASE("cancellation leaves what truncation kept") {
  CHECK(step(p2(30), {{-p2(15), p2(15)}, {1, 1}}) == 0);  // 1 is below the unit 2^5
  CHECK(step(p2(20), {{-p2(10), p2(10)}, {1, 1}}) == 1);
  CHECK(step_bits(1, {{-1, 1}}) == 0);  // exact cancellation is +0
}

TEST_CASE("bf16 rounding is to nearest even, with canonical NaN") {
  CHECK(float_to_bf16(1.0f) == 0x3F80);
  CHECK(float_to_bf16(std::bit_cast<float>(0x3F808000u)) == 0x3F80);  // tie to even
  CHECK(float_to_bf16(std::bit_cast<float>(0x3F818000u)) == 0x3F82);
  CHECK(float_to_bf16(std::bit_cast<float>(0x3F808001u)) == 0x3F81);
  CHECK(float_to_bf16(std::bit_cast<float>(0x7F7FFFFFu)) == 0x7F80);  // rounds up to infinity
  CHECK(float_to_bf16(std::bit_cast<float>(0xFFC12345u)) == 0x7FFF);
  CHECK(float_to_bf16(-0.0f) == 0x8000);
}

TEST_CASE("every step that hardware was seen to compute is reproduced, bit for bit") {
  // Measured results: data/README.md.
  std::ifstream file(AMK_SOURCE_DIR "/tests/unit/det_gemm/data/hopper_k16_steps.bin", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  constexpr std::size_t kRecord = 72, kPerFamily = 256;
  REQUIRE(bytes.size() == kRecord * kPerFamily * kStepFamilies);
  for (int family = 0; family < kStepFamilies; ++family) {
    int wrong = 0, wrong_elsewhere = 0;
    for (std::size_t i = 0; i < kPerFamily; ++i) {
      const char* record = bytes.data() + (static_cast<std::size_t>(family) * kPerFamily + i) * kRecord;
      std::uint16_t a[16], b[16];
      std::uint32_t c = 0, d = 0;
      std::memcpy(a, record, 32);
      std::memcpy(b, record + 32, 32);
      std::memcpy(&c, record + 64, 4);
      std::memcpy(&d, record + 68, 4);
      wrong += chain_step(c, a, b, kHopperStep) != d;
      wrong_elsewhere += chain_step(c, a, b, {16, 24}) != d && chain_step(c, a, b, {16, 26}) != d;
    }
    INFO(to_string(static_cast<StepFamily>(family)));
    CHECK(wrong == 0);
    if (family == static_cast<int>(StepFamily::Wide)) CHECK(wrong_elsewhere > 10);  // the data can tell neighbours of the class apart
  }
}
