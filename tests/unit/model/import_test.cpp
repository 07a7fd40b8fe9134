// config.json import: what each field does, and that every field which rules a model out is named with its value.
#include <doctest/doctest.h>

#include "core/base/parse_json.h"
#include "core/model/import.h"

using namespace amk;

namespace {

// Published config of meta-llama/Llama-3.2-1B, transformers 4 layout.
Json llama() {
  return *parse_json(R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":128000,
    "eos_token_id":128001,"head_dim":64,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":8192,
    "max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama","num_attention_heads":32,"num_hidden_layers":16,
    "num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,
    "low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,
    "tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.45.0.dev0","use_cache":true,"vocab_size":128256})",
                     "test");
}

Json with(Json config, const Json& patch) {
  config.merge_patch(patch);  // RFC 7396: null removes
  return config;
}

Json as(const char* type, const char* architecture) {
  return with(llama(), {{"model_type", type}, {"architectures", {architecture}}, {"rope_scaling", nullptr}});
}
Json mistral() { return as("mistral", "MistralForCausalLM"); }
Json qwen2() { return as("qwen2", "Qwen2ForCausalLM"); }
Json qwen3() { return as("qwen3", "Qwen3ForCausalLM"); }

// Expects a refusal that names exactly this field.
void refused(const Json& config, const std::string& field, ErrorKind kind) {
  CAPTURE(field);
  const auto spec = import_config(config, "m");
  REQUIRE_FALSE(spec);
  CHECK(spec.error().data["field"] == field);
  CHECK(spec.error().kind == kind);
  CHECK(spec.error().message.find(field) != std::string::npos);
  CHECK(spec.error().message.find("accepted: ") != std::string::npos);
}

}  // namespace

TEST_CASE("Llama-3.2-1B has the parameter count its publisher states") {
  const auto spec = import_config(llama(), "x");
  REQUIRE(spec);
  CHECK(spec->parameters() == 1'235'814'400);                          // model card: 1.23B; safetensors metadata total_size 2471628800 = 2 bytes each
  CHECK(spec->decode_weight_bytes() == 2 * (1'235'814'400ll + 2048));  // tied: the head counts whole, and one embedding row
  CHECK(spec->name == "x");
  CHECK(spec->max_position == 131072);
  CHECK(spec->rope.scaling == RopeScaling::Llama3);
  CHECK_FALSE(spec->sliding_window);
}

TEST_CASE("the layout of transformers 5 means the same") {
  Json five = with(llama(), {{"rope_theta", nullptr}, {"rope_scaling", nullptr}, {"torch_dtype", nullptr}, {"dtype", "bfloat16"}});
  five["rope_parameters"] = llama()["rope_scaling"];
  five["rope_parameters"]["rope_theta"] = 500000;
  const auto a = import_config(llama(), "x");
  const auto b = import_config(five, "x");
  REQUIRE(a);
  REQUIRE(b);
  CHECK(to_json(*a) == to_json(*b));
  refused(with(five, {{"rope_theta", 10000.0}}), "rope_parameters.rope_theta", ErrorKind::InvalidArgument);
  refused(with(five, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}), "rope_scaling", ErrorKind::InvalidArgument);
  refused(with(five, {{"torch_dtype", "float16"}}), "torch_dtype", ErrorKind::InvalidArgument);
}

TEST_CASE("absent fields take transformers' defaults") {
  const Json bare = {{"model_type", "llama"},  {"vocab_size", 100},        {"hidden_size", 64},       {"intermediate_size", 128},
                     {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"torch_dtype", "float32"}};
  const auto s = import_config(bare, "x");
  REQUIRE(s);
  CHECK(s->kv_heads == 4);
  CHECK(s->head_dim == 16);
  CHECK(s->max_position == 2048);
  CHECK(s->rms_eps == 1e-6);
  CHECK(s->rope.theta == 10000.0);
  CHECK_FALSE(s->tied_embeddings);
  CHECK(import_config(with(bare, {{"model_type", "mistral"}, {"num_attention_heads", 8}}), "x")->sliding_window == 4096);
  CHECK(import_config(with(bare, {{"model_type", "qwen3"}, {"num_key_value_heads", 2}}), "x")->head_dim == 128);
  refused(with(bare, {{"model_type", "qwen3"}}), "num_key_value_heads", ErrorKind::InvalidArgument);  // the default, 32, does not divide 4
  refused(with(bare, {{"torch_dtype", nullptr}}), "dtype", ErrorKind::InvalidArgument);
  CHECK(import_config(with(bare, {{"torch_dtype", nullptr}}), "x", DType::F16)->dtype == DType::F16);
}

TEST_CASE("biases and qk-norm follow each architecture's modelling code") {
  const auto l = import_config(with(llama(), {{"attention_bias", true}, {"mlp_bias", true}}), "x");
  REQUIRE(l);
  CHECK((l->qkv_bias && l->o_bias && l->mlp_bias && !l->qk_norm));
  const auto q2 = import_config(with(qwen2(), {{"attention_bias", nullptr}}), "x");
  REQUIRE(q2);
  CHECK((q2->qkv_bias && !q2->o_bias && !q2->mlp_bias && !q2->qk_norm));
  const auto q3 = import_config(qwen3(), "x");
  REQUIRE(q3);
  CHECK((!q3->qkv_bias && !q3->o_bias && q3->qk_norm));
  CHECK(import_config(with(qwen3(), {{"attention_bias", true}}), "x")->o_bias);
  refused(with(mistral(), {{"attention_bias", true}}), "attention_bias", ErrorKind::Unsupported);
  refused(qwen2(), "attention_bias", ErrorKind::Unsupported);  // says false, but the architecture always has it
  refused(with(qwen3(), {{"mlp_bias", true}}), "mlp_bias", ErrorKind::Unsupported);
}

TEST_CASE("windows: uniform for mistral, none or refused elsewhere") {
  CHECK(import_config(with(mistral(), {{"sliding_window", 4096}}), "x")->sliding_window == 4096);
  Json null_window = mistral();
  null_window["sliding_window"] = nullptr;
  CHECK_FALSE(import_config(null_window, "x")->sliding_window);
  refused(with(mistral(), {{"sliding_window", 0}}), "sliding_window", ErrorKind::InvalidArgument);
  refused(with(llama(), {{"sliding_window", 4096}}), "sliding_window", ErrorKind::Unsupported);
  const Json q = with(qwen2(), {{"attention_bias", nullptr}, {"sliding_window", 4096}, {"max_window_layers", 16}});
  CHECK_FALSE(import_config(with(q, {{"use_sliding_window", false}}), "x")->sliding_window);
  CHECK_FALSE(import_config(with(q, {{"use_sliding_window", true}}), "x")->sliding_window);  // 16 layers, the first windowed one would be the 17th
  refused(with(q, {{"use_sliding_window", true}, {"max_window_layers", 15}}), "use_sliding_window", ErrorKind::Unsupported);
  Json types = llama();
  types["layer_types"] = Json::array();
  for (int i = 0; i < 16; ++i) types["layer_types"].push_back("full_attention");
  CHECK(import_config(types, "x"));
  types["layer_types"][3] = "sliding_attention";
  refused(types, "layer_types", ErrorKind::Unsupported);
}

TEST_CASE("what changes the arithmetic is refused by name") {
  const auto off = [](const Json& patch, const std::string& field) { refused(with(llama(), patch), field, ErrorKind::Unsupported); };
  off({{"model_type", "gpt2"}}, "model_type");
  off({{"architectures", {"LlamaForSequenceClassification"}}}, "architectures");
  off({{"hidden_act", "gelu"}}, "hidden_act");
  off({{"quantization_config", {{"bits", 4}}}}, "quantization_config");
  off({{"num_local_experts", 8}}, "num_local_experts");
  off({{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping");
  off({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
  off({{"embedding_multiplier", 12.0}}, "embedding_multiplier");
  off({{"torch_dtype", "float8_e4m3fn"}}, "torch_dtype");
  off({{"rope_scaling", {{"rope_type", "yarn"}}}}, "rope_scaling.rope_type");
  off({{"rope_scaling", {{"rope_type", nullptr}, {"type", "dynamic"}}}}, "rope_scaling.type");
  off({{"rope_scaling", {{"short_factor", {1.0}}}}}, "rope_scaling.short_factor");
  off({{"rope_scaling", {{"partial_rotary_factor", 0.25}}}}, "rope_scaling.partial_rotary_factor");
  off({{"rope_scaling", {{"rope_type", "default"}, {"low_freq_factor", nullptr}, {"high_freq_factor", nullptr}}}}, "rope_scaling.factor");
  CHECK(import_config(with(llama(), {{"partial_rotary_factor", 1.0}}), "x"));
}

TEST_CASE("numbers no model can have are refused by name") {
  const auto bad = [](const Json& patch, const std::string& field) { refused(with(llama(), patch), field, ErrorKind::InvalidArgument); };
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                            "head_dim", "max_position_embeddings"}) {
    for (const Json& value : {Json(0), Json(-1), Json(INT64_MIN), Json(UINT64_MAX), Json(1ll << 31), Json((1ll << 32) + 64), Json(64.0), Json("64"),
                              Json::array({64}), Json(true)})
      bad({{field, value}}, field);
  }
  for (const Json& value : {Json(0), Json(-1e-5), Json(2.0), Json("1e-5"), Json(false)}) bad({{"rms_norm_eps", value}}, "rms_norm_eps");
  for (const Json& value : {Json(0.0), Json(-10000.0), Json(1e300), Json("x")}) bad({{"rope_theta", value}}, "rope_theta");
  for (const Json& value : {Json(0.5), Json(-1), Json(1e30)}) bad({{"rope_scaling", {{"factor", value}}}}, "rope_scaling.factor");
  bad({{"rope_scaling", {{"high_freq_factor", 1.0}}}}, "rope_scaling.high_freq_factor");
  bad({{"rope_scaling", {{"original_max_position_embeddings", nullptr}}}}, "rope_scaling.original_max_position_embeddings");
  bad({{"rope_scaling", {{"type", "linear"}}}}, "rope_scaling.type");  // contradicts rope_type
  bad({{"num_key_value_heads", 5}}, "num_key_value_heads");
  bad({{"num_key_value_heads", 64}}, "num_key_value_heads");
  bad({{"head_dim", 63}}, "head_dim");
  bad({{"head_dim", nullptr}, {"hidden_size", 2050}}, "hidden_size");
  bad({{"model_type", nullptr}}, "model_type");
  bad({{"tie_word_embeddings", 1}}, "tie_word_embeddings");
  for (const char* text : {"[]", "3", "null", "\"llama\""}) CHECK_FALSE(import_config(*parse_json(text, "t"), "x"));
}

TEST_CASE("the largest accepted dimensions do not overflow") {
  const auto spec = import_config(with(llama(), {{"vocab_size", 1 << 24},
                                                 {"hidden_size", 1 << 20},
                                                 {"intermediate_size", 1 << 22},
                                                 {"num_hidden_layers", 4096},
                                                 {"num_attention_heads", 4096},
                                                 {"num_key_value_heads", 4096},
                                                 {"head_dim", 4096},
                                                 {"tie_word_embeddings", false},
                                                 {"torch_dtype", "float32"}}),
                                  "x");
  REQUIRE(spec);
  // In double: vocab·hidden·2 + layers·(3·intermediate·hidden + 4·heads·head_dim·hidden + 2·hidden) + hidden
  const double want = 0x1p45 + 4096.0 * (3 * 0x1p42 + 4 * 0x1p44 + 0x1p21) + 0x1p20;
  CHECK(static_cast<double>(spec->parameters()) == doctest::Approx(want).epsilon(1e-12));
  CHECK(static_cast<double>(spec->decode_weight_bytes()) == doctest::Approx(4 * (want - 0x1p44 + 0x1p20)).epsilon(1e-12));
}
