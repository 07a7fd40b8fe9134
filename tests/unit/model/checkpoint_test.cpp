// A checkpoint folder as a whole: config, shards and index must agree tensor by tensor.
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "core/base/parse_json.h"
#include "core/model/load.h"
#include "core/model/tensor_table.h"
#include "temp_dir.h"

using namespace amk;
using namespace amk::testing;
namespace fs = std::filesystem;

namespace {

struct Tensor {
  std::string dtype = "BF16";
  std::vector<int> shape;
  std::string data;
};
using Tensors = std::map<std::string, Tensor>;

const char* kConfig = R"({"model_type":"llama","vocab_size":10,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,
  "num_attention_heads":2,"num_key_value_heads":1,"dtype":"bfloat16","tie_word_embeddings":false})";

Tensors tiny() {
  Tensors t;
  const auto add = [&](const std::string& name, std::vector<int> shape) {
    std::size_t bytes = 2;
    for (int d : shape) bytes *= static_cast<std::size_t>(d);
    std::string data(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(0x30 + (i * 7 + name.size()) % 16);
    t[name] = {"BF16", std::move(shape), std::move(data)};
  };
  add("model.embed_tokens.weight", {10, 8});
  add("lm_head.weight", {10, 8});
  add("model.norm.weight", {8});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    add(layer + "input_layernorm.weight", {8});
    add(layer + "post_attention_layernorm.weight", {8});
    add(layer + "self_attn.q_proj.weight", {8, 8});
    add(layer + "self_attn.k_proj.weight", {4, 8});
    add(layer + "self_attn.v_proj.weight", {4, 8});
    add(layer + "self_attn.o_proj.weight", {8, 8});
    add(layer + "mlp.gate_proj.weight", {12, 8});
    add(layer + "mlp.up_proj.weight", {12, 8});
    add(layer + "mlp.down_proj.weight", {8, 12});
  }
  return t;
}

std::string file_of(const Tensors& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, t] : tensors) {
    header[name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {data.size(), data.size() + t.data.size()}}};
    data += t.data;
  }
  return safetensors_bytes(header.dump(), data);
}

Result<std::shared_ptr<const Weights>> load(const TempDir& dir) {
  auto ref = resolve_model(dir.path().string(), {});
  REQUIRE_MESSAGE(ref, (ref ? "" : ref.error().message));
  return load_weights(*ref);
}

Error refusal(const std::function<void(Tensors&)>& edit, const char* config = kConfig) {
  const TempDir dir;
  dir.write("config.json", config);
  Tensors t = tiny();
  edit(t);
  dir.write("model.safetensors", file_of(t));
  auto weights = load(dir);
  REQUIRE_FALSE(weights);
  return weights.error();
}

bool says(const Error& e, const char* what) { return e.message.find(what) != std::string::npos; }

void write_sharded(const TempDir& dir, const std::function<void(Json&)>& edit_map = {}) {
  dir.write("config.json", kConfig);
  Tensors first, second;
  Json map = Json::object();
  for (const auto& [name, t] : tiny()) {
    const bool in_first = map.size() % 2 == 0;
    (in_first ? first : second)[name] = t;
    map[name] = in_first ? "one.safetensors" : "two.safetensors";
  }
  if (edit_map) edit_map(map);
  dir.write("one.safetensors", file_of(first));
  dir.write("two.safetensors", file_of(second));
  dir.write("model.safetensors.index.json", Json({{"weight_map", map}}).dump());
}

}  // namespace

TEST_CASE("single and sharded checkpoints give the same bytes for every tensor") {
  const TempDir single, sharded;
  single.write("config.json", kConfig);
  single.write("model.safetensors", file_of(tiny()));
  write_sharded(sharded);
  const auto a = load(single);
  const auto b = load(sharded);
  REQUIRE_MESSAGE(a, (a ? "" : a.error().message));
  REQUIRE_MESSAGE(b, (b ? "" : b.error().message));
  const Tensors want = tiny();
  for (const TensorShape& s : tensor_table((*a)->spec())) {
    const std::string& data = want.at(checkpoint_name(s.kind, s.layer)).data;
    for (const auto& weights : {*a, *b}) {
      const TensorView v = weights->get(s.kind, s.layer);
      REQUIRE(v.bytes() == static_cast<std::int64_t>(data.size()));
      CHECK(std::equal(data.begin(), data.end(), reinterpret_cast<const char*>(v.data)));
    }
  }
  CHECK((*a)->content_id() != (*b)->content_id());
  CHECK_FALSE((*a)->get(WeightKind::QBias, 0));
  CHECK_FALSE((*a)->get(WeightKind::Q, 2));
  CHECK_FALSE((*a)->get(WeightKind::Q, -1));
}

TEST_CASE("a tensor that is missing, misshapen, of another dtype or unknown is named") {
  const auto missing = refusal([](Tensors& t) { t.erase("model.layers.1.mlp.up_proj.weight"); });
  CHECK(missing.kind == ErrorKind::Corrupt);
  CHECK(says(missing, "\"model.layers.1.mlp.up_proj.weight\" is missing"));
  CHECK(says(refusal([](Tensors& t) { t.erase("lm_head.weight"); }), "tie_word_embeddings is false"));
  const auto shape = refusal([](Tensors& t) { t["model.layers.0.self_attn.k_proj.weight"].shape = {8, 4}; });
  CHECK(shape.kind == ErrorKind::Corrupt);
  CHECK(says(shape, "has shape [8,4]; the config needs [4,8]"));
  CHECK(says(refusal([](Tensors& t) { t["model.norm.weight"].shape = {1, 8}; }), "has shape [1,8]; the config needs [8]"));
  const auto dtype = refusal([](Tensors& t) { t["model.norm.weight"].dtype = "F16"; });
  CHECK(dtype.kind == ErrorKind::Unsupported);
  CHECK(says(dtype, "\"model.norm.weight\" is F16; accepted: bf16"));
  CHECK(says(refusal([](Tensors& t) { t["model.norm.weight"].dtype = "I16"; }), "is I16"));
  const auto extra = refusal([](Tensors& t) { t["model.layers.0.self_attn.q_proj.bias"] = {"BF16", {8}, std::string(16, 'b')}; });
  CHECK(extra.kind == ErrorKind::Unsupported);
  CHECK(extra.data["tensor"] == "model.layers.0.self_attn.q_proj.bias");
  CHECK(says(refusal([](Tensors& t) { t["model.layers.2.mlp.up_proj.weight"] = t["model.layers.1.mlp.up_proj.weight"]; }), "model.layers.2"));
}

TEST_CASE("derived constants and a repeated tied head are accepted, a different tied head is not") {
  const std::string tied = std::string(kConfig).replace(std::string(kConfig).find("false"), 5, "true");
  const auto different = refusal([](Tensors&) {}, tied.c_str());
  CHECK(different.data["field"] == "tie_word_embeddings");
  const TempDir dir;
  dir.write("config.json", tied);
  Tensors t = tiny();
  t["lm_head.weight"] = t["model.embed_tokens.weight"];
  t["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {2}, std::string(8, 'f')};
  dir.write("model.safetensors", file_of(t));
  const auto weights = load(dir);
  REQUIRE_MESSAGE(weights, (weights ? "" : weights.error().message));
  CHECK((*weights)->get(WeightKind::LmHead).data == (*weights)->get(WeightKind::Embedding).data);
}

TEST_CASE("an index cannot reach outside its folder or promise what is not there") {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".", "", "a\\b"}) {
    CAPTURE(name);
    const TempDir dir;
    write_sharded(dir, [&](Json& map) { map["lm_head.weight"] = name; });
    const auto weights = load(dir);
    REQUIRE_FALSE(weights);
    CHECK(weights.error().kind == ErrorKind::Corrupt);
    CHECK(says(weights.error(), "a file name without folders"));
  }
  const TempDir wrong_shard;
  write_sharded(wrong_shard,
                [](Json& map) { map["lm_head.weight"] = map["lm_head.weight"] == "one.safetensors" ? "two.safetensors" : "one.safetensors"; });
  CHECK(says(load(wrong_shard).error(), "\"lm_head.weight\" is missing, although the index places it there"));
  const TempDir no_shard;
  write_sharded(no_shard, [](Json& map) { map["lm_head.weight"] = "three.safetensors"; });
  CHECK(load(no_shard).error().kind == ErrorKind::NotFound);
  const TempDir not_text;
  write_sharded(not_text, [](Json& map) { map["lm_head.weight"] = 3; });
  CHECK(load(not_text).error().kind == ErrorKind::Corrupt);
  const TempDir not_map;
  write_sharded(not_map);
  not_map.write("model.safetensors.index.json", "[]");
  CHECK(says(load(not_map).error(), "weight_map is missing"));
  const TempDir no_weights;
  no_weights.write("config.json", kConfig);
  CHECK(says(load(no_weights).error(), "holds neither model.safetensors"));
}

TEST_CASE("config.json itself: absent, too large, not JSON, or with a duplicate field") {
  const TempDir dir;
  const auto resolve = [&] { return resolve_model(dir.path().string(), {}); };
  CHECK(resolve().error().kind == ErrorKind::NotFound);
  dir.write("config.json", "{\"model_type\":\"llama\",\"model_type\":\"llama\"}");
  CHECK(says(resolve().error(), "duplicate key"));
  dir.write("config.json", "{\"rms_norm_eps\": NaN}");
  CHECK(says(resolve().error(), "not valid JSON"));
  dir.write("config.json", std::string(2 << 20, ' '));
  CHECK(says(resolve().error(), "accepted: at most 1048576"));
  dir.write("config.json", "[1]");
  CHECK(resolve().error().data["field"] == "config");
}

TEST_CASE("without a dtype in the config the stored one counts") {
  const TempDir dir;
  std::string config = kConfig;
  config.replace(config.find("\"dtype\":\"bfloat16\","), 19, "");
  dir.write("config.json", config);
  CHECK_FALSE(resolve_model(dir.path().string(), {}));
  Tensors t = tiny();
  for (auto& [name, tensor] : t) tensor.dtype = "F16";
  dir.write("model.safetensors", file_of(t));
  const auto ref = resolve_model(dir.path().string(), {});
  REQUIRE(ref);
  CHECK(ref->spec.dtype == DType::F16);
  CHECK(load_weights(*ref));
}

TEST_CASE("a record of module-cast references rounds the rotary frequencies, and says so in the spec") {
  const TempDir dir;
  dir.write("config.json", kConfig);
  CHECK(resolve_model(dir.path().string(), {})->spec.rope.inv_freq_dtype == DType::F32);
  dir.write("about.json", R"({"note":"anybody's file"})");
  CHECK(resolve_model(dir.path().string(), {})->spec.rope.inv_freq_dtype == DType::F32);
  dir.write("about.json", R"({"transformers":"5.17.0","weights_dtype":"torch.bfloat16"})");
  const auto ref = resolve_model(dir.path().string(), {});
  REQUIRE(ref);
  CHECK(ref->spec.rope.inv_freq_dtype == DType::BF16);
  CHECK(to_json(ref->spec)["rope"]["inv_freq_dtype"] == "bf16");
}
