// From the `model` argument of a command to a spec and its weights. Downloads nothing.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/model/weights.h"

namespace amk {

// Where names are resolved. Paths need not exist.
struct ModelSources {
  std::filesystem::path catalogue_dir;  // config/models: one JSON record a shape
  std::filesystem::path hf_cache_dir;   // $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub
  static ModelSources from_environment(const std::filesystem::path& config_dir);
};

struct ModelRef {
  enum class Source { Catalogue, Directory } source = Source::Catalogue;
  ModelSpec spec;
  std::filesystem::path directory;  // of a checkpoint
  std::uint64_t seed = 0;           // of catalogue weights
  int batch = 1;                    // sequences of one decode step
};

// Reads config only, touches no weights: cheap (predictions need nothing more). `name` is a catalogue name (toy, toy-2L, small,
// llama-3.2-1b, …), a folder, or org/name in the HuggingFace cache, and may carry a suffix (model_variant.h); spec.name is canonical in it. Errors
// name the field and the value that rule the model out.
Result<ModelRef> resolve_model(std::string_view name, const ModelSources& sources);

// Maps (checkpoint) or generates (catalogue; in parallel with `threads`, 0 = all cores, same bits for any count) the weights, and quantises them
// where the spec says so.
Result<std::shared_ptr<const Weights>> load_weights(const ModelRef& ref, int threads = 0);

// Names the state of a checkpoint's files (config, index, every safetensors file: device, inode, size, times) without reading them: equal stamps, the
// same unmodified files. "" for the catalogue's, which have none.
std::string stamp_of(const ModelRef& ref);

std::vector<std::string> catalogue_names(const ModelSources& sources);

}  // namespace amk
