#include "core/model/import.h"

#include <array>
#include <cmath>

#include "core/model/config_fields.h"
#include "core/model/import_rope.h"

namespace amk {
namespace {

// Far above any real model, and low enough that no product of dimensions leaves 64 bits (see parameters()).
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxIntermediate = 1 << 22;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxHeads = 4096;
constexpr std::int64_t kMaxHeadDim = 4096;
constexpr std::int64_t kMaxPosition = 1 << 30;

// What differs between transformers' configuration classes.
struct Family {
  Architecture architecture;
  std::string_view model_type;
  std::string_view causal_lm;
  std::optional<int> default_kv_heads;  // when the key is absent; null always means num_attention_heads
  std::optional<int> default_head_dim;  // else hidden_size / num_attention_heads
  int default_max_position;
};
constexpr std::array kFamilies = {
    Family{Architecture::Llama, "llama", "LlamaForCausalLM", std::nullopt, std::nullopt, 2048},
    Family{Architecture::Mistral, "mistral", "MistralForCausalLM", 8, std::nullopt, 131072},
    Family{Architecture::Qwen2, "qwen2", "Qwen2ForCausalLM", 32, std::nullopt, 32768},
    Family{Architecture::Qwen3, "qwen3", "Qwen3ForCausalLM", 32, 128, 32768},
};

Result<const Family*> family(const Fields& f) {
  AMK_TRY(type, f.text("model_type"));
  const Family* found = nullptr;
  for (const Family& candidate : kFamilies)
    if (candidate.model_type == type) found = &candidate;
  if (found == nullptr) return unsupported_field(f.path("model_type"), type, "llama, mistral, qwen2, qwen3");
  if (f.given("architectures")) {
    const Json& a = *f.find("architectures");
    if (!a.is_array() || a.size() != 1 || a[0] != found->causal_lm)
      return unsupported_field(f.path("architectures"), a, "[\"" + std::string(found->causal_lm) + "\"]");
  }
  return found;
}

// Fields of relatives of this family that change the arithmetic. Absent, null, false, 0 and what is named here are fine.
Status refuse_foreign_features(const Fields& f) {
  static constexpr std::array<std::string_view, 24> kMustBeOff = {"quantization_config",
                                                                  "num_local_experts",
                                                                  "num_experts",
                                                                  "n_routed_experts",
                                                                  "moe_intermediate_size",
                                                                  "num_experts_per_tok",
                                                                  "attn_logit_softcapping",
                                                                  "final_logit_softcapping",
                                                                  "query_pre_attn_scalar",
                                                                  "use_qk_norm",
                                                                  "qk_layernorm",
                                                                  "clip_qkv",
                                                                  "alibi",
                                                                  "use_parallel_residual",
                                                                  "parallel_attn",
                                                                  "is_encoder_decoder",
                                                                  "add_cross_attention",
                                                                  "cross_attention_layers",
                                                                  "rope_interleaved",
                                                                  "rope_interleave",
                                                                  "no_rope_layers",
                                                                  "attention_chunk_size",
                                                                  "use_bidirectional_attention",
                                                                  "kv_lora_rank"};
  for (std::string_view key : kMustBeOff) {
    if (!f.given(key)) continue;
    const Json& v = *f.find(key);
    const bool off = (v.is_boolean() && !v.get<bool>()) || (v.is_number_integer() && v == 0);
    if (!off) return unsupported_field(f.path(key), v, "absent");
  }
  static constexpr std::array<std::string_view, 6> kMustBeOne = {"embedding_multiplier", "residual_multiplier", "logits_scaling",
                                                                 "attention_multiplier", "logit_scale",         "partial_rotary_factor"};
  for (std::string_view key : kMustBeOne)
    if (f.given(key) && (!f.find(key)->is_number() || f.find(key)->get<double>() != 1.0))
      return unsupported_field(f.path(key), *f.find(key), "absent or 1");
  for (std::string_view key : {"hidden_act", "hidden_activation"}) {
    AMK_TRY(act, f.text(key, "silu"));
    if (act != "silu") return unsupported_field(f.path(key), act, "silu");
  }
  return {};
}

Status import_dimensions(const Fields& f, const Family& family, ModelSpec& s) {
  AMK_TRY(vocab, f.integer("vocab_size", 1, kMaxVocab));
  AMK_TRY(hidden, f.integer("hidden_size", 1, kMaxHidden));
  AMK_TRY(intermediate, f.integer("intermediate_size", 1, kMaxIntermediate));
  AMK_TRY(layers, f.integer("num_hidden_layers", 1, kMaxLayers));
  AMK_TRY(heads, f.integer("num_attention_heads", 1, kMaxHeads));
  const bool kv_absent = f.find("num_key_value_heads") == nullptr;
  AMK_TRY(kv_heads, f.integer("num_key_value_heads", 1, kMaxHeads, kv_absent ? family.default_kv_heads.value_or(heads) : heads));
  if (kv_heads > heads || heads % kv_heads != 0)
    return bad_field(f.path("num_key_value_heads"), kv_heads, "a divisor of num_attention_heads, " + std::to_string(heads));
  const std::string even = "an even number from 2 to " + std::to_string(kMaxHeadDim);
  int head_dim = 0;
  if (f.given("head_dim")) {
    AMK_TRY(value, f.integer("head_dim", 2, kMaxHeadDim));
    if (value % 2 != 0) return bad_field(f.path("head_dim"), value, even);
    head_dim = value;
  } else if (family.default_head_dim) {
    if (f.find("head_dim") != nullptr) return bad_field(f.path("head_dim"), nullptr, even);
    head_dim = *family.default_head_dim;
  } else {
    if (hidden % heads != 0)
      return bad_field(f.path("hidden_size"), hidden, "a multiple of num_attention_heads, " + std::to_string(heads) + ", when head_dim is not given");
    head_dim = hidden / heads;
    if (head_dim % 2 != 0 || head_dim > kMaxHeadDim)
      return bad_field(f.path("hidden_size"), hidden, "num_attention_heads (" + std::to_string(heads) + ") times " + even);
  }
  AMK_TRY(max_position, f.integer("max_position_embeddings", 1, kMaxPosition, family.default_max_position));
  AMK_TRY(eps, f.number("rms_norm_eps", 1e-30, 1.0, 1e-6));
  AMK_TRY(tied, f.boolean("tie_word_embeddings", false));
  s.vocab = vocab, s.hidden = hidden, s.intermediate = intermediate, s.layers = layers, s.heads = heads, s.kv_heads = kv_heads;
  s.head_dim = head_dim, s.max_position = max_position, s.rms_eps = eps, s.tied_embeddings = tied;
  return {};
}

Status import_biases(const Fields& f, ModelSpec& s) {
  AMK_TRY(attention_bias, f.boolean("attention_bias", s.architecture == Architecture::Qwen2));
  AMK_TRY(mlp_bias, f.boolean("mlp_bias", false));
  // transformers reads attention_bias for llama and qwen3, mlp_bias for llama; the others are fixed in its modelling code.
  if (s.architecture == Architecture::Mistral && attention_bias) return unsupported_field(f.path("attention_bias"), true, "false for mistral");
  if (s.architecture == Architecture::Qwen2 && !attention_bias) return unsupported_field(f.path("attention_bias"), false, "true for qwen2");
  if (s.architecture != Architecture::Llama && mlp_bias)
    return unsupported_field(f.path("mlp_bias"), true, "false for " + std::string(to_string(s.architecture)));
  s.qkv_bias = attention_bias;
  s.o_bias = attention_bias && s.architecture != Architecture::Qwen2;
  s.mlp_bias = mlp_bias;
  s.qk_norm = s.architecture == Architecture::Qwen3;
  return {};
}

// mistral: every layer has the window. qwen2 and qwen3: layers from max_window_layers on have it, if use_sliding_window says so; only
// configs in which no layer ends up with one are accepted. llama has no such field in transformers.
Status import_window(const Fields& f, ModelSpec& s) {
  const bool given = f.given("sliding_window");
  switch (s.architecture) {
    case Architecture::Llama:
      if (given) return unsupported_field(f.path("sliding_window"), *f.find("sliding_window"), "null for llama");
      break;
    case Architecture::Mistral:
      if (given || f.find("sliding_window") == nullptr) {
        AMK_TRY(window, f.integer("sliding_window", 1, kMaxPosition, 4096));  // MistralConfig's default is a window, not none
        s.sliding_window = window;
      }
      break;
    case Architecture::Qwen2:
    case Architecture::Qwen3: {
      AMK_TRY(use, f.boolean("use_sliding_window", false));
      AMK_TRY(first, f.integer("max_window_layers", 0, kMaxPosition, 28));
      const bool nulled = f.find("sliding_window") != nullptr && !given;
      if (use && !nulled && first < s.layers)
        return unsupported_field(f.path("use_sliding_window"), true, "false for " + std::string(to_string(s.architecture)));
      break;
    }
  }
  if (f.given("layer_types")) {
    const Json& types = *f.find("layer_types");
    const std::string_view want = s.sliding_window ? "sliding_attention" : "full_attention";
    bool uniform = types.is_array() && types.size() == static_cast<std::size_t>(s.layers);
    if (uniform)
      for (const Json& t : types) uniform = uniform && t == want;
    if (!uniform) return unsupported_field(f.path("layer_types"), types, std::string(want) + " for every layer");
  }
  return {};
}

Status import_dtype(const Fields& f, std::optional<DType> stored, ModelSpec& s) {
  for (std::string_view key : {"dtype", "torch_dtype"}) {
    if (!f.given(key)) continue;
    AMK_TRY(name, f.text(key));
    const auto dtype = dtype_from_torch(name);
    if (!dtype) return unsupported_field(f.path(key), name, "bfloat16, float16, float32");
    if (key == "torch_dtype" && f.given("dtype") && *dtype != s.dtype)
      return bad_field(f.path(key), name, "the same as dtype, " + f.find("dtype")->dump());
    s.dtype = *dtype;
  }
  if (f.given("dtype") || f.given("torch_dtype")) return {};
  if (!stored) return bad_field(f.path("dtype"), nullptr, "bfloat16, float16, float32 (absent, and there are no weights to take it from)");
  s.dtype = *stored;
  return {};
}

}  // namespace

std::optional<DType> dtype_from_torch(std::string_view name) {
  if (name.substr(0, 6) == "torch.") name.remove_prefix(6);
  if (name == "float32") return DType::F32;
  if (name == "float16") return DType::F16;
  if (name == "bfloat16") return DType::BF16;
  return std::nullopt;
}

Result<ModelSpec> import_config(const Json& config, std::string_view name, std::optional<DType> stored_dtype) {
  if (!config.is_object()) return bad_field("config", config, "a JSON object");
  const Fields f(config);
  ModelSpec s;
  s.name = name;
  AMK_TRY(found, family(f));
  s.architecture = found->architecture;
  AMK_CHECK(refuse_foreign_features(f));
  AMK_CHECK(import_dimensions(f, *found, s));
  AMK_CHECK(import_biases(f, s));
  AMK_CHECK(import_window(f, s));
  AMK_CHECK(import_rope(f, s));
  AMK_CHECK(import_dtype(f, stored_dtype, s));
  return s;
}

}  // namespace amk
