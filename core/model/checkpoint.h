// A HuggingFace checkpoint folder: config.json beside model.safetensors, or beside shards listed in model.safetensors.index.json.
#pragma once

#include <filesystem>
#include <memory>

#include "core/base/error.h"
#include "core/model/weights.h"

namespace amk {

// Reads config.json; opens a safetensors header only if the config names no dtype. NotFound if there is no config.json.
Result<ModelSpec> read_checkpoint_spec(const std::filesystem::path& directory, std::string_view name);

// Maps every shard and checks that exactly the spec's tensors are there, with its shapes and dtype. Copies nothing.
// Errors: NotFound (no weights), Corrupt (damaged file, missing tensor), Unsupported (tensors this program would ignore; wrong dtype).
Result<std::shared_ptr<const Weights>> open_checkpoint(const std::filesystem::path& directory, const ModelSpec& spec);

}  // namespace amk
