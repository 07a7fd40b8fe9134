// What a supported decoder is: dimensions and the few switches in which the llama family differs.
// A plain value; filled by config.json import (import.h) or by the catalogue (catalogue.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json_fwd.h"

namespace amk {

enum class Architecture { Llama, Mistral, Qwen2, Qwen3 };
enum class RopeScaling { None, Linear, Llama3 };
enum class DType { F32, F16, BF16, I8, I32 };

constexpr int dtype_bytes(DType t) { return t == DType::F32 || t == DType::I32 ? 4 : t == DType::I8 ? 1 : 2; }
// How a model's linear matrices, LM head included, are kept: as stored, or quantised at import to int8 with one scale a row (quantise.h). Everything
// else is as stored.
enum class WeightFormat { Stored, Int8 };

std::string_view to_string(DType t);         // "fp32", "fp16", "bf16", "int8", "int32"
std::string_view to_string(Architecture a);  // "llama", "mistral", "qwen2", "qwen3"

struct RopeSpec {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::None;
  double factor = 1.0;               // linear, llama3
  double low_freq_factor = 1.0;      // llama3
  double high_freq_factor = 4.0;     // llama3
  int original_max_position = 8192;  // llama3
  // F32 as transformers' from_pretrained leaves them. F16 or BF16: of a module that was cast as a whole (module.to(dtype) rounds this
  // buffer too), which only a recorded reference can say (provenance.h).
  DType inv_freq_dtype = DType::F32;
};

struct ModelSpec {
  std::string name;  // as the user wrote the workload
  Architecture architecture = Architecture::Llama;
  DType dtype = DType::BF16;  // of the stored weights
  WeightFormat weight_format = WeightFormat::Stored;
  int vocab = 0;
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;                   // divides heads
  int head_dim = 0;                   // even; may differ from hidden / heads
  int max_position = 0;               // max_position_embeddings
  std::optional<int> sliding_window;  // mistral: a query at p sees keys in (p - window, p]
  double rms_eps = 1e-5;
  RopeSpec rope;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // qwen3: RMSNorm over head_dim of every q and k head, before RoPE

  int q_rows() const { return heads * head_dim; }
  int kv_rows() const { return kv_heads * head_dim; }
  int gqa() const { return heads / kv_heads; }
  DType matrix_dtype() const { return weight_format == WeightFormat::Int8 ? DType::I8 : dtype; }  // of the linear matrices
  // Bytes of every weight a decode step reads once, scales included (the embedding table counts one row; a tied head counts whole).
  std::int64_t decode_weight_bytes() const;
  std::int64_t parameters() const;
};

Json to_json(const ModelSpec& spec);

}  // namespace amk
