// int8 products on the device, in the words of device/segment_int8.cuh and device/fixed_point.cuh, executed here: fragments as the PTX ISA defines
// them for mma.m16n8k32 with .s8 operands.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/model/weights.h"
#include "core/program/packing.h"
#include "kernels/megakernel/gpu_layout.h"

using namespace amk;

namespace {

constexpr int kLanes = 32;

struct Fragments {
  std::int8_t a[kLanes][16], b[kLanes][8];
  std::int32_t c[kLanes][4];
};

// PTX ISA, "Matrix fragments for mma.m16n8k32": element i of a lane's registers.
void mma(Fragments& f) {
  std::int32_t a[16][32], b[32][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, t = lane % 4;
    for (int i = 0; i < 16; ++i) {
      const bool upper = i < 4 || (i >= 8 && i < 12);
      a[upper ? group : group + 8][t * 4 + i % 4 + (i < 8 ? 0 : 16)] = f.a[lane][i];
    }
    for (int i = 0; i < 8; ++i) b[t * 4 + i % 4 + (i < 4 ? 0 : 16)][group] = f.b[lane][i];
  }
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 32; ++k) f.c[lane][i] += a[lane / 4 + (i < 2 ? 0 : 8)][k] * b[k][lane % 4 * 2 + i % 2];
}

std::int32_t fixed(float x, int k) { return static_cast<std::int32_t>(std::nearbyint(std::ldexp(static_cast<double>(x), k))); }

int shift_of(const std::vector<float>& x) {  // largest * 2^k in [2^21, 2^22)
  float top = 0;
  for (const float v : x) top = std::max(top, std::abs(v));
  int exponent = 0;
  std::frexp(top, &exponent);
  return 22 - exponent;
}

// Limbs of a vector in the order of the drawing.
std::vector<std::int8_t> limbs_of(const std::vector<float>& x, int k) {
  std::vector<std::int8_t> out(x.size() * 3);
  for (std::size_t column = 0; column < x.size(); ++column) {
    std::int32_t rest = fixed(x[column], k);
    const std::size_t c = column % 64, t = c / 16, piece = c % 16 / 8, half = c % 8 / 4;
    for (std::size_t limb = 0; limb < 3; ++limb) {
      const std::int32_t digit = ((rest + 128) & 255) - 128;  // balanced
      rest = (rest - digit) / 256;
      out[column / 64 * 192 + limb * 64 + half * 32 + t * 8 + piece * 4 + c % 4] = static_cast<std::int8_t>(digit);
    }
    REQUIRE(rest == 0);
  }
  return out;
}

}  // namespace

TEST_CASE("int8 layout: 512-byte blocks of 8 rows by 64 columns, lane 4g + t has sixteen columns in a row") {
  const std::int64_t padded = 192;
  for (std::int64_t row = 0; row < 24; ++row)
    for (std::int64_t column = 0; column < padded; ++column) {
      const std::int64_t unit = row / 8, g = row % 8, block = column / 64, t = column % 64 / 16;
      REQUIRE(element_offset(WeightLayout::Packed, padded, 1, row, column) == (unit * 3 + block) * 512 + (4 * g + t) * 16 + column % 16);
    }
}

TEST_CASE("one matrix instruction a block gives every row's exact sum, limb by limb") {
  Rng rng(3);
  constexpr int kBlocks = 5, kColumns = 64 * kBlocks;
  for (int turn = 0; turn < 40; ++turn) {
    std::vector<std::int8_t> packed(8 * kColumns);
    std::int64_t q[8][kColumns];
    for (int r = 0; r < 8; ++r)
      for (int c = 0; c < kColumns; ++c) {
        q[r][c] = turn == 0 ? (c % 2 == 0 ? 127 : -127) : static_cast<std::int64_t>(rng.below(255)) - 127;
        packed[static_cast<std::size_t>(element_offset(WeightLayout::Packed, kColumns, 1, r, c))] = static_cast<std::int8_t>(q[r][c]);
      }
    std::vector<float> x(kColumns);
    for (float& v : x) {
      const double u = 2 * rng.uniform() - 1;
      v = bf16_to_f32(f32_to_bf16(static_cast<float>(turn % 2 == 0 ? u : u * std::pow(10.0, -8 * rng.uniform()))));
    }
    const int k = shift_of(x);
    const auto limbs = limbs_of(x, k);
    Fragments f{};
    for (int block = 0; block < kBlocks; ++block) {
      for (int lane = 0; lane < kLanes; ++lane) {
        std::memcpy(f.a[lane], packed.data() + block * 512 + lane * 16, 16);
        const int limb = std::min(lane / 8, 2);
        std::memcpy(f.b[lane], limbs.data() + block * 192 + limb * 64 + lane / 4 % 2 * 32 + lane % 4 * 8, 8);
      }
      mma(f);
    }
    for (int g = 0; g < 8; ++g) {
      // Lane 4g + l has limb l: of half 0 in matrix row g, of half 1 in row 8 + g.
      std::int64_t sum = 0;
      for (int l = 2; l >= 0; --l) sum = 256 * sum + (std::int64_t{f.c[4 * g + l][0]} + f.c[4 * g + l][3]);
      std::int64_t expected = 0;
      for (int c = 0; c < kColumns; ++c) expected += q[g][c] * fixed(x[static_cast<std::size_t>(c)], k);
      REQUIRE(sum == expected);
    }
  }
}

TEST_CASE("fixed point keeps bf16 numbers down to 2^-14 of the largest, and nothing is off by more than 2^-22 of it") {
  Rng rng(4);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<float> x(64);
    const double size = std::pow(10.0, 16 * rng.uniform() - 8);
    for (float& v : x) v = bf16_to_f32(f32_to_bf16(static_cast<float>(size * (2 * rng.uniform() - 1) * std::pow(2.0, -30 * rng.uniform()))));
    float top = 0;
    for (const float v : x) top = std::max(top, std::abs(v));
    const int k = shift_of(x);
    REQUIRE(std::ldexp(top, k) >= 0x1p21f);
    REQUIRE(std::ldexp(top, k) < 0x1p22f);
    for (const float v : x) {
      const double back = std::ldexp(static_cast<double>(fixed(v, k)), -k);
      if (std::abs(v) >= 0x1p-14f * top) REQUIRE(back == v);
      REQUIRE(std::abs(back - v) <= 0x1p-22 * top);
    }
  }
}

TEST_CASE("the device's way to signed bytes: add 0x808080, flip each byte's top bit") {
  for (std::int32_t x = -(1 << 22); x < (1 << 22); x += 1) {
    const std::uint32_t z = (static_cast<std::uint32_t>(x) + 0x00808080u) ^ 0x00808080u;
    const auto byte = [z](int i) { return static_cast<std::int8_t>(z >> (8 * i)); };
    if (byte(0) + 256 * byte(1) + 65536 * byte(2) != x) REQUIRE(x == 0x7fffffff);
  }
  // And the fp32 sum that rounds: 1.5 * 2^23 has the integer in its low bits.
  for (const float v : {0.0f, 0.5f, 1.5f, -0.5f, -2.5f, 4194303.0f, -4194304.0f, 1234567.25f}) {
    const float sum = v + 12582912.0f;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &sum, 4);
    CHECK(static_cast<std::int32_t>(bits - 0x4B400000u) == static_cast<std::int32_t>(std::nearbyint(v)));
  }
}

TEST_CASE("scales lie behind all other vectors, without gaps in the layers") {
  ModelSpec s;
  s.name = "t";
  s.hidden = 96, s.intermediate = 300, s.layers = 3, s.heads = 4, s.kv_heads = 2, s.head_dim = 32, s.vocab = 323, s.max_position = 64;
  const GpuLayout plain(s, WeightLayout::Packed);
  CHECK(plain.scale_offset(Matrix::Qkv, 0) == GpuLayout::kNoVector);
  CHECK(plain.scale_offset(Matrix::LmHead, 0) == GpuLayout::kNoVector);
  s.weight_format = WeightFormat::Int8;
  const GpuLayout gpu(s, WeightLayout::Packed);
  std::int64_t at = plain.vector_bytes();
  CHECK(at % 16 == 0);
  for (int l = 0; l < s.layers; ++l)
    for (const Matrix m : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down}) {
      CHECK(gpu.scale_offset(m, l) == at);
      at += 4 * packed_rows(s, m);
    }
  CHECK(gpu.scale_offset(Matrix::LmHead, 0) == at);
  CHECK(gpu.vector_bytes() >= at + 4 * 323);
  CHECK(gpu.row_bytes(Matrix::Down) == 320);
  CHECK(gpu.matrix_bytes() < plain.matrix_bytes() * 0.51);
  CHECK(gpu.bias_offset(Matrix::Qkv, 0) == plain.bias_offset(Matrix::Qkv, 0));
  CHECK(gpu.norm_offset(WeightKind::FinalNorm, 0) == plain.norm_offset(WeightKind::FinalNorm, 0));
}
