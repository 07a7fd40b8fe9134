// Where weights lie in device memory, against the drawing in device/segment.cuh, taken literally.
#include <doctest/doctest.h>

#include <set>

#include "core/program/packing.h"
#include "kernels/megakernel/gpu_layout.h"

using namespace amk;

namespace {

ModelSpec spec_of(int hidden, int intermediate, int heads, int kv_heads, int head_dim, int vocab) {
  ModelSpec s;
  s.name = "t";
  s.hidden = hidden;
  s.intermediate = intermediate;
  s.layers = 2;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.head_dim = head_dim;
  s.vocab = vocab;
  s.max_position = 1024;
  return s;
}

}  // namespace

TEST_CASE("packed layout: 1 KB blocks of 8 rows by 64 columns, lane 4g + t, two halves") {
  const std::int64_t padded = 192;
  for (std::int64_t row = 0; row < 24; ++row) {
    for (std::int64_t column = 0; column < padded; ++column) {
      const std::int64_t unit = row / 8, g = row % 8, block = column / 64, c = column % 64;
      const std::int64_t t = c / 16, half = (c % 16) / 8, e = c % 8;
      const std::int64_t expected = (unit * (padded / 64) + block) * 1024 + half * 512 + (4 * g + t) * 16 + e * 2;
      REQUIRE(element_offset(WeightLayout::Packed, padded, 2, row, column) == expected);
    }
  }
  CHECK(element_offset(WeightLayout::Row, 192, 4, 3, 5) == (3 * 192 + 5) * 4);
}

TEST_CASE("arenas: nothing overlaps, everything is aligned, vectors exist exactly where the model has them") {
  for (const bool extras : {false, true}) {
    ModelSpec s = spec_of(96, 300, 4, 2, 32, 323);
    s.qkv_bias = s.mlp_bias = s.o_bias = s.qk_norm = extras;
    for (const WeightLayout layout : {WeightLayout::Packed, WeightLayout::Row}) {
      const GpuLayout gpu(s, layout);
      std::set<std::pair<std::int64_t, std::int64_t>> spans;
      for (int l = 0; l < s.layers; ++l) {
        for (const Matrix m : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down}) {
          const std::int64_t at = gpu.matrix_offset(m, l);
          CHECK(at % 1024 == 0);
          CHECK(gpu.row_bytes(m) == (packed_cols(s, m) + 63) / 64 * 64 * 2);
          spans.insert({at, at + (packed_rows(s, m) + 7) / 8 * 8 * gpu.row_bytes(m)});
          CHECK((gpu.bias_offset(m, l) == GpuLayout::kNoVector) == !extras);
        }
        CHECK((gpu.norm_offset(WeightKind::QNorm, l) == GpuLayout::kNoVector) == !extras);
      }
      const std::int64_t head = gpu.matrix_offset(Matrix::LmHead, 0);
      spans.insert({head, head + (s.vocab + 7) / 8 * 8 * gpu.row_bytes(Matrix::LmHead)});
      CHECK(spans.size() == static_cast<std::size_t>(4 * s.layers + 1));
      std::int64_t end = 0;
      for (const auto& [begin, stop] : spans) {
        CHECK(begin >= end);
        end = stop;
      }
      CHECK(end <= gpu.matrix_bytes());
      CHECK(gpu.bias_offset(Matrix::LmHead, 0) == GpuLayout::kNoVector);
    }
  }
}

TEST_CASE("formats: fp16 weights get fp32 activations, fp32 stays fp32") {
  CHECK(gpu_format(DType::BF16).activations == DType::BF16);
  CHECK(gpu_format(DType::F16).activations == DType::F32);
  CHECK(gpu_format(DType::F16).kv == DType::F16);
  CHECK(gpu_format(DType::F32).weights == DType::F32);
}
