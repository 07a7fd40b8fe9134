// int8 weights: values worked by hand, a second implementation in double, and what becomes of a whole model.
#include "core/model/quantise.h"

#include <doctest/doctest.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/random.h"
#include "core/model/load.h"
#include "core/model/seeded.h"
#include "tests/unit/model/temp_dir.h"

using namespace amk;

namespace {

std::vector<int> quantised(const std::vector<float>& row, float& scale) {
  std::vector<std::int8_t> q(row.size(), 99);
  scale = quantise_row(row, q);
  return {q.begin(), q.end()};
}

ModelSources catalogue() { return {std::filesystem::path(AMK_SOURCE_DIR) / "config/models", {}}; }

// Stored weights in which one element can be set.
class Edited final : public Weights {
 public:
  Edited(std::shared_ptr<const Weights> from, WeightKind kind, int layer, std::int64_t element, std::uint16_t bits)
      : from_(std::move(from)), kind_(kind), layer_(layer), view_(from_->get(kind, layer)) {
    data_.assign(view_.data, view_.data + view_.bytes());
    std::memcpy(data_.data() + 2 * element, &bits, 2);
    view_.data = data_.data();
  }
  const ModelSpec& spec() const override { return from_->spec(); }
  TensorView get(WeightKind kind, int layer) const override { return kind == kind_ && layer == layer_ ? view_ : from_->get(kind, layer); }
  std::string content_id() const override { return "edited"; }

 private:
  std::shared_ptr<const Weights> from_;
  WeightKind kind_;
  int layer_;
  TensorView view_;
  std::vector<std::byte> data_;
};

}  // namespace

TEST_CASE("scale = max / 127, nearest integer, ties to even") {
  float scale = 0;
  CHECK(quantised({127, -127, 63.5f, 64.5f, 0.5f, -0.5f, 1.5f, -1.5f, 0.49f, 0}, scale) == std::vector<int>{127, -127, 64, 64, 0, 0, 2, -2, 0, 0});
  CHECK(scale == 1.0f);
  CHECK(quantised({-2, 1, 0.25f}, scale) == std::vector<int>{-127, 64, 16});  // 63.5 and 15.875
  CHECK(scale == 2.0f / 127.0f);
  CHECK(quantised({0, -0.0f, 0}, scale) == std::vector<int>{0, 0, 0});
  CHECK(scale == 0.0f);
  CHECK(quantised({3e38f, -3e38f}, scale) == std::vector<int>{127, -127});
  const float tiny = std::numeric_limits<float>::denorm_min();
  CHECK(quantised({100 * tiny, -tiny}, scale) == std::vector<int>{100, -1});  // 100/127 of the smallest number rounds to one of it
  CHECK(scale == tiny);
  CHECK(quantised({190 * tiny, -tiny}, scale) == std::vector<int>{127, -1});  // and so does 190/127: clamped
  CHECK(scale == tiny);
  CHECK(quantised({tiny, 0}, scale) == std::vector<int>{0, 0});  // and 1/127 of it to none
  CHECK(scale == 0.0f);
}

TEST_CASE("a value that is not finite gives a scale that is none") {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const std::size_t at : {0u, 15u, 16u, 36u}) {
      std::vector<float> row(37, 1.0f);
      row[at] = bad;
      float scale = 0;
      quantised(row, scale);
      CHECK(std::isnan(scale));
    }
}

TEST_CASE("random rows agree with the same definition in long double, and dequantise to within half a step") {
  REQUIRE(std::fegetround() == FE_TONEAREST);
  Rng rng(77);
  for (int i = 0; i < 2000; ++i) {
    std::vector<float> row(1 + rng.below(130));
    const double size = std::pow(10.0, 12 * rng.uniform() - 6);
    for (float& v : row) v = static_cast<float>(size * (2 * rng.uniform() - 1));
    float scale = 0;
    const std::vector<int> q = quantised(row, scale);
    float top = 0;
    for (const float v : row) top = std::max(top, std::abs(v));
    REQUIRE(scale == top / 127.0f);
    for (std::size_t k = 0; k < row.size(); ++k) {
      const float ratio = row[k] / scale;  // fp32, as defined
      REQUIRE(q[k] == static_cast<int>(std::nearbyint(static_cast<long double>(ratio))));
      REQUIRE(std::abs(q[k]) <= 127);
      REQUIRE(std::abs(static_cast<double>(q[k]) * scale - row[k]) <= 0.50001 * scale);
    }
  }
}

TEST_CASE("toy@int8: matrices and head are quantised, all else is as stored, the tied table is both") {
  for (const char* name : {"toy", "small"}) {
    CAPTURE(name);
    const auto plain = resolve_model(name, catalogue()), ref = resolve_model(std::string(name) + "@int8", catalogue());
    REQUIRE(plain);
    REQUIRE(ref);
    CHECK(ref->spec.name == std::string(name) + "@int8");
    CHECK(ref->spec.weight_format == WeightFormat::Int8);
    CHECK(ref->spec.matrix_dtype() == DType::I8);
    const auto stored = load_weights(*plain, 1), made = load_weights(*ref, 1), again = load_weights(*ref, 3);
    REQUIRE(made);
    REQUIRE(again);
    CHECK((*made)->content_id() != (*stored)->content_id());
    CHECK((*made)->content_id() == (*again)->content_id());
    CHECK((*made)->spec().name == ref->spec.name);
    const auto same = [](const TensorView& a, const TensorView& b) {
      return a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols && std::memcmp(a.data, b.data, static_cast<std::size_t>(a.bytes())) == 0;
    };
    const int last = plain->spec.layers - 1;
    for (const WeightKind kind : {WeightKind::Embedding, WeightKind::AttnNorm, WeightKind::MlpNorm, WeightKind::FinalNorm})
      CHECK(same((*made)->get(kind, last), (*stored)->get(kind, last)));
    for (const WeightKind kind :
         {WeightKind::Q, WeightKind::K, WeightKind::V, WeightKind::O, WeightKind::Gate, WeightKind::Up, WeightKind::Down, WeightKind::LmHead}) {
      const TensorView q = (*made)->get(kind, last), w = (*stored)->get(kind, last);
      REQUIRE(q.dtype == DType::I8);
      REQUIRE(q.scales != nullptr);
      REQUIRE(q.rows == w.rows);
      REQUIRE(q.cols == w.cols);
      CHECK(same(q, (*again)->get(kind, last)));
      CHECK(std::memcmp(q.scales, (*again)->get(kind, last).scales, static_cast<std::size_t>(q.rows) * 4) == 0);
      std::vector<float> row(static_cast<std::size_t>(q.cols)), exact(row.size()), integers(row.size());
      TensorView bare = q;
      bare.scales = nullptr;
      for (std::int64_t r = 0; r < q.rows; ++r) {
        row_to_f32(q, r, row);
        row_to_f32(bare, r, integers);
        row_to_f32(w, r, exact);
        for (std::size_t k = 0; k < row.size(); ++k) {
          REQUIRE(row[k] == integers[k] * q.scales[r]);
          REQUIRE(std::abs(row[k] - exact[k]) <= 0.50001f * q.scales[r]);
        }
      }
    }
    CHECK_FALSE((*made)->get(WeightKind::Q, plain->spec.layers));
    CHECK_FALSE((*made)->get(WeightKind::Q, -1));
  }
}

TEST_CASE("bytes of a step: llama-3.2-1b@int8 by hand") {
  const auto ref = resolve_model("llama-3.2-1b@int8", catalogue());
  REQUIRE(ref);
  const std::int64_t layer = 2048 * 2048 + 2 * 512 * 2048 + 2048 * 2048 + 3 * 8192 * 2048, rows = 2048 + 2 * 512 + 2048 + 2 * 8192 + 2048;
  CHECK(ref->spec.decode_weight_bytes() == 16 * layer + std::int64_t{128256} * 2048 + 4 * (16 * rows + 128256) + 2 * (16 * 2 * 2048 + 2048 + 2048));
  CHECK(ref->spec.parameters() == resolve_model("llama-3.2-1b", catalogue())->spec.parameters());
}

TEST_CASE("a checkpoint with an infinity is refused with the tensor and the row") {
  const auto plain = resolve_model("toy-2L", catalogue());
  REQUIRE(plain);
  const auto stored = load_weights(*plain, 1);
  REQUIRE(stored);
  const auto bad =
      quantise_weights(std::make_shared<Edited>(*stored, WeightKind::Down, 1, 2 * plain->spec.intermediate + 3, 0x7f80), "toy-2L@int8", 1);
  REQUIRE_FALSE(bad);
  CHECK(bad.error().kind == ErrorKind::Corrupt);
  CHECK(bad.error().data.at("tensor") == "model.layers.1.mlp.down_proj.weight");
  CHECK(bad.error().data.at("row") == 2);
  // Where nothing is quantised it is nobody's business here.
  CHECK(quantise_weights(std::make_shared<Edited>(*stored, WeightKind::AttnNorm, 1, 0, 0x7f80), "toy-2L@int8", 1));
}

TEST_CASE("a batch is refused as long as there is none") {
  const auto ref = resolve_model("toy@int8,b4", catalogue());
  REQUIRE_FALSE(ref);
  CHECK(ref.error().kind == ErrorKind::Unsupported);
  CHECK(ref.error().data.at("value") == "toy@int8,b4");
}
