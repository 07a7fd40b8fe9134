// Which tensors a spec has, with their shapes and their names in HuggingFace checkpoints. The one list behind import, generation and counting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/weights.h"

namespace amk {

constexpr int kWeightKinds = static_cast<int>(WeightKind::LmHead) + 1;

struct TensorShape {
  WeightKind kind = WeightKind::Embedding;
  int layer = 0;          // 0 for Embedding, FinalNorm, LmHead
  std::int64_t rows = 0;  // 1 for vectors
  std::int64_t cols = 0;
  bool vector = false;  // one dimension in the checkpoint
};

bool per_layer(WeightKind kind);
// rows = cols = 0 where the spec has no such tensor. A tied LmHead has none of its own.
TensorShape tensor_shape(const ModelSpec& spec, WeightKind kind, int layer);
// Every tensor of the spec, in the order Embedding, layer 0 …, FinalNorm, LmHead.
std::vector<TensorShape> tensor_table(const ModelSpec& spec);
// e.g. "model.layers.3.self_attn.q_proj.weight".
std::string checkpoint_name(WeightKind kind, int layer);

}  // namespace amk
