// One eager decode step, the arithmetic of transformers' llama-family modelling code written out. Internal to core/reference.
// `Rounding` says what happens to the result of every operator: nothing (the fp32 oracle) or rounding to bf16 (PyTorch's bf16 eager mode,
// where each operator reads and writes bf16 and computes inside in fp32).
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/memory_map.h"
#include "core/base/parallel.h"
#include "core/model/weights.h"
#include "core/reference/dot_kernels.h"
#include "core/reference/exact_math.h"
#include "core/reference/forward.h"

namespace amk {

struct Fp32Rounding {
  static float round(float v) { return v; }
  static bool exact(DType t) { return t != DType::I8; }  // weights are used as they are stored
};

struct Bf16Rounding {
  static float round(float v) { return bf16_to_f32(f32_to_bf16(v)); }
  static bool exact(DType t) { return t == DType::BF16; }
};

template <class Rounding>
class Decoder {
 public:
  Decoder(std::shared_ptr<const Weights> weights, int max_seq, int threads);

  const ModelSpec& spec() const { return spec_; }
  int position() const { return position_; }
  void rewind(int position);
  Result<std::span<const float>> step(int token);
  Result<std::vector<std::vector<float>>> feed(std::span<const int> tokens, std::span<const int> wanted);
  std::span<const float> keys(int layer) const { return cache(2 * layer); }
  std::span<const float> values(int layer) const { return cache(2 * layer + 1); }

 private:
  static float round(float v) { return Rounding::round(v); }
  std::int64_t cache_elements() const { return static_cast<std::int64_t>(spec_.kv_heads) * max_seq_ * spec_.head_dim; }
  float* cache_data(int index) { return reinterpret_cast<float*>(kv_.data()) + index * cache_elements(); }
  std::span<const float> cache(int index) const;

  void load_vector(WeightKind kind, int layer, std::vector<float>& out) const;
  void rms_norm(std::span<const float> in, std::span<const float> weight, std::span<float> out) const;
  // out = W in (+ bias), every element rounded once.
  void linear(WeightKind kind, WeightKind bias, int layer, std::span<const float> in, std::span<float> out);
  // Rows [begin, end) of `count` products, [product][element].
  void gemv(const TensorView& w, std::int64_t begin, std::int64_t end, const float* x, float* y, std::size_t count) const;
  void norm_heads(std::span<float> heads, WeightKind kind, int layer);
  static void rotate_heads(std::span<float> heads, std::span<const float> cos, std::span<const float> sin);
  void append_kv(int layer, int position, const float* k, const float* v);
  // `q`, `out`: of all heads of this position.
  void attend_head(int layer, int head, int position, const float* q, float* out, std::vector<float>& scores);
  void attend(int layer);
  void norm(WeightKind kind, int layer, std::span<const float> in, std::span<float> out);
  void add_residual();
  // The next tokens through all layers: their residuals are in hidden_, and position_ is behind them.
  void forward(std::span<const int> block);
  // Logits of residuals.
  void score(std::span<const float> rows, std::vector<float>& logits);

  // Buffers hold a block's tokens one after the other.
  std::size_t tokens() const { return hidden_.size() / static_cast<std::size_t>(spec_.hidden); }
  std::span<float> of_token(std::vector<float>& rows, std::size_t token) const {
    const std::size_t width = rows.size() / tokens();
    return std::span(rows).subspan(token * width, width);
  }
  template <class Body>
  void each_token(std::size_t count, const Body& body);

  std::shared_ptr<const Weights> weights_;
  ModelSpec spec_;
  int max_seq_;
  int position_ = 0;
  Status ready_;
  int threads_;
  std::optional<ThreadPool> pool_;  // while steps follow each other
  const DotKernels& kernels_ = dot_kernels();
  MemoryMap kv_;  // [layer][key, value][kv_heads][max_seq][head_dim], committed as positions are reached
  std::vector<float> hidden_, normed_, norm_weight_, q_, k_, v_, attention_, gate_, up_, projected_, logits_, cos_, sin_;
};

extern template class Decoder<Fp32Rounding>;
extern template class Decoder<Bf16Rounding>;

}  // namespace amk
