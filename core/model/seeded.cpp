#include "core/model/seeded.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/hash.h"
#include "core/base/memory_map.h"
#include "core/base/parallel.h"
#include "core/base/parse_json.h"
#include "core/base/random.h"
#include "core/model/tensor_table.h"

namespace amk {
namespace {

constexpr std::int64_t kAlignment = 256;                // of every tensor: bulk copies and vector loads need 16, caches like more
constexpr std::int64_t kChunk = std::int64_t{1} << 18;  // elements a task generates; a multiple of 4, the elements of one word
constexpr int kGeneratorVersion = 1;                    // in content ids: change it with any change of the bits

struct Placed {
  TensorShape shape;
  std::int64_t offset = 0;  // bytes
};

// Bits -> value: the signed 16-bit piece u stands for (u + 1/2) / 2^15, uniform in (-1, 1) with standard deviation 1/sqrt(3) and mean 0.
// One exact conversion, one exactly defined product and sum: no library function, no contraction (-ffp-contract=off).
struct Affine {
  float scale;  // of u + 1/2
  float mean;
  float operator()(std::int16_t piece) const { return (static_cast<float>(piece) + 0.5f) * scale + mean; }
};

std::uint16_t finite_to_bf16(float v) {  // f32_to_bf16 without its NaN branch: vectorises
  const auto u = std::bit_cast<std::uint32_t>(v);
  return static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

template <class Out, class Convert>
void fill_as(std::byte* out, std::uint64_t key, std::int64_t begin, std::int64_t end, Affine value, Convert convert) {
  static_assert(std::endian::native == std::endian::little, "pieces are taken from words lowest first");
  constexpr std::int64_t kBlock = 1024;  // elements; in separate loops the compiler vectorises the conversion
  std::uint64_t words[kBlock / 4];
  std::int16_t pieces[kBlock];
  Out values[kBlock];
  for (std::int64_t at = begin; at < end; at += kBlock) {  // begin is a multiple of 4
    for (std::int64_t w = 0; w < kBlock / 4; ++w) words[w] = mix64(key + static_cast<std::uint64_t>(at / 4 + w));
    std::memcpy(pieces, words, sizeof words);
    for (std::int64_t i = 0; i < kBlock; ++i) values[i] = convert(value(pieces[i]));
    std::memcpy(out + at * static_cast<std::int64_t>(sizeof(Out)), values, static_cast<std::size_t>(std::min(kBlock, end - at)) * sizeof(Out));
  }
}

void fill(std::byte* out, DType dtype, std::uint64_t key, std::int64_t begin, std::int64_t end, Affine value) {
  switch (dtype) {
    case DType::F32:
      fill_as<float>(out, key, begin, end, value, [](float v) { return v; });
      break;
    case DType::F16:
      fill_as<std::uint16_t>(out, key, begin, end, value, f32_to_f16);
      break;
    case DType::BF16:
      fill_as<std::uint16_t>(out, key, begin, end, value, finite_to_bf16);
      break;
    case DType::I8:
    case DType::I32:
      break;
  }
}

class SeededWeights final : public Weights {
 public:
  SeededWeights(ModelSpec spec, MemoryMap memory, const std::vector<Placed>& placed, std::string id)
      : spec_(std::move(spec)), memory_(std::move(memory)), views_(static_cast<std::size_t>(spec_.layers) * kWeightKinds), id_(std::move(id)) {
    for (const Placed& p : placed) views_[slot(p.shape.kind, p.shape.layer)] = {memory_.data() + p.offset, spec_.dtype, p.shape.rows, p.shape.cols};
  }

  const ModelSpec& spec() const override { return spec_; }
  std::string content_id() const override { return id_; }
  TensorView get(WeightKind kind, int layer) const override {
    if (kind == WeightKind::LmHead && spec_.tied_embeddings) kind = WeightKind::Embedding;
    if (per_layer(kind) && (layer < 0 || layer >= spec_.layers)) return {};
    return views_[slot(kind, layer)];
  }

 private:
  static std::size_t slot(WeightKind kind, int layer) {
    return static_cast<std::size_t>(per_layer(kind) ? layer : 0) * kWeightKinds + static_cast<std::size_t>(kind);
  }

  ModelSpec spec_;
  MemoryMap memory_;
  std::vector<TensorView> views_;
  std::string id_;
};

std::string content_id(const ModelSpec& spec, std::uint64_t seed) {
  Json j = to_json(spec);
  j.erase("name");  // equal shapes and seeds have equal bits, whatever they are called
  return "seeded:" + std::to_string(kGeneratorVersion) + ":" + std::to_string(seed) + ":" + hash128_hex(canonical_dump(j));
}

}  // namespace

SeededScale seeded_scale(const ModelSpec& spec, WeightKind kind) {
  // Products of normalised activations with rows of deviation g / sqrt(fan_in) have deviation g.
  const auto gain = [](double g, int fan_in) { return SeededScale{0.0f, static_cast<float>(g / std::sqrt(static_cast<double>(fan_in)))}; };
  // The 2·layers residual additions share a variance that outweighs the embedding's, which keeps a tied model from predicting its own
  // input for ever; and none of them is small enough to be skipped unnoticed.
  const double residual = 3.0 * std::sqrt(2.0 / spec.layers);
  switch (kind) {
    case WeightKind::Embedding:
    case WeightKind::LmHead:
      return gain(2.5, spec.hidden);
    case WeightKind::Q:
    case WeightKind::K:
      return gain(1.5, spec.hidden);  // scores of deviation ~2: attention is neither uniform nor one-hot
    case WeightKind::V:
    case WeightKind::Gate:
    case WeightKind::Up:
      return gain(1.0, spec.hidden);
    case WeightKind::O:
      return gain(residual, spec.q_rows());
    case WeightKind::Down:
      return gain(residual, spec.intermediate);
    case WeightKind::AttnNorm:
    case WeightKind::MlpNorm:
    case WeightKind::FinalNorm:
      return {1.0f, 0.1f};
    case WeightKind::QNorm:
    case WeightKind::KNorm:
      return {1.5f, 0.15f};
    case WeightKind::QBias:
    case WeightKind::KBias:
    case WeightKind::VBias:
    case WeightKind::GateBias:
    case WeightKind::UpBias:
      return {0.0f, 0.1f};
    case WeightKind::OBias:
    case WeightKind::DownBias:
      return {0.0f, 0.02f};
  }
  return {};
}

Result<std::shared_ptr<const Weights>> generate_weights(const ModelSpec& spec, std::uint64_t seed, int threads) {
  std::vector<Placed> placed;
  std::vector<std::int64_t> first_chunk;  // prefix sums: chunk index -> tensor
  std::int64_t bytes = 0;
  std::int64_t chunks = 0;
  for (const TensorShape& shape : tensor_table(spec)) {
    placed.push_back({shape, bytes});
    first_chunk.push_back(chunks);
    const std::int64_t elements = shape.rows * shape.cols;
    bytes += (elements * dtype_bytes(spec.dtype) + kAlignment - 1) / kAlignment * kAlignment;
    chunks += (elements + kChunk - 1) / kChunk;
  }
  const std::uint64_t available = available_memory_bytes();
  if (available != 0 && static_cast<std::uint64_t>(bytes) > available)
    return fail(ErrorKind::Unavailable,
                "the weights of " + spec.name + " take " + std::to_string(bytes) + " bytes of memory; available: " + std::to_string(available),
                {{"bytes", bytes}, {"available", available}});
  AMK_TRY(memory, MemoryMap::anonymous(static_cast<std::size_t>(bytes)));

  ThreadPool pool(threads);
  std::byte* base = memory.data();
  pool.for_ranges(chunks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      const auto t = static_cast<std::size_t>(std::upper_bound(first_chunk.begin(), first_chunk.end(), chunk) - first_chunk.begin() - 1);
      const TensorShape& shape = placed[t].shape;
      const std::int64_t begin = (chunk - first_chunk[t]) * kChunk;
      const std::int64_t end = std::min(begin + kChunk, shape.rows * shape.cols);
      // Keys of two tensors differ by far more than any element count: their counters do not meet in practice.
      const std::uint64_t key = mix64(mix64(seed) ^ (static_cast<std::uint64_t>(shape.kind) << 32 | static_cast<std::uint32_t>(shape.layer)));
      const SeededScale scale = seeded_scale(spec, shape.kind);
      constexpr float kSqrt3 = 1.7320508f;
      fill(base + placed[t].offset, spec.dtype, key, begin, end, {scale.deviation * kSqrt3 * 0x1p-15f, scale.mean});
    }
  });
  return std::shared_ptr<const Weights>(std::make_shared<SeededWeights>(spec, std::move(memory), placed, content_id(spec, seed)));
}

}  // namespace amk
