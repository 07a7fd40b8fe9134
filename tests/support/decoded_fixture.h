// A checkpoint of tests/fixtures/hf with a long token sequence that the oracle has decoded: logits at every position and the KV cache behind.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/model/load.h"
#include "core/program/lower.h"
#include "core/reference/forward.h"
#include "core/reference/reference_vm.h"

namespace amk::test {

inline const std::vector<std::string>& fixture_names() {
  static const std::vector<std::string> names = {"llama-9h3kv",       "llama-fp32-hd128", "llama-gqa",          "llama-headdim-wide",
                                                 "llama-linear-rope", "llama-mha-bias",   "llama-sharded-fp16", "llama-tied-mqa-llama3rope",
                                                 "mistral-window8",   "qwen2-bias",       "qwen3-qknorm"};
  return names;
}

struct DecodedFixture {
  std::shared_ptr<const Weights> weights;
  int max_seq = 0;
  std::vector<int> tokens;
  std::vector<std::vector<float>> logits;  // [position]
  double logit_std = 0;
  std::unique_ptr<Oracle> oracle;  // at the end of the sequence

  const ModelSpec& spec() const { return weights->spec(); }
  // The rounding of fp32 arithmetic in another order: the bound that the oracle itself is held to against transformers.
  double bound() const { return 1e-4 * logit_std; }
  NumericFormat exact_format() const { return {spec().dtype, DType::F32, DType::F32}; }
  ReferenceVm::LayerCache keys() const {
    return [this](int layer) { return oracle->keys(layer); };
  }
  ReferenceVm::LayerCache values() const {
    return [this](int layer) { return oracle->values(layer); };
  }
  double max_abs_error(int position, std::span<const float> got) const {
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(static_cast<double>(got[i]) - logits[static_cast<std::size_t>(position)][i]);
      if (!(error <= worst)) worst = error;  // a NaN stays
    }
    return worst;
  }
};

inline DecodedFixture decode_fixture(const std::string& name, int positions) {
  const std::filesystem::path folder = std::filesystem::path(AMK_SOURCE_DIR) / "tests" / "fixtures" / "hf" / name;
  auto ref = resolve_model(folder.string(), ModelSources{});
  REQUIRE_MESSAGE(ref, name);
  auto weights = load_weights(*ref, 1);
  REQUIRE_MESSAGE(weights, name);
  DecodedFixture fixture;
  fixture.weights = *weights;
  fixture.max_seq = positions;
  fixture.oracle = std::make_unique<Oracle>(*weights, positions, 1);
  Rng rng(0x70'6f'73);
  double sum = 0, squares = 0;
  for (int p = 0; p < positions; ++p) {
    fixture.tokens.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(fixture.spec().vocab))));
    auto step = fixture.oracle->step(fixture.tokens.back());
    REQUIRE(step);
    fixture.logits.emplace_back(step->begin(), step->end());
    for (float v : *step) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
  }
  const double n = static_cast<double>(positions) * fixture.spec().vocab;
  fixture.logit_std = std::sqrt(squares / n - (sum / n) * (sum / n));
  return fixture;
}

}  // namespace amk::test
