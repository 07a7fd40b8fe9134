// Names: the catalogue, folders and the local HuggingFace cache; and the seeded weights behind catalogue names.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>

#include "core/base/hash.h"
#include "core/base/random.h"
#include "core/model/catalogue.h"
#include "core/model/hf_cache.h"
#include "core/model/load.h"
#include "core/model/seeded.h"
#include "core/model/tensor_table.h"
#include "temp_dir.h"

using namespace amk;
using namespace amk::testing;
namespace fs = std::filesystem;

namespace {

ModelSources sources(const fs::path& cache = "/nonexistent") { return {fs::path(AMK_SOURCE_DIR) / "config/models", cache}; }

const char* kCommit = "0123456789abcdef0123456789abcdef01234567";
std::string config() {
  return R"({"model_type":"llama","vocab_size":10,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,"dtype":"bfloat16"})";
}

}  // namespace

TEST_CASE("every catalogue record imports, under its own name, and parameter counts match the publishers' figures") {
  const auto names = catalogue_names(sources());
  CHECK(names.size() >= 13);
  for (const std::string& name : names) {
    CAPTURE(name);
    const auto ref = resolve_model(name, sources());
    REQUIRE_MESSAGE(ref, (ref ? "" : ref.error().message));
    CHECK(ref->source == ModelRef::Source::Catalogue);
    CHECK(ref->spec.name == name);
  }
  // total_size of the published safetensors over two bytes (model cards round these).
  const std::pair<const char*, std::int64_t> published[] = {
      {"llama-3.2-1b", 1'235'814'400},   {"llama-3.2-3b", 3'212'749'824}, {"llama-3.1-8b", 8'030'261'248},
      {"tinyllama-1.1b", 1'100'048'384}, {"smollm2-135m", 134'515'008},   {"smollm2-360m", 361'821'120},
      {"qwen2.5-0.5b", 494'032'768},     {"qwen3-0.6b", 596'049'920},     {"mistral-7b", 7'241'732'096}};
  for (const auto& [name, parameters] : published) {
    CAPTURE(name);
    CHECK(resolve_model(name, sources())->spec.parameters() == parameters);
  }
}

TEST_CASE("unknown and malformed names are answered, never searched for elsewhere") {
  for (const std::string& name : {std::string(), std::string("no-such-model"), std::string("../toy"), std::string("org/../name"),
                                  std::string("org/name/x"), std::string("/nonexistent/x"), std::string(5000, 'a'), std::string("a\0b", 3),
                                  std::string("-x/y"), std::string("x/.y"), std::string("models--a/b"), std::string("org/name")}) {
    CAPTURE(name);
    const auto ref = resolve_model(name, sources());
    REQUIRE_FALSE(ref);
    CHECK((ref.error().kind == ErrorKind::NotFound || ref.error().kind == ErrorKind::InvalidArgument));
  }
  CHECK(resolve_model("nope", sources()).error().message.find("llama-3.2-1b") != std::string::npos);
}

TEST_CASE("a folder that is no checkpoint is named as the model that was asked for") {
  TempDir dir;
  for (const std::string& name : {dir.path().string(), dir.path().string() + "@int8"}) {
    const auto ref = resolve_model(name, sources());
    REQUIRE_FALSE(ref);
    CHECK(ref.error().kind == ErrorKind::NotFound);
    CHECK(ref.error().message == "model is \"" + dir.path().string() + "\", a folder without config.json; accepted: a checkpoint's own folder");
    CHECK(ref.error().data.value("field", "") == "model");
  }
}

TEST_CASE("org/name is found through refs/main in the cache") {
  const TempDir cache;
  const fs::path root = "models--org--some-model";
  cache.write(root / "blobs/abc", config());
  fs::create_directories(cache.path() / root / "snapshots" / kCommit);
  fs::create_symlink("../../blobs/abc", cache.path() / root / "snapshots" / kCommit / "config.json");  // as the hub's client lays it out
  const auto only = resolve_model("org/some-model", sources(cache.path()));
  REQUIRE_MESSAGE(only, (only ? "" : only.error().message));  // one snapshot and no ref: unambiguous
  cache.write(root / "refs/main", std::string(kCommit) + "\n");
  const auto ref = resolve_model("org/some-model", sources(cache.path()));
  REQUIRE(ref);
  CHECK(ref->source == ModelRef::Source::Directory);
  CHECK(ref->directory == cache.path() / root / "snapshots" / kCommit);
  CHECK(ref->spec.name == "org/some-model");
  cache.write(root / "refs/main", "../../../etc");
  CHECK(resolve_model("org/some-model", sources(cache.path())).error().kind == ErrorKind::Corrupt);
  cache.write(root / "refs/main", "ffff");
  CHECK(resolve_model("org/some-model", sources(cache.path())).error().kind == ErrorKind::NotFound);
  fs::remove(cache.path() / root / "refs/main");
  fs::create_directories(cache.path() / root / "snapshots/eeee");
  CHECK(resolve_model("org/some-model", sources(cache.path())).error().message.find("2 snapshots") != std::string::npos);
}

TEST_CASE("the cache folder follows the hub client's environment variables") {
  const auto set = [](const char* hub, const char* home, const char* xdg) {
    hub != nullptr ? ::setenv("HF_HUB_CACHE", hub, 1) : ::unsetenv("HF_HUB_CACHE");
    home != nullptr ? ::setenv("HF_HOME", home, 1) : ::unsetenv("HF_HOME");
    xdg != nullptr ? ::setenv("XDG_CACHE_HOME", xdg, 1) : ::unsetenv("XDG_CACHE_HOME");
    ::setenv("HOME", "/home/u", 1);
    return default_hf_cache().string();
  };
  CHECK(set("/a", "/b", "/c") == "/a");
  CHECK(set(nullptr, "/b", "/c") == "/b/hub");
  CHECK(set(nullptr, "~/hf", nullptr) == "/home/u/hf/hub");
  CHECK(set(nullptr, nullptr, "/c") == "/c/huggingface/hub");
  CHECK(set(nullptr, nullptr, nullptr) == "/home/u/.cache/huggingface/hub");
}

TEST_CASE("symbolic link loops in a model path are named") {
  const TempDir dir;
  fs::create_directory_symlink("loop", dir / "loop");
  const auto ref = resolve_model((dir / "loop").string(), sources());
  REQUIRE_FALSE(ref);
  CHECK(ref.error().message.find("symbolic links") != std::string::npos);
}

TEST_CASE("catalogue records are checked like any input") {
  const TempDir dir;
  const auto error = [&](const std::string& text) {
    dir.write("m.json", text);
    const auto e = read_catalogue_entry(dir.path(), "m");
    REQUIRE_FALSE(e);
    return e.error().message;
  };
  CHECK(error("{").find("not valid JSON") != std::string::npos);
  CHECK(error("[]").find("a JSON object") != std::string::npos);
  CHECK(error(R"({"seed":1,"config":{},"extra":2})").find("extra") != std::string::npos);
  CHECK(error(R"({"seed":-1,"config":{}})").find("seed") != std::string::npos);
  CHECK(error(R"({"seed":1})").find("config") != std::string::npos);
  CHECK(error(R"({"seed":1,"config":{"model_type":"bert"}})").find("bert") != std::string::npos);
}

TEST_CASE("seeded weights are the same bits for any thread count, and other bits for another seed, layer or kind") {
  const auto ref = resolve_model("small", sources());
  REQUIRE(ref);
  const auto a = *generate_weights(ref->spec, 1, 1);
  const auto b = *generate_weights(ref->spec, 1, 5);
  const auto c = *generate_weights(ref->spec, 2, 2);
  const auto bytes = [](const TensorView& v) { return std::string_view(reinterpret_cast<const char*>(v.data), static_cast<std::size_t>(v.bytes())); };
  for (const TensorShape& s : tensor_table(ref->spec)) {
    CHECK(bytes(a->get(s.kind, s.layer)) == bytes(b->get(s.kind, s.layer)));
    CHECK(bytes(a->get(s.kind, s.layer)) != bytes(c->get(s.kind, s.layer)));
  }
  CHECK(bytes(a->get(WeightKind::Q, 0)) != bytes(a->get(WeightKind::Q, 1)));
  CHECK(bytes(a->get(WeightKind::Gate, 0)) != bytes(a->get(WeightKind::Up, 0)));
  CHECK(a->content_id() == b->content_id());
  CHECK(a->content_id() != c->content_id());
}

TEST_CASE("seeded elements are the documented function of their index") {
  // Recomputed here from the description in seeded.h: piece i % 4 of mix64(key + i / 4), (u + 1/2) / 2^15 times sqrt(3) deviations.
  ModelSpec spec = resolve_model("toy", sources())->spec;
  for (const DType dtype : {DType::BF16, DType::F16, DType::F32}) {
    spec.dtype = dtype;
    const auto weights = *generate_weights(spec, 9, 2);
    const TensorView v = weights->get(WeightKind::Down, 0);
    std::vector<float> row(static_cast<std::size_t>(v.cols));
    const std::uint64_t key = mix64(mix64(9) ^ (static_cast<std::uint64_t>(WeightKind::Down) << 32));
    const double deviation = 3.0 * std::sqrt(2.0 / spec.layers) / std::sqrt(static_cast<double>(spec.intermediate));
    const double rounding = dtype == DType::BF16 ? 0x1p-8 : dtype == DType::F16 ? 0x1p-10 : 0x1p-22;
    for (std::int64_t r = 0; r < v.rows; ++r) {
      row_to_f32(v, r, row);
      for (std::int64_t c = 0; c < v.cols; ++c) {
        const auto i = static_cast<std::uint64_t>(r * v.cols + c);
        const auto u = static_cast<std::int16_t>(mix64(key + i / 4) >> (16 * (i % 4)));
        const double want = (u + 0.5) / 32768.0 * std::sqrt(3.0) * deviation;
        REQUIRE(std::abs(row[static_cast<std::size_t>(c)] - want) <= std::abs(want) * rounding + 1e-7);
      }
    }
  }
}

TEST_CASE("seeded bits are pinned: any change of the generator must change its version") {
  const auto ref = resolve_model("toy", sources());
  const auto weights = *load_weights(*ref);
  std::string all;
  for (const TensorShape& s : tensor_table(ref->spec)) {
    const TensorView v = weights->get(s.kind, s.layer);
    all.append(reinterpret_cast<const char*>(v.data), static_cast<std::size_t>(v.bytes()));
  }
  CHECK(hash128_hex(all) == "bdb31889d628c688a203d6f459c81ff6");
}
