// A weights file, alone and as a checkpoint's: whatever opens lies within the file.
#include "core/model/safetensors.h"
#include "core/model/checkpoint.h"
#include "core/model/shards.h"
#include "tests/fuzz/fuzz.h"

using namespace amk;
using fuzz::require;

namespace {

ModelSpec tiny_spec() {
  ModelSpec spec;
  spec.name = "tiny";
  spec.dtype = DType::F32;
  spec.vocab = 4;
  spec.hidden = 4;
  spec.intermediate = 4;
  spec.layers = 1;
  spec.heads = 1;
  spec.kv_heads = 1;
  spec.head_dim = 4;
  spec.max_position = 8;
  return spec;
}

}  // namespace

// The first byte: odd, the rest is an index of shards beside a good file; even, it is the weights.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path folder = [] {
    const auto made = fuzz::scratch() / "checkpoint";
    std::filesystem::create_directories(made);
    return made;
  }();
  if (size == 0) return 0;
  const auto rest = fuzz::text_of(data + 1, size - 1);
  const auto weights = folder / "model.safetensors", index = folder / "model.safetensors.index.json", shard = folder / "shard.safetensors";
  if ((data[0] & 1) != 0) {
    std::error_code code;
    std::filesystem::remove(weights, code);
    fuzz::write_file(index, rest);
    std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    fuzz::write_file(shard, bytes + header + "1234");
  } else {
    fuzz::write_file(weights, rest);
    const auto file = SafetensorsFile::open(weights);
    if (file) {
      std::int64_t total = 0;
      unsigned sum = 0;
      for (const auto& [name, tensor] : file->tensors()) {
        require(tensor.bytes >= 0, "a tensor has a size");
        total += tensor.bytes;
        for (std::int64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);  // ASan watches
      }
      require(total <= static_cast<std::int64_t>(rest.size()) && sum < ~0u, "tensors fit their file");
    } else {
      require(!file.error().message.empty(), "a refusal says why");
    }
  }
  (void)open_checkpoint(folder, tiny_spec());
  return 0;
}
