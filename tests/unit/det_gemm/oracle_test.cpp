#include "kernels/det_gemm/oracle.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/det_gemm/error_bound.h"
#include "tests/unit/det_gemm/matrices.h"

using namespace amk;
using namespace amk::det_gemm;
using namespace amk::det_gemm::test;

namespace {

const NumericClass kHopper = *numeric_class_of(9, 0);

std::vector<float> as_floats(const std::vector<std::uint32_t>& bits) {
  std::vector<float> out(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) out[i] = std::bit_cast<float>(bits[i]);
  return out;
}

}  // namespace

TEST_CASE("the vectorised oracle equals the scalar definition, in every layout, for every kind of data") {
  std::uint64_t seed = 1;
  for (Values values : {Values::Normal, Values::Wide, Values::SmallIntegers, Values::AnyFinite, Values::AnyBits}) {
    for (bool x_k : {true, false}) {
      for (bool y_k : {true, false}) {
        for (std::int64_t k : {1, 15, 16, 17, 64, 529}) {
          const Case c({.m = 67, .n = 35, .k = k, .x_k_contiguous = x_k, .y_k_contiguous = y_k}, values, seed++);
          const auto out = oracle_gemm(c.inputs, kHopper, 2);
          int wrong = 0;
          for (std::int64_t i = 0; i < 67; i += 3)
            for (std::int64_t j = 0; j < 35; ++j) wrong += out[static_cast<std::size_t>(i * 35 + j)] != oracle_element(c.inputs, kHopper, i, j);
          CHECK(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("unverified and chunked classes agree with the scalar definition too") {
  const NumericClass ampere = *numeric_class_of(8, 0);
  CHECK_FALSE(ampere.verified);
  const NumericClass in_chunks = *chunked(kHopper, 64);
  CHECK(in_chunks.id == "hopper-k16/chunk64");
  for (const NumericClass& numeric : {ampere, in_chunks}) {
    const Case c({.m = 20, .n = 18, .k = 333, .x_k_contiguous = false, .y_k_contiguous = false}, Values::Wide, 7);
    const auto out = oracle_gemm(c.inputs, numeric, 1);
    for (std::int64_t i = 0; i < 20; ++i)
      for (std::int64_t j = 0; j < 18; ++j) REQUIRE(out[static_cast<std::size_t>(i * 18 + j)] == oracle_element(c.inputs, numeric, i, j));
  }
  CHECK(chunked(kHopper, 24).error().message == "chunk is 24; accepted: a positive multiple of 16");
  CHECK(numeric_class_of(7, 5).error().kind == ErrorKind::Unsupported);
  CHECK_FALSE(numeric_class_of(10, 0)->verified);
  CHECK(numeric_class_of(10, 0)->id == "sm100-k16");
}

TEST_CASE("a block equals the same part of the whole; threads do not matter") {
  const Case c({.m = 130, .n = 77, .k = 96}, Values::Normal, 3);
  const auto whole = oracle_gemm(c.inputs, kHopper, 1);
  CHECK(whole == oracle_gemm(c.inputs, kHopper, 5));
  const Block block{61, 13, 69, 64};
  std::vector<std::uint32_t> part(static_cast<std::size_t>(block.rows * block.cols));
  oracle_block(c.inputs, kHopper, block, part);
  for (std::int64_t i = 0; i < block.rows; ++i)
    for (std::int64_t j = 0; j < block.cols; ++j)
      REQUIRE(part[static_cast<std::size_t>(i * block.cols + j)] == whole[static_cast<std::size_t>((block.row + i) * 77 + block.col + j)]);
}

TEST_CASE("empty contraction gives zeros, empty output gives nothing") {
  const Case none({.m = 3, .n = 5, .k = 0}, Values::Normal, 1);
  CHECK(oracle_gemm(none.inputs, kHopper) == std::vector<std::uint32_t>(15, 0));
  const Case empty({.m = 0, .n = 5, .k = 4}, Values::Normal, 1);
  CHECK(oracle_gemm(empty.inputs, kHopper).empty());
}

TEST_CASE("small integers and one-hot rows are exact") {
  const Case c({.m = 40, .n = 24, .k = 200}, Values::SmallIntegers, 11);
  const auto out = oracle_gemm(c.inputs, kHopper);
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 24; ++j) {
      float expected = 0;
      for (std::int64_t k = 0; k < 200; ++k) expected += bf16_to_float(c.inputs.x.at(i, k)) * bf16_to_float(c.inputs.y.at(j, k));
      REQUIRE(std::bit_cast<float>(out[static_cast<std::size_t>(i * 24 + j)]) == expected);
    }
  }
  Case hot({.m = 16, .n = 24, .k = 16}, Values::AnyFinite, 12);
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t k = 0; k < 16; ++k) hot.x[i * 16 + k] = i == k ? 0x3F80 : 0;
  const auto copied = round_to_bf16(oracle_gemm(hot.inputs, kHopper));
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 24; ++j) {
      const std::uint16_t value = hot.y[j * 16 + i];
      CHECK(copied[i * 24 + j] == (value == 0x8000 ? 0 : value));
    }
  }
}

TEST_CASE("a non-finite value stays in its row and column") {
  Case c({.m = 48, .n = 40, .k = 64}, Values::Normal, 5);
  const auto clean = oracle_gemm(c.inputs, kHopper);
  c.x[17 * 64 + 3] = 0x7FC0;  // NaN
  c.y[9 * 64 + 60] = 0xFF80;  // −inf
  const auto out = oracle_gemm(c.inputs, kHopper);
  for (std::size_t i = 0; i < 48; ++i) {
    for (std::size_t j = 0; j < 40; ++j) {
      const std::uint32_t bits = out[i * 40 + j];
      if (i == 17)
        CHECK(bits == kCanonicalNan32);
      else if (j == 9)
        CHECK((bits & 0x7FFFFFFF) == 0x7F800000);
      else
        CHECK(bits == clean[i * 40 + j]);
    }
  }
}

TEST_CASE("trailing zeros in the contraction change nothing") {
  const Case c({.m = 8, .n = 8, .k = 100, .x_k_contiguous = false, .y_k_contiguous = false}, Values::Wide, 21);
  auto longer_x = c.x, longer_y = c.y;
  longer_x.resize(8 * 164, 0);
  longer_y.resize(8 * 164, 0);
  Inputs longer = c.inputs;
  longer.shape.k = 164;
  longer.x.data = longer_x.data();
  longer.y.data = longer_y.data();
  CHECK(oracle_gemm(longer, kHopper) == oracle_gemm(c.inputs, kHopper));
}

TEST_CASE("the fp64 guard holds for the oracle and is broken by a wrong result") {
  for (Values values : {Values::Normal, Values::Wide}) {
    for (OutType type : {OutType::Fp32, OutType::Bf16}) {
      const Case c({.m = 32, .n = 32, .k = 1000, .out = type}, values, 31);
      auto out = oracle_gemm(c.inputs, kHopper);
      const auto guard = fp64_guard(c.inputs, kHopper, {0, 0, 32, 32});
      auto floats = as_floats(out);
      if (type == OutType::Bf16)
        for (auto& f : floats) f = bf16_to_float(float_to_bf16(f));
      CHECK(first_violation(guard, floats) == -1);
      floats[77] += static_cast<float>(2.1 * guard[77].bound);
      CHECK(first_violation(guard, floats) == 77);
      floats[5] = std::numeric_limits<float>::quiet_NaN();
      CHECK(first_violation(guard, floats) == 5);
    }
  }
}

TEST_CASE("wrong arithmetic differs from the class: split-K, k8 steps, another width, reversed K, bf16 partials") {
  const Case c({.m = 16, .n = 16, .k = 512}, Values::Normal, 41);
  const Inputs& in = c.inputs;
  int split = 0, k8 = 0, k8_same_bits = 0, bits24 = 0, bits26 = 0, reversed = 0, partials = 0, same = 0;
  for (std::int64_t i = 0; i < 16; ++i) {
    for (std::int64_t j = 0; j < 16; ++j) {
      const std::uint32_t right = oracle_element(in, kHopper, i, j);
      const auto halves =
          std::bit_cast<float>(chain_over(in, i, j, {16, 25}, 0, 256)) + std::bit_cast<float>(chain_over(in, i, j, {16, 25}, 256, 512));
      same += chain_over(in, i, j, {16, 25}, 0, 512) == right;
      split += std::bit_cast<std::uint32_t>(halves) != right;
      k8 += chain_over(in, i, j, {8, 24}, 0, 512) != right;
      k8_same_bits += chain_over(in, i, j, {8, 25}, 0, 512) != right;
      bits24 += chain_over(in, i, j, {16, 24}, 0, 512) != right;
      bits26 += chain_over(in, i, j, {16, 26}, 0, 512) != right;
      reversed += chain_over(in, i, j, {16, 25}, 0, 512, true) != right;
      partials += chain_over(in, i, j, {16, 25}, 0, 512, false, 4) != right;
    }
  }
  CHECK(same == 256);
  CHECK(split > 128);
  CHECK(k8 > 128);
  CHECK(k8_same_bits > 64);
  CHECK(bits24 > 64);
  CHECK(bits26 > 64);
  CHECK(reversed > 128);
  CHECK(partials > 250);
}

TEST_CASE("order probes read the summation order: what is added before the large pair is lost") {
  // +1024 at i, −1024 at j, 2^−15 at l. e = 10 while the accumulator holds 1024, so the unit is 2^−15: kept exactly by the sum but lost by the
  // rounding to fp32 (ulp 2^−13); inside one step nothing is lost; after both it is exact.
  const auto probe = [](std::int64_t i, std::int64_t j, std::int64_t l) {
    Case c({.m = 1, .n = 1, .k = 64}, Values::SmallIntegers, 1);
    std::fill(c.x.begin(), c.x.end(), 0);
    std::fill(c.y.begin(), c.y.end(), 0x3F80);
    c.x[static_cast<std::size_t>(i)] = float_to_bf16(1024);
    c.x[static_cast<std::size_t>(j)] = float_to_bf16(-1024);
    c.x[static_cast<std::size_t>(l)] = float_to_bf16(std::ldexp(1.0f, -15));
    return std::bit_cast<float>(oracle_element(c.inputs, kHopper, 0, 0));
  };
  const float tiny = std::ldexp(1.0f, -15);
  CHECK(probe(0, 1, 2) == tiny);    // one step: exact
  CHECK(probe(0, 20, 2) == 0);      // 1024 + tiny rounds to 1024 at the step's end
  CHECK(probe(0, 20, 18) == tiny);  // second step holds −1024 and tiny: acc + both, exact
  CHECK(probe(0, 40, 18) == 0);     // tiny arrives while 1024 stands
  CHECK(probe(0, 20, 40) == tiny);  // after both
  CHECK(probe(20, 40, 2) == 0);     // tiny first, then 1024 swallows it at the end of its step
}

TEST_CASE("every op's canonical form multiplies what its definition says") {
  // Straight from the definitions in problem.h, on small integers, for both weight layouts.
  const std::int64_t M = 6, N = 10, K = 7;
  Rng rng(9);
  std::vector<std::uint16_t> a(M * K), dc(M * N), b_kn(K * N), b_nk(N * K);
  for (auto& v : a) v = draw(rng, Values::SmallIntegers);
  for (auto& v : dc) v = draw(rng, Values::SmallIntegers);
  for (std::size_t k = 0; k < K; ++k)
    for (std::size_t n = 0; n < N; ++n) b_kn[k * N + n] = b_nk[n * K + k] = draw(rng, Values::SmallIntegers);
  const auto f = [](std::uint16_t v) { return bf16_to_float(v); };
  for (WeightLayout layout : {WeightLayout::KN, WeightLayout::NK}) {
    const auto& b = layout == WeightLayout::KN ? b_kn : b_nk;
    const auto run = [&](Op op, const std::vector<std::uint16_t>& x, const std::vector<std::uint16_t>& y) {
      const Canonical s = canonical({.op = op, .M = M, .N = N, .K = K, .weights = layout});
      return oracle_gemm({s, {x.data(), dense_stride_x(s), s.x_k_contiguous}, {y.data(), dense_stride_y(s), s.y_k_contiguous}}, kHopper, 1);
    };
    const auto c = run(Op::Fwd, a, b), da = run(Op::Da, dc, b);
    const auto db = layout == WeightLayout::KN ? run(Op::Db, a, dc) : run(Op::Db, dc, a);
    for (std::size_t m = 0; m < M; ++m)
      for (std::size_t n = 0; n < N; ++n) {
        float e = 0;
        for (std::size_t k = 0; k < K; ++k) e += f(a[m * K + k]) * f(b_kn[k * N + n]);
        CHECK(std::bit_cast<float>(c[m * N + n]) == e);
      }
    for (std::size_t m = 0; m < M; ++m)
      for (std::size_t k = 0; k < K; ++k) {
        float e = 0;
        for (std::size_t n = 0; n < N; ++n) e += f(dc[m * N + n]) * f(b_kn[k * N + n]);
        CHECK(std::bit_cast<float>(da[m * K + k]) == e);
      }
    for (std::size_t k = 0; k < K; ++k)
      for (std::size_t n = 0; n < N; ++n) {
        float e = 0;
        for (std::size_t m = 0; m < M; ++m) e += f(a[m * K + k]) * f(dc[m * N + n]);
        CHECK(std::bit_cast<float>(db[layout == WeightLayout::KN ? k * N + n : n * K + k]) == e);
      }
  }
}
