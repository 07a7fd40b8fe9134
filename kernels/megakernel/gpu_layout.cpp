#include "kernels/megakernel/gpu_layout.h"

#include "core/program/packing.h"

namespace amk {
namespace {

constexpr std::int64_t kMatrixAlign = 1024;
constexpr std::int64_t kVectorAlign = 16;

std::int64_t align_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

NumericFormat gpu_format(DType weights) {
  // fp16 activations overflow where bf16 and fp32 do not (silu(gate) * up of real models): fp16 weights get fp32 activations.
  if (weights == DType::BF16) return {DType::BF16, DType::BF16, DType::BF16};
  if (weights == DType::F16) return {DType::F16, DType::F32, DType::F16};
  return {DType::F32, DType::F32, DType::F32};
}

std::int64_t padded_columns(std::int64_t columns) { return align_up(columns, kBlockColumns); }

GpuLayout::GpuLayout(const ModelSpec& spec, WeightLayout layout) : spec_(spec), layout_(layout) {
  const auto matrix = [&](Matrix m) {
    const std::int64_t at = matrix_bytes_;
    matrix_bytes_ = align_up(at + align_up(packed_rows(spec, m), kRowUnit) * row_bytes(m), kMatrixAlign);
    return at;
  };
  const auto vector = [&](bool exists, std::int64_t elements) {
    if (!exists) return kNoVector;
    const std::int64_t at = vector_bytes_;
    vector_bytes_ = align_up(at + elements * dtype_bytes(spec.dtype), kVectorAlign);
    return at;
  };
  for (int i = 0; i < spec.layers; ++i) {
    Layer l{};
    l.qkv = matrix(Matrix::Qkv);
    l.o = matrix(Matrix::O);
    l.gate_up = matrix(Matrix::GateUp);
    l.down = matrix(Matrix::Down);
    l.attn_norm = vector(true, spec.hidden);
    l.mlp_norm = vector(true, spec.hidden);
    l.q_norm = vector(spec.qk_norm, std::int64_t{2} * spec.head_dim);
    l.qkv_bias = vector(spec.qkv_bias, packed_rows(spec, Matrix::Qkv));
    l.o_bias = vector(spec.o_bias, spec.hidden);
    l.gate_up_bias = vector(spec.mlp_bias, packed_rows(spec, Matrix::GateUp));
    l.down_bias = vector(spec.mlp_bias, spec.hidden);
    layers_.push_back(l);
  }
  lm_head_ = matrix(Matrix::LmHead);
  final_norm_ = vector(true, spec.hidden);
  if (spec.weight_format != WeightFormat::Int8) return;
  const auto scales = [&](Matrix m) {
    const std::int64_t at = vector_bytes_;
    vector_bytes_ = align_up(at + std::int64_t{packed_rows(spec, m)} * 4, kVectorAlign);
    return at;
  };
  scales_ = vector_bytes_;
  for (int i = 0; i < spec.layers; ++i)
    for (const Matrix m : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down}) scales(m);  // whole units: no gaps
  scales_lm_head_ = scales(Matrix::LmHead);
}

std::int64_t GpuLayout::scale_offset(Matrix matrix, int layer) const {
  if (scales_ == kNoVector || matrix == Matrix::None) return kNoVector;
  if (matrix == Matrix::LmHead) return scales_lm_head_;
  std::int64_t before = 0, rows = 0;
  for (const Matrix m : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down}) {
    if (m == matrix) before = rows;
    rows += packed_rows(spec_, m);
  }
  return scales_ + (layer * rows + before) * 4;
}

std::int64_t GpuLayout::row_bytes(Matrix matrix) const { return padded_columns(packed_cols(spec_, matrix)) * dtype_bytes(spec_.matrix_dtype()); }

std::int64_t GpuLayout::matrix_offset(Matrix matrix, int layer) const {
  if (matrix == Matrix::LmHead) return lm_head_;
  const Layer& l = layers_.at(static_cast<std::size_t>(layer));
  return matrix == Matrix::Qkv ? l.qkv : matrix == Matrix::O ? l.o : matrix == Matrix::GateUp ? l.gate_up : l.down;
}

std::int64_t GpuLayout::norm_offset(WeightKind kind, int layer) const {
  if (kind == WeightKind::FinalNorm) return final_norm_;
  const Layer& l = layers_.at(static_cast<std::size_t>(layer));
  return kind == WeightKind::AttnNorm ? l.attn_norm : kind == WeightKind::MlpNorm ? l.mlp_norm : kind == WeightKind::QNorm ? l.q_norm : kNoVector;
}

std::int64_t GpuLayout::bias_offset(Matrix matrix, int layer) const {
  if (matrix == Matrix::LmHead || matrix == Matrix::None) return kNoVector;
  const Layer& l = layers_.at(static_cast<std::size_t>(layer));
  return matrix == Matrix::Qkv ? l.qkv_bias : matrix == Matrix::O ? l.o_bias : matrix == Matrix::GateUp ? l.gate_up_bias : l.down_bias;
}

std::int64_t element_offset(WeightLayout layout, std::int64_t padded, int element_bytes, std::int64_t row, std::int64_t column) {
  if (layout == WeightLayout::Row) return (row * padded + column) * element_bytes;
  const std::int64_t blocks = padded / kBlockColumns;
  const std::int64_t block = column / kBlockColumns, in_block = column % kBlockColumns;
  const std::int64_t lane = row % kRowUnit * 4 + in_block / 16, half = in_block % 16 / 8;
  if (element_bytes == 1) return (row / kRowUnit * blocks + block) * kRowUnit * kBlockColumns + lane * 16 + in_block % 16;
  return ((row / kRowUnit * blocks + block) * kRowUnit * kBlockColumns + half * 256 + lane * 8 + in_block % 8) * element_bytes;
}

}  // namespace amk
