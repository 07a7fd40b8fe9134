// How weights lie in device memory: a pure function of (model, layout), shared by planning, upload and tests. Independent of every other
// knob, so that candidates share one copy per layout.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/lower.h"
#include "core/schedule/config.h"

namespace amk {

constexpr int kBlockColumns = 64;  // columns are padded to whole blocks with zeros

// Formats the GPU computes in for a checkpoint's dtype: activations of 2-byte models with a wide enough exponent stay 2 bytes.
NumericFormat gpu_format(DType weights);

// Matrices (device/segment.cuh draws the packed block) and vectors (norms, biases) in two arenas.
class GpuLayout {
 public:
  GpuLayout(const ModelSpec& spec, WeightLayout layout);

  WeightLayout layout() const { return layout_; }
  std::int64_t matrix_offset(Matrix matrix, int layer) const;  // bytes, multiple of 1024
  std::int64_t row_bytes(Matrix matrix) const;                 // of one padded row; a packed unit has 8 of them
  std::int64_t matrix_bytes() const { return matrix_bytes_; }

  // kNoVector where the model has none. KNorm lies directly behind QNorm.
  static constexpr std::int64_t kNoVector = -1;
  std::int64_t norm_offset(WeightKind kind, int layer) const;  // AttnNorm, MlpNorm, FinalNorm, QNorm
  std::int64_t bias_offset(Matrix matrix, int layer) const;    // in packed row order
  // Scales of an int8 matrix, fp32, in packed row order: behind all other vectors, layer by layer Qkv, O, GateUp, Down without gaps (the device
  // counts on it), then LmHead. kNoVector where weights are as stored.
  std::int64_t scale_offset(Matrix matrix, int layer) const;
  std::int64_t vector_bytes() const { return vector_bytes_; }

 private:
  struct Layer {
    std::int64_t qkv, o, gate_up, down;
    std::int64_t attn_norm, mlp_norm, q_norm, qkv_bias, o_bias, gate_up_bias, down_bias;
  };
  ModelSpec spec_;
  WeightLayout layout_;
  std::vector<Layer> layers_;
  std::int64_t lm_head_ = 0, final_norm_ = 0, scales_ = kNoVector, scales_lm_head_ = kNoVector;
  std::int64_t matrix_bytes_ = 0, vector_bytes_ = 0;
};

// int8 is in the packed layout only: one 16-byte piece a lane and block. Byte at which element (row, column) of a packed or row-order matrix lies,
// from the matrix' start. `column` < padded columns.
std::int64_t element_offset(WeightLayout layout, std::int64_t padded_columns, int element_bytes, std::int64_t row, std::int64_t column);

std::int64_t padded_columns(std::int64_t columns);

}  // namespace amk
