// The oracle against logits and greedy ids that transformers computed from the same files.
#include <doctest/doctest.h>

#include <cmath>

#include "core/reference/forward.h"
#include "core/reference/native.h"
#include "fixture.h"

using namespace amk;
using namespace amk::testing;

TEST_CASE("fp32 logits equal transformers' within 1e-4 of their standard deviation at every position") {
  for (const std::string& name : fixture_names()) {
    CAPTURE(name);
    const Fixture f = load_fixture(name);
    const auto vocab = static_cast<std::size_t>(f.weights->spec().vocab);
    REQUIRE(f.logits_fp32.size() == f.input_ids.size() * vocab);
    Oracle oracle(f.weights, 64, 2);
    double worst = 0;
    for (std::size_t t = 0; t < f.input_ids.size(); ++t) {
      auto logits = oracle.step(f.input_ids[t]);
      REQUIRE(logits);
      for (std::size_t i = 0; i < vocab; ++i) worst = std::max(worst, std::abs(static_cast<double>((*logits)[i]) - f.logits_fp32[t * vocab + i]));
    }
    INFO("max-abs error over standard deviation: ", worst / f.logit_std);
    CHECK(worst <= 1e-4 * f.logit_std);
  }
}

TEST_CASE("greedy decoding gives transformers' ids") {
  for (const std::string& name : fixture_names()) {
    CAPTURE(name);
    const Fixture f = load_fixture(name);
    REQUIRE(f.greedy_ids.size() == 5 + 16);
    Oracle oracle(f.weights, 64, 2);
    std::vector<std::int32_t> ids(f.input_ids.begin(), f.input_ids.begin() + 5);
    for (std::size_t t = 0; ids.size() < f.greedy_ids.size(); ++t) {
      auto logits = oracle.step(ids[t]);
      REQUIRE(logits);
      if (t + 1 == ids.size()) ids.push_back(argmax(*logits));
    }
    CHECK(ids == f.greedy_ids);
  }
}

TEST_CASE("native bf16 is as far from fp32 as transformers' bf16 is; for bf16 checkpoints most logits are the same bits") {
  for (const std::string& name : fixture_names()) {
    CAPTURE(name);
    const Fixture f = load_fixture(name);
    const auto vocab = static_cast<std::size_t>(f.weights->spec().vocab);
    NativeForward native(f.weights, 64, 2);
    double max_ours = 0, rms_ours = 0, rms_theirs = 0;
    std::size_t equal = 0;
    for (std::size_t t = 0; t < f.input_ids.size(); ++t) {
      auto logits = native.step(f.input_ids[t]);
      REQUIRE(logits);
      for (std::size_t i = 0; i < vocab; ++i) {
        const double exact = f.logits_fp32[t * vocab + i];
        const double ours = (*logits)[i] - exact;
        const double theirs = f.logits_bf16[t * vocab + i] - exact;
        max_ours = std::max(max_ours, std::abs(ours));
        rms_ours += ours * ours;
        rms_theirs += theirs * theirs;
        equal += ours == theirs;
      }
    }
    const double max_ratio = max_ours / f.bf16_error;
    const double rms_ratio = std::sqrt(rms_ours / rms_theirs);
    const double equal_share = static_cast<double>(equal) / static_cast<double>(f.logits_bf16.size());
    INFO("max-abs ratio ", max_ratio, ", rms ratio ", rms_ratio, ", equal share ", equal_share);
    CHECK(max_ratio > 0.5);
    CHECK(max_ratio < 2.0);
    CHECK(rms_ratio > 0.75);
    CHECK(rms_ratio < 1.33);
    // Other weights are rounded from fp32 or fp16 after the rotary buffer was: only bf16 checkpoints can match exactly.
    if (f.weights->spec().dtype == DType::BF16) CHECK(equal_share > 0.7);
  }
}
