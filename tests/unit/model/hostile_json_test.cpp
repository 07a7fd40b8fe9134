// Every value of a real config.json and tokenizer.json replaced by every kind of wrong value: an answer each time, never an exception, and
// what is accepted keeps the invariants that the rest of the program divides and allocates by.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "core/base/parse_json.h"
#include "core/model/import.h"
#include "core/model/shards.h"
#include "core/model/tokenizer.h"

using namespace amk;
namespace fs = std::filesystem;

namespace {

const std::vector<Json>& wrong_values() {
  static const std::vector<Json> values = [] {
    const char* const text =
        R"([null, true, false, 0, 1, 2, 3, 7, -1, 1048577, 4294967296, 9223372036854775807, 18446744073709551615, -9223372036854775808,
      0.5, -0.0, 1e308, 1e-308, "", "x", "silu", "yarn", "BPE", "Sequence", "ByteLevel", [], [[]], [1, 2], ["a", "b"], {}, {"type": "Sequence"},
      {"type": "ByteLevel"}, {"type": 3}, {"rope_type": "llama3"}, {"Regex": 1}, {"String": " "}])";
    auto parsed = parse_json(text, "values");
    REQUIRE(parsed);
    return parsed->get<std::vector<Json>>();
  }();
  return values;
}

// Calls `use` with the document after each replacement or removal of one node, the root's children and deeper. Long lists: first two entries.
void each_mutation(Json& node, const std::function<void()>& use) {
  const auto visit = [&](Json& child) {
    const Json saved = child;
    for (const Json& wrong : wrong_values()) {
      child = wrong;
      use();
    }
    child = saved;
    each_mutation(child, use);
  };
  if (node.is_array())
    for (std::size_t i = 0; i < std::min<std::size_t>(node.size(), 2); ++i) visit(node[i]);
  if (node.is_object()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : node.items()) keys.push_back(key);
    if (keys.size() > 40) keys.resize(2);  // a vocabulary
    for (const std::string& key : keys) {
      visit(node[key]);
      const Json saved = node[key];
      node.erase(key);
      use();
      node[key] = saved;
    }
  }
}

Json read(const fs::path& path) {
  auto json = parse_json(*read_text_file(path, 64 << 20), path.string());
  REQUIRE(json);
  return *json;
}

}  // namespace

TEST_CASE("config.json: any one wrong value is refused or harmless") {
  for (const char* name : {"llama-tied-mqa-llama3rope", "llama-mha-bias", "mistral-window8", "qwen2-bias", "qwen3-qknorm"}) {
    Json config = read(fs::path(AMK_SOURCE_DIR) / "tests/fixtures/hf" / name / "config.json");
    int accepted = 0, refused = 0;
    each_mutation(config, [&] {
      const auto s = import_config(config, "m", DType::BF16);
      if (!s) {
        ++refused;
        CHECK_FALSE(s.error().message.empty());
        return;
      }
      ++accepted;
      CHECK((s->vocab > 0 && s->hidden > 0 && s->intermediate > 0 && s->layers > 0 && s->max_position > 0));
      CHECK((s->kv_heads > 0 && s->heads % s->kv_heads == 0 && s->head_dim > 0 && s->head_dim % 2 == 0));
      CHECK((s->rope.theta >= 1 && s->rope.factor >= 1 && s->rms_eps > 0 && s->sliding_window.value_or(1) > 0));
      CHECK(s->parameters() > 0);
    });
    CHECK(refused > 300);
    CHECK(accepted > 100);  // fields that inference does not read (dropout, token ids) may hold anything
  }
}

TEST_CASE("tokenizer.json: any one wrong value is refused or harmless") {
  for (const char* name : {"llama3", "llama2", "mistral"}) {
    Json tokenizer = read(fs::path(AMK_SOURCE_DIR) / "tests/fixtures/tokenizer" / (std::string(name) + ".json"))["tokenizer"];
    int accepted = 0, refused = 0;
    each_mutation(tokenizer, [&] {
      const auto t = Tokenizer::from_json(tokenizer);
      if (!t) {
        ++refused;
        CHECK_FALSE(t.error().message.empty());
        return;
      }
      ++accepted;
      const auto ids = t->encode(" the kernel's 123 é\n");
      if (ids) CHECK(t->decode(*ids));
    });
    CHECK(refused > 100);
    CHECK(accepted > 50);
  }
}
