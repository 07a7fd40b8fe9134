#include "core/model/tensor_table.h"

namespace amk {

bool per_layer(WeightKind kind) { return kind != WeightKind::Embedding && kind != WeightKind::FinalNorm && kind != WeightKind::LmHead; }

TensorShape tensor_shape(const ModelSpec& spec, WeightKind kind, int layer) {
  TensorShape s{kind, per_layer(kind) ? layer : 0, 0, 0, false};
  const auto matrix = [&](std::int64_t rows, std::int64_t cols) { s.rows = rows, s.cols = cols; };
  const auto vector = [&](bool present, std::int64_t cols) {
    s.vector = true;
    if (present) s.rows = 1, s.cols = cols;
  };
  switch (kind) {
    case WeightKind::Embedding:
      matrix(spec.vocab, spec.hidden);
      break;
    case WeightKind::AttnNorm:
    case WeightKind::MlpNorm:
    case WeightKind::FinalNorm:
      vector(true, spec.hidden);
      break;
    case WeightKind::Q:
      matrix(spec.q_rows(), spec.hidden);
      break;
    case WeightKind::K:
    case WeightKind::V:
      matrix(spec.kv_rows(), spec.hidden);
      break;
    case WeightKind::QBias:
      vector(spec.qkv_bias, spec.q_rows());
      break;
    case WeightKind::KBias:
    case WeightKind::VBias:
      vector(spec.qkv_bias, spec.kv_rows());
      break;
    case WeightKind::QNorm:
    case WeightKind::KNorm:
      vector(spec.qk_norm, spec.head_dim);
      break;
    case WeightKind::O:
      matrix(spec.hidden, spec.q_rows());
      break;
    case WeightKind::OBias:
      vector(spec.o_bias, spec.hidden);
      break;
    case WeightKind::Gate:
    case WeightKind::Up:
      matrix(spec.intermediate, spec.hidden);
      break;
    case WeightKind::GateBias:
    case WeightKind::UpBias:
      vector(spec.mlp_bias, spec.intermediate);
      break;
    case WeightKind::Down:
      matrix(spec.hidden, spec.intermediate);
      break;
    case WeightKind::DownBias:
      vector(spec.mlp_bias, spec.hidden);
      break;
    case WeightKind::LmHead:
      if (!spec.tied_embeddings) matrix(spec.vocab, spec.hidden);
      break;
  }
  return s;
}

std::vector<TensorShape> tensor_table(const ModelSpec& spec) {
  std::vector<TensorShape> table;
  const auto add = [&](WeightKind kind, int layer) {
    const TensorShape s = tensor_shape(spec, kind, layer);
    if (s.rows != 0) table.push_back(s);
  };
  add(WeightKind::Embedding, 0);
  for (int layer = 0; layer < spec.layers; ++layer)
    for (int k = 0; k < kWeightKinds; ++k)
      if (per_layer(static_cast<WeightKind>(k))) add(static_cast<WeightKind>(k), layer);
  add(WeightKind::FinalNorm, 0);
  add(WeightKind::LmHead, 0);
  return table;
}

std::string checkpoint_name(WeightKind kind, int layer) {
  const auto in_layer = [&](const char* rest) { return "model.layers." + std::to_string(layer) + "." + rest; };
  switch (kind) {
    case WeightKind::Embedding:
      return "model.embed_tokens.weight";
    case WeightKind::AttnNorm:
      return in_layer("input_layernorm.weight");
    case WeightKind::Q:
      return in_layer("self_attn.q_proj.weight");
    case WeightKind::K:
      return in_layer("self_attn.k_proj.weight");
    case WeightKind::V:
      return in_layer("self_attn.v_proj.weight");
    case WeightKind::QBias:
      return in_layer("self_attn.q_proj.bias");
    case WeightKind::KBias:
      return in_layer("self_attn.k_proj.bias");
    case WeightKind::VBias:
      return in_layer("self_attn.v_proj.bias");
    case WeightKind::QNorm:
      return in_layer("self_attn.q_norm.weight");
    case WeightKind::KNorm:
      return in_layer("self_attn.k_norm.weight");
    case WeightKind::O:
      return in_layer("self_attn.o_proj.weight");
    case WeightKind::OBias:
      return in_layer("self_attn.o_proj.bias");
    case WeightKind::MlpNorm:
      return in_layer("post_attention_layernorm.weight");
    case WeightKind::Gate:
      return in_layer("mlp.gate_proj.weight");
    case WeightKind::Up:
      return in_layer("mlp.up_proj.weight");
    case WeightKind::GateBias:
      return in_layer("mlp.gate_proj.bias");
    case WeightKind::UpBias:
      return in_layer("mlp.up_proj.bias");
    case WeightKind::Down:
      return in_layer("mlp.down_proj.weight");
    case WeightKind::DownBias:
      return in_layer("mlp.down_proj.bias");
    case WeightKind::FinalNorm:
      return "model.norm.weight";
    case WeightKind::LmHead:
      return "lm_head.weight";
  }
  return {};
}

}  // namespace amk
