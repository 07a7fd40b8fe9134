#include "core/model/model_spec.h"

#include "core/base/json.h"
#include "core/model/tensor_table.h"

namespace amk {

std::string_view to_string(DType t) {
  switch (t) {
    case DType::F32:
      return "fp32";
    case DType::F16:
      return "fp16";
    case DType::BF16:
      return "bf16";
    case DType::I8:
      return "int8";
    case DType::I32:
      return "int32";
  }
  return "?";
}

std::string_view to_string(Architecture a) {
  switch (a) {
    case Architecture::Llama:
      return "llama";
    case Architecture::Mistral:
      return "mistral";
    case Architecture::Qwen2:
      return "qwen2";
    case Architecture::Qwen3:
      return "qwen3";
  }
  return "?";
}

namespace {

std::int64_t elements(const ModelSpec& spec, WeightKind kind) {
  const TensorShape s = tensor_shape(spec, kind, 0);
  return s.rows * s.cols;
}

std::int64_t layer_elements(const ModelSpec& spec) {
  std::int64_t sum = 0;
  for (int k = 0; k < kWeightKinds; ++k)
    if (per_layer(static_cast<WeightKind>(k))) sum += elements(spec, static_cast<WeightKind>(k));
  return sum;
}

std::string_view to_string(RopeScaling s) { return s == RopeScaling::Linear ? "linear" : s == RopeScaling::Llama3 ? "llama3" : "default"; }

}  // namespace

std::int64_t ModelSpec::decode_weight_bytes() const {
  const std::int64_t head = static_cast<std::int64_t>(vocab) * hidden;  // read whole, tied or not
  const std::int64_t embedding_row = hidden;
  const std::int64_t all = embedding_row + layers * layer_elements(*this) + elements(*this, WeightKind::FinalNorm) + head;
  if (weight_format == WeightFormat::Stored) return all * dtype_bytes(dtype);
  std::int64_t matrices = head, rows = vocab;
  for (const WeightKind kind : {WeightKind::Q, WeightKind::K, WeightKind::V, WeightKind::O, WeightKind::Gate, WeightKind::Up, WeightKind::Down}) {
    matrices += layers * elements(*this, kind);
    rows += std::int64_t{layers} * tensor_shape(*this, kind, 0).rows;
  }
  return matrices * dtype_bytes(DType::I8) + rows * dtype_bytes(DType::F32) + (all - matrices) * dtype_bytes(dtype);
}

std::int64_t ModelSpec::parameters() const {
  return elements(*this, WeightKind::Embedding) + layers * layer_elements(*this) + elements(*this, WeightKind::FinalNorm) +
         elements(*this, WeightKind::LmHead);
}

Json to_json(const ModelSpec& spec) {
  Json rope = {{"theta", spec.rope.theta}, {"scaling", to_string(spec.rope.scaling)}};
  if (spec.rope.scaling != RopeScaling::None) rope["factor"] = spec.rope.factor;
  if (spec.rope.scaling == RopeScaling::Llama3) {
    rope["low_freq_factor"] = spec.rope.low_freq_factor;
    rope["high_freq_factor"] = spec.rope.high_freq_factor;
    rope["original_max_position"] = spec.rope.original_max_position;
  }
  if (spec.rope.inv_freq_dtype != DType::F32) rope["inv_freq_dtype"] = to_string(spec.rope.inv_freq_dtype);
  Json json = {{"name", spec.name},
               {"architecture", to_string(spec.architecture)},
               {"dtype", to_string(spec.dtype)},
               {"vocab", spec.vocab},
               {"hidden", spec.hidden},
               {"intermediate", spec.intermediate},
               {"layers", spec.layers},
               {"heads", spec.heads},
               {"kv_heads", spec.kv_heads},
               {"head_dim", spec.head_dim},
               {"max_position", spec.max_position},
               {"sliding_window", spec.sliding_window ? Json(*spec.sliding_window) : Json(nullptr)},
               {"rms_eps", spec.rms_eps},
               {"rope", std::move(rope)},
               {"tied_embeddings", spec.tied_embeddings},
               {"qkv_bias", spec.qkv_bias},
               {"o_bias", spec.o_bias},
               {"mlp_bias", spec.mlp_bias},
               {"qk_norm", spec.qk_norm}};
  if (spec.weight_format == WeightFormat::Int8) json["weight_format"] = "int8";
  return json;
}

}  // namespace amk
