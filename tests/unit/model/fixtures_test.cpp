// The recorded checkpoints: accepted ones import with the dimensions of their config, the others are refused by the right field.
#include <doctest/doctest.h>

#include <filesystem>

#include "core/model/load.h"

using namespace amk;

namespace {
std::string fixture(const std::string& name) { return (std::filesystem::path(AMK_SOURCE_DIR) / "tests/fixtures/hf" / name).string(); }
}  // namespace

TEST_CASE("configs outside the family are refused by the field and value that rule them out") {
  struct Refusal {
    const char* folder;
    const char* field;
    const char* value;
  };
  for (const Refusal& r : {Refusal{"reject-gemma2", "model_type", "gemma2"}, Refusal{"reject-mixtral", "model_type", "mixtral"},
                           Refusal{"reject-phi3", "model_type", "phi3"}, Refusal{"reject-llama-gelu", "hidden_act", "gelu"},
                           Refusal{"reject-llama-yarn", "rope_parameters.rope_type", "yarn"}}) {
    CAPTURE(r.folder);
    const auto ref = resolve_model(fixture(r.folder), {});
    REQUIRE_FALSE(ref);
    CHECK(ref.error().kind == ErrorKind::Unsupported);
    CHECK(ref.error().data["field"] == r.field);
    CHECK(ref.error().data["value"] == r.value);
  }
}

TEST_CASE("both config layouts import: transformers 5 and 4 with llama3 scaling") {
  const auto five = resolve_model(fixture("llama-9h3kv"), {});
  REQUIRE(five);
  CHECK(five->spec.heads == 9);
  CHECK(five->spec.kv_heads == 3);
  CHECK(five->spec.head_dim == 16);
  CHECK(five->spec.tied_embeddings);
  CHECK(five->spec.rope.theta == 10000.0);
  CHECK(five->spec.dtype == DType::BF16);
  const auto four = resolve_model(fixture("llama-tied-mqa-llama3rope"), {});
  REQUIRE(four);
  CHECK(four->spec.rope.scaling == RopeScaling::Llama3);
  CHECK(four->spec.rope.theta == 500000.0);
  CHECK(four->spec.rope.factor == 32.0);
  CHECK(four->spec.rope.original_max_position == 64);
  const auto window = resolve_model(fixture("mistral-window8"), {});
  REQUIRE(window);
  CHECK(window->spec.sliding_window == 8);
}
