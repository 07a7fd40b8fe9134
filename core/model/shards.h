// The safetensors files of a folder. Internal to core/model.
#pragma once

#include <filesystem>
#include <vector>

#include "core/base/error.h"
#include "core/model/safetensors.h"

namespace amk {

struct LocatedTensor {
  const StoredTensor* tensor = nullptr;
  const SafetensorsFile* file = nullptr;
};

// model.safetensors if present (as transformers prefers), else the shards of model.safetensors.index.json. Move-only, immutable.
class Shards {
 public:
  static Result<Shards> open(const std::filesystem::path& directory);

  // Every tensor of the checkpoint by name. With an index: exactly those it lists, each in the shard it names.
  const std::map<std::string, LocatedTensor, std::less<>>& tensors() const { return tensors_; }
  std::string content_key() const;

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, LocatedTensor, std::less<>> tensors_;
};

// A small text file whole; `limit` bytes at most.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit);

}  // namespace amk
