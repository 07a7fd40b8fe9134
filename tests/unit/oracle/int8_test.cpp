// The oracle of an int8 model is the oracle of its dequantised weights, written out in fp32.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "core/reference/forward.h"
#include "core/reference/native.h"
#include "fixture.h"

using namespace amk;
using namespace amk::testing;

namespace {

// Every tensor as fp32: matrices as integer times scale. Ordinary weights of an ordinary fp32 model.
class Dequantised final : public Weights {
 public:
  explicit Dequantised(std::shared_ptr<const Weights> from) : from_(std::move(from)), spec_(from_->spec()) {
    spec_.weight_format = WeightFormat::Stored;
    spec_.dtype = DType::F32;
  }
  const ModelSpec& spec() const override { return spec_; }
  std::string content_id() const override { return "dequantised"; }
  TensorView get(WeightKind kind, int layer) const override {
    const TensorView q = from_->get(kind, layer);
    if (!q) return q;
    std::vector<float>& values = held_[{kind, layer}];
    if (values.empty()) {
      for (std::int64_t i = 0; i < q.elements(); ++i) {
        if (q.dtype == DType::I8) {
          values.push_back(static_cast<float>(static_cast<std::int8_t>(q.data[i])) * q.scales[i / q.cols]);
        } else {
          std::uint16_t bits = 0;
          std::memcpy(&bits, q.data + 2 * i, 2);
          values.push_back(q.dtype == DType::BF16 ? bf16_to_f32(bits) : f16_to_f32(bits));
        }
      }
    }
    return {reinterpret_cast<const std::byte*>(values.data()), DType::F32, q.rows, q.cols};
  }

 private:
  std::shared_ptr<const Weights> from_;
  ModelSpec spec_;
  mutable std::map<std::pair<WeightKind, int>, std::vector<float>> held_;
};

std::shared_ptr<const Weights> at_int8(const std::string& name) {
  auto ref = resolve_model(fixture_path(name).string() + "@int8", {});
  REQUIRE_MESSAGE(ref, (ref ? "" : ref.error().message));
  auto weights = load_weights(*ref, 1);
  REQUIRE_MESSAGE(weights, (weights ? "" : weights.error().message));
  return *weights;
}

}  // namespace

TEST_CASE("fixtures at int8: the same bits as an fp32 model with the dequantised weights") {
  for (const char* name : {"llama-gqa", "llama-9h3kv", "llama-sharded-fp16", "qwen3-qknorm", "qwen2-bias", "llama-mha-bias"}) {
    CAPTURE(name);
    const auto weights = at_int8(name);
    Oracle oracle(weights, 16, 1), plain(std::make_shared<Dequantised>(weights), 16, 1), stored(load_fixture_weights(name), 16, 1);
    double worst = 0, spread = 0;
    for (int p = 0; p < 6; ++p) {
      const int token = (p * 37 + 5) % weights->spec().vocab;
      const auto got = oracle.step(token), expected = plain.step(token), original = stored.step(token);
      REQUIRE(got);
      REQUIRE(expected);
      REQUIRE(original);
      REQUIRE(std::memcmp(got->data(), expected->data(), got->size_bytes()) == 0);
      for (std::size_t i = 0; i < got->size(); ++i) {
        worst = std::max<double>(worst, std::abs((*got)[i] - (*original)[i]));
        spread = std::max<double>(spread, std::abs((*original)[i]));
      }
    }
    // Quantisation is not nothing, and not much: its steps are 1/127 of each row's largest.
    CHECK(worst > 1e-4 * spread);
    CHECK(worst < 0.2 * spread);
  }
}

TEST_CASE("native arithmetic rounds results, not int8 weights") {
  const auto weights = at_int8("llama-gqa");
  Oracle oracle(weights, 8, 1);
  NativeForward native(weights, 8, 1), rounded(std::make_shared<Dequantised>(weights), 8, 1);  // the latter rounds weights to bf16
  double exact_error = 0, rounded_error = 0;
  for (int p = 0; p < 8; ++p) {
    const auto want = oracle.step(p * 11 + 1), got = native.step(p * 11 + 1), worse = rounded.step(p * 11 + 1);
    REQUIRE(want);
    REQUIRE(got);
    REQUIRE(worse);
    for (std::size_t i = 0; i < want->size(); ++i) {
      exact_error += std::abs((*got)[i] - (*want)[i]);
      rounded_error += std::abs((*worse)[i] - (*want)[i]);
    }
  }
  CHECK(exact_error > 0);
  CHECK(exact_error < rounded_error);
}
