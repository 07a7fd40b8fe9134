#include "core/model/quantise.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/memory_map.h"
#include "core/base/parallel.h"
#include "core/model/tensor_table.h"

namespace amk {
namespace {

constexpr int kQuantiserVersion = 1;                 // in content ids: change it with any change of the bits
constexpr std::int64_t kQuantisedAlignment = 256;    // of every tensor
constexpr std::int64_t kElementsPerRange = 1 << 20;  // about a millisecond of work
constexpr float kLargest = 127.0f;
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integers, ties to even

bool quantised(WeightKind kind) {
  switch (kind) {
    case WeightKind::Q:
    case WeightKind::K:
    case WeightKind::V:
    case WeightKind::O:
    case WeightKind::Gate:
    case WeightKind::Up:
    case WeightKind::Down:
    case WeightKind::LmHead:
      return true;
    default:
      return false;
  }
}

struct QuantisedTensor {
  WeightKind kind = WeightKind::Q;
  int layer = 0;
  TensorView from;
  std::int64_t data = 0, scales = 0;  // bytes from the memory's start
};

class QuantisedWeights final : public Weights {
 public:
  QuantisedWeights(std::shared_ptr<const Weights> stored, ModelSpec spec, MemoryMap memory, const std::vector<QuantisedTensor>& placed)
      : stored_(std::move(stored)),
        spec_(std::move(spec)),
        memory_(std::move(memory)),
        views_(static_cast<std::size_t>(spec_.layers) * kWeightKinds) {
    for (const QuantisedTensor& p : placed)
      views_[slot(p.kind, p.layer)] = {memory_.data() + p.data, DType::I8, p.from.rows, p.from.cols,
                                       reinterpret_cast<const float*>(memory_.data() + p.scales)};
  }

  const ModelSpec& spec() const override { return spec_; }
  std::string content_id() const override { return "int8:" + std::to_string(kQuantiserVersion) + ":" + stored_->content_id(); }
  TensorView get(WeightKind kind, int layer) const override {
    if (!quantised(kind)) return stored_->get(kind, layer);
    if (per_layer(kind) && (layer < 0 || layer >= spec_.layers)) return {};
    return views_[slot(kind, layer)];
  }

 private:
  static std::size_t slot(WeightKind kind, int layer) {
    return static_cast<std::size_t>(per_layer(kind) ? layer : 0) * kWeightKinds + static_cast<std::size_t>(kind);
  }

  std::shared_ptr<const Weights> stored_;
  ModelSpec spec_;
  MemoryMap memory_;
  std::vector<TensorView> views_;
};

std::int64_t quantised_aligned(std::int64_t bytes) { return (bytes + kQuantisedAlignment - 1) / kQuantisedAlignment * kQuantisedAlignment; }

}  // namespace

float quantise_row(std::span<const float> row, std::span<std::int8_t> out) {
  // Sixteen maxima side by side: a form that compilers vectorise. NaN and infinity are found by the sum of 0 * w.
  float most[16] = {}, poison[16] = {};
  const std::size_t whole = row.size() / 16 * 16;
  for (std::size_t i = 0; i < whole; i += 16)
    for (std::size_t l = 0; l < 16; ++l) {
      const float a = std::fabs(row[i + l]);
      most[l] = a > most[l] ? a : most[l];
      poison[l] += a * 0.0f;
    }
  for (std::size_t i = whole; i < row.size(); ++i) {
    const float a = std::fabs(row[i]);
    most[i % 16] = a > most[i % 16] ? a : most[i % 16];
    poison[i % 16] += a * 0.0f;
  }
  float top = 0.0f, bad = 0.0f;
  for (std::size_t l = 0; l < 16; ++l) {
    top = std::max(top, most[l]);
    bad += poison[l];
  }
  if (bad != 0.0f || std::isnan(bad)) {
    std::fill(out.begin(), out.end(), std::int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = top / kLargest;
  if (scale == 0.0f) {  // zeros, or all below what fp32 can divide
    std::fill(out.begin(), out.end(), std::int8_t{0});
    return 0.0f;
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    float q = row[i] / scale;
    q = q > kLargest ? kLargest : q < -kLargest ? -kLargest : q;  // a subnormal scale is coarse
    out[i] = static_cast<std::int8_t>(static_cast<int>((q + kRounder) - kRounder));
  }
  return scale;
}

Result<std::shared_ptr<const Weights>> quantise_weights(std::shared_ptr<const Weights> stored, const std::string& name, int threads) {
  ModelSpec spec = stored->spec();
  spec.name = name;
  spec.weight_format = WeightFormat::Int8;
  std::vector<QuantisedTensor> placed;
  std::int64_t bytes = 0;
  const auto add = [&](WeightKind kind, int layer) {
    const TensorView from = stored->get(kind, layer);
    if (!quantised(kind) || !from) return;
    placed.push_back({kind, layer, from, bytes, bytes + quantised_aligned(from.elements())});
    bytes = placed.back().scales + quantised_aligned(from.rows * static_cast<std::int64_t>(sizeof(float)));
  };
  for (int layer = 0; layer < spec.layers; ++layer)
    for (int k = 0; k < kWeightKinds; ++k)
      if (per_layer(static_cast<WeightKind>(k))) add(static_cast<WeightKind>(k), layer);
  add(WeightKind::LmHead, 0);
  AMK_TRY(memory, MemoryMap::anonymous(static_cast<std::size_t>(bytes)));

  ThreadPool pool(threads);
  for (const QuantisedTensor& p : placed) {
    auto* const data = reinterpret_cast<std::int8_t*>(memory.data() + p.data);
    auto* const scales = reinterpret_cast<float*>(memory.data() + p.scales);
    std::atomic<std::int64_t> bad{-1};
    pool.for_ranges(p.from.rows, std::max<std::int64_t>(1, kElementsPerRange / p.from.cols), [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> row(static_cast<std::size_t>(p.from.cols));
      for (std::int64_t r = begin; r < end; ++r) {
        row_to_f32(p.from, r, row);
        scales[r] = quantise_row(row, {data + r * p.from.cols, row.size()});
        if (std::isnan(scales[r])) bad = r;
      }
    });
    if (bad >= 0)
      return fail(
          ErrorKind::Corrupt,
          checkpoint_name(p.kind, p.layer) + " has a value in row " + std::to_string(bad.load()) + " that is not finite: it cannot be quantised",
          {{"tensor", checkpoint_name(p.kind, p.layer)}, {"row", bad.load()}, {"accepted", "finite values"}});
  }
  return std::make_shared<const QuantisedWeights>(std::move(stored), std::move(spec), std::move(memory), placed);
}

}  // namespace amk
