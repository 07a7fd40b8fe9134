// Weights of one model, read-only. Views into mapped files or into generated memory: never a copy of the whole model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/error.h"
#include "core/model/model_spec.h"

namespace amk {

enum class WeightKind {
  Embedding,  // [vocab, hidden]
  AttnNorm,   // [hidden]           input_layernorm
  Q,
  K,
  V,  // [q_rows | kv_rows, hidden]
  QBias,
  KBias,
  VBias,
  QNorm,
  KNorm,  // [head_dim]
  O,      // [hidden, q_rows]
  OBias,
  MlpNorm,  // [hidden]           post_attention_layernorm
  Gate,
  Up,  // [intermediate, hidden]
  GateBias,
  UpBias,
  Down,  // [hidden, intermediate]
  DownBias,
  FinalNorm,  // [hidden]
  LmHead,     // [vocab, hidden]; the embedding itself when tied
};

// Row-major [rows, cols] (vectors have rows = 1), `dtype` elements, little-endian; valid while the Weights live. A quantised matrix (I8) is worth
// data * scales[row]; without `scales` its elements are the integers themselves.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::BF16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* scales = nullptr;  // I8 only: one a row
  std::int64_t elements() const { return rows * cols; }
  std::int64_t bytes() const { return elements() * dtype_bytes(dtype); }
  explicit operator bool() const { return data != nullptr; }
};

// Thread-safe: all const, immutable after construction.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual const ModelSpec& spec() const = 0;
  // `layer` is ignored for Embedding, FinalNorm, LmHead. Empty view where the spec has no such tensor.
  virtual TensorView get(WeightKind kind, int layer = 0) const = 0;
  // Names the content: equal ids, equal bits. Cheap (metadata of the files or the generator's seed), for cache keys.
  virtual std::string content_id() const = 0;
};

// Exact conversions to fp32 (I8 with scales: the product rounded to fp32); `out` has view.cols elements.
void row_to_f32(const TensorView& view, std::int64_t row, std::span<float> out);
float bf16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_bf16(float value);  // round to nearest even; NaN stays NaN (quiet)
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);  // round to nearest even, overflow to infinity

}  // namespace amk
