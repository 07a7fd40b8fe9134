#include "core/model/checkpoint.h"

#include <array>
#include <cstring>
#include <map>

#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "core/model/import.h"
#include "core/model/provenance.h"
#include "core/model/shards.h"
#include "core/model/tensor_table.h"

namespace amk {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 1u << 20;

class CheckpointWeights final : public Weights {
 public:
  CheckpointWeights(ModelSpec spec, Shards shards) : spec_(std::move(spec)), shards_(std::move(shards)), views_(spec_.layers) {
    content_id_ = "checkpoint:" + hash128_hex(shards_.content_key() + canonical_dump(arithmetic(spec_)));
  }

  const ModelSpec& spec() const override { return spec_; }
  std::string content_id() const override { return content_id_; }
  TensorView get(WeightKind kind, int layer) const override {
    if (kind == WeightKind::LmHead && spec_.tied_embeddings) kind = WeightKind::Embedding;
    if (!per_layer(kind)) return single_[static_cast<int>(kind)];
    return layer >= 0 && layer < spec_.layers ? views_[layer][static_cast<int>(kind)] : TensorView{};
  }

  Status bind() {
    std::size_t used = 0;
    for (const TensorShape& want : tensor_table(spec_)) {
      AMK_CHECK(bind_one(want));
      ++used;
    }
    return used == shards_.tensors().size() ? Status{} : check_extra();
  }

 private:
  using Slots = std::array<TensorView, kWeightKinds>;

  // The name a user chose does not change the bits.
  static Json arithmetic(const ModelSpec& spec) {
    Json j = to_json(spec);
    j.erase("name");
    return j;
  }

  static std::string shape_text(const std::vector<std::int64_t>& shape) { return Json(shape).dump(); }

  Status bind_one(const TensorShape& want) {
    const std::string name = checkpoint_name(want.kind, want.layer);
    const auto it = shards_.tensors().find(name);
    if (it == shards_.tensors().end())
      return fail(ErrorKind::Corrupt, "tensor \"" + name + "\" is missing from the checkpoint" + hint(want.kind), {{"tensor", name}});
    const StoredTensor& stored = *it->second.tensor;
    const std::string where = it->second.file->path().string() + ": tensor \"" + name + "\"";
    const auto dtype = dtype_from_safetensors(stored.dtype);
    if (!dtype || *dtype != spec_.dtype)
      return fail(ErrorKind::Unsupported,
                  where + " is " + stored.dtype + "; accepted: " + std::string(to_string(spec_.dtype)) + ", the config's dtype",
                  {{"tensor", name}, {"field", "dtype"}, {"value", stored.dtype}, {"accepted", to_string(spec_.dtype)}});
    const std::vector<std::int64_t> shape = want.vector ? std::vector<std::int64_t>{want.cols} : std::vector<std::int64_t>{want.rows, want.cols};
    if (stored.shape != shape)
      return fail(ErrorKind::Corrupt, where + " has shape " + shape_text(stored.shape) + "; the config needs " + shape_text(shape),
                  {{"tensor", name}, {"field", "shape"}, {"value", stored.shape}, {"accepted", shape}});
    const TensorView view{stored.data, *dtype, want.rows, want.cols};
    (per_layer(want.kind) ? views_[want.layer] : single_)[static_cast<int>(want.kind)] = view;
    return {};
  }

  static const char* hint(WeightKind kind) { return kind == WeightKind::LmHead ? " (tie_word_embeddings is false)" : ""; }

  // transformers would drop these with a warning; a tensor nobody reads means a model this program does not compute.
  Status check_extra() const {
    std::map<std::string, bool, std::less<>> expected;
    for (const TensorShape& t : tensor_table(spec_)) expected[checkpoint_name(t.kind, t.layer)] = true;
    for (const auto& [name, located] : shards_.tensors()) {
      if (expected.count(name) != 0) continue;
      if (name.ends_with(".rotary_emb.inv_freq")) continue;  // old llama checkpoints: a derived constant
      if (spec_.tied_embeddings && name == checkpoint_name(WeightKind::LmHead, 0)) {
        const StoredTensor& head = *located.tensor;
        const TensorView table = single_[static_cast<int>(WeightKind::Embedding)];
        if (head.bytes == table.bytes() && std::memcmp(head.data, table.data, static_cast<std::size_t>(head.bytes)) == 0) continue;
        return fail(ErrorKind::Unsupported, "lm_head.weight differs from model.embed_tokens.weight, although tie_word_embeddings is true",
                    {{"field", "tie_word_embeddings"}, {"value", true}, {"tensor", name}});
      }
      return fail(ErrorKind::Unsupported,
                  located.file->path().string() + ": tensor \"" + name.substr(0, 200) + "\" has no place in this " +
                      std::string(to_string(spec_.architecture)) + " config",
                  {{"tensor", name}});
    }
    return {};
  }

  ModelSpec spec_;
  Shards shards_;
  std::vector<Slots> views_;
  Slots single_{};
  std::string content_id_;
};

std::optional<DType> stored_dtype(const fs::path& directory) {
  const auto shards = Shards::open(directory);
  if (!shards) return std::nullopt;
  const auto it = shards->tensors().find(checkpoint_name(WeightKind::Embedding, 0));
  return it == shards->tensors().end() ? std::nullopt : dtype_from_safetensors(it->second.tensor->dtype);
}

}  // namespace

Result<ModelSpec> read_checkpoint_spec(const fs::path& directory, std::string_view name) {
  const fs::path path = directory / "config.json";
  AMK_TRY(text, read_text_file(path, kMaxConfigBytes));
  AMK_TRY(config, parse_json(text, path.string(), {.max_bytes = kMaxConfigBytes}));
  const bool names_dtype = config.is_object() && ((config.contains("dtype") && !config["dtype"].is_null()) ||
                                                  (config.contains("torch_dtype") && !config["torch_dtype"].is_null()));
  AMK_TRY(spec, import_config(config, name, names_dtype ? std::nullopt : stored_dtype(directory)));
  AMK_CHECK(apply_provenance(directory, spec));
  return spec;
}

Result<std::shared_ptr<const Weights>> open_checkpoint(const fs::path& directory, const ModelSpec& spec) {
  AMK_TRY(shards, Shards::open(directory));
  auto weights = std::make_shared<CheckpointWeights>(spec, std::move(shards));
  AMK_CHECK(weights->bind());
  return std::shared_ptr<const Weights>(std::move(weights));
}

}  // namespace amk
