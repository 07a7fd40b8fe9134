// One safetensors file, mapped. Format: https://github.com/huggingface/safetensors#format
// (u64 little-endian header length, JSON header, data; tensors cover the data exactly, without overlap or gap.)
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/memory_map.h"
#include "core/model/model_spec.h"

namespace amk {

// The reference implementation accepts 100 MB; the headers of the largest public shards are under 1 MB.
constexpr std::size_t kMaxSafetensorsHeader = 16u << 20;

struct StoredTensor {
  std::string dtype;                // as the file says: "BF16", "F16", "F32", "I64", …
  std::vector<std::int64_t> shape;  // [] is a scalar
  const std::byte* data = nullptr;  // any alignment
  std::int64_t bytes = 0;           // product of shape times element size, checked
};

// Immutable after open; thread-safe.
class SafetensorsFile {
 public:
  // Maps the file and checks its header completely; reads no tensor data. Errors: NotFound, Io, InvalidArgument (not a regular file),
  // Corrupt (names the path, and the tensor where one is to blame).
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const StoredTensor* find(std::string_view name) const;
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const std::filesystem::path& path() const { return path_; }
  // Equal only for the same unmodified file (device, inode, size, times, header).
  const std::string& content_key() const { return content_key_; }

 private:
  std::filesystem::path path_;
  MemoryMap map_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::string content_key_;
};

// F32, F16, BF16; empty for dtypes that weights cannot have.
std::optional<DType> dtype_from_safetensors(std::string_view name);

}  // namespace amk
