// A folder of tests/fixtures/hf: weights by our own loader, and what transformers computed from the same files.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/base/parse_json.h"
#include "core/model/load.h"
#include "core/model/safetensors.h"
#include "core/model/shards.h"

namespace amk::testing {

inline const std::vector<std::string>& fixture_names() {
  static const std::vector<std::string> names = {"llama-9h3kv",       "llama-fp32-hd128", "llama-gqa",          "llama-headdim-wide",
                                                 "llama-linear-rope", "llama-mha-bias",   "llama-sharded-fp16", "llama-tied-mqa-llama3rope",
                                                 "mistral-window8",   "qwen2-bias",       "qwen3-qknorm"};
  return names;
}

inline std::filesystem::path fixture_path(const std::string& name) { return std::filesystem::path(AMK_SOURCE_DIR) / "tests/fixtures/hf" / name; }

template <class T>
std::vector<T> read_tensor(const SafetensorsFile& file, const char* name) {
  const StoredTensor* t = file.find(name);
  REQUIRE(t != nullptr);
  std::vector<T> out(static_cast<std::size_t>(t->bytes) / sizeof(T));
  std::memcpy(out.data(), t->data, static_cast<std::size_t>(t->bytes));
  return out;
}

struct Fixture {
  std::shared_ptr<const Weights> weights;
  std::vector<std::int32_t> input_ids, greedy_ids;
  std::vector<float> logits_fp32, logits_bf16;  // [input_ids, vocab]
  double logit_std = 0;
  double bf16_error = 0;  // max-abs over all positions of transformers' bf16 against its fp32
};

inline std::shared_ptr<const Weights> load_fixture_weights(const std::string& name) {
  auto ref = resolve_model(fixture_path(name).string(), {});
  REQUIRE_MESSAGE(ref, name << ": " << (ref ? "" : ref.error().message));
  auto weights = load_weights(*ref, 1);
  REQUIRE_MESSAGE(weights, name << ": " << (weights ? "" : weights.error().message));
  return *weights;
}

inline Fixture load_fixture(const std::string& name) {
  Fixture f;
  f.weights = load_fixture_weights(name);
  auto oracle = SafetensorsFile::open(fixture_path(name) / "oracle.safetensors");
  REQUIRE(oracle);
  f.input_ids = read_tensor<std::int32_t>(*oracle, "input_ids");
  f.greedy_ids = read_tensor<std::int32_t>(*oracle, "greedy_ids");
  f.logits_fp32 = read_tensor<float>(*oracle, "logits_fp32");
  f.logits_bf16 = read_tensor<float>(*oracle, "logits_bf16");
  auto about = parse_json(*read_text_file(fixture_path(name) / "about.json", 1 << 16), "about.json");
  REQUIRE(about);
  f.logit_std = (*about)["logit_std"].get<double>();
  f.bf16_error = (*about)["max_abs_bf16_minus_fp32"].get<double>();
  return f;
}

}  // namespace amk::testing
