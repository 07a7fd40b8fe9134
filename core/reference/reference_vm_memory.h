// The ReferenceVM's memory: one allocation a storage, and regions bound to addresses once they are known to lie inside their buffers.
// Internal to reference_vm*.cpp. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/program/program.h"

namespace amk::vm {

// A Region with its address at launch position 0. Weights have none: they stay where Weights keeps them.
struct BoundRegion {
  std::byte* data = nullptr;
  BufferId buffer = kNone;
  DType dtype = DType::F32;
  std::int64_t first = 0;         // first element within the buffer
  std::int64_t count = 0;         // elements
  std::int64_t stride_bytes = 0;  // added once per position
  std::int32_t pos_lo = 0;
  std::int32_t pos_hi = kAllPositions;

  bool active(int position) const { return position >= pos_lo && position < pos_hi; }
  std::byte* at(int position) const { return data + position * stride_bytes; }
};

class Memory {
 public:
  // Fails when a buffer does not lie inside its storage or the whole is larger than `kMaxBytes`.
  // Without `allocate`, bound regions have no addresses: they can be checked, not touched.
  static Result<Memory> create(const Program& program, bool allocate = true);

  // Fails, naming the buffer and the bytes, when some position in [0, max_seq) would reach outside the buffer.
  Result<BoundRegion> bind(const Program& program, const Region& region);

  // Every byte of activations and outputs (and of the KV cache) becomes 0xFF: NaN in every float format, -1 as an integer.
  void poison_step();
  void poison_kv();
  void poison_kv(const Program& program, int seq);  // of one sequence
  std::byte* address(const Program& program, BufferId buffer);

  static constexpr std::int64_t kMaxBytes = std::int64_t{32} << 30;

 private:
  struct Block {
    Space space;
    std::vector<std::byte> bytes;
  };
  std::vector<Block> blocks_;  // empty for weights
  bool allocated_ = true;
};

// fp32 values of `count` elements at `from`. Points into memory when they are fp32 already, else into `scratch`.
std::span<const float> load_f32(const std::byte* from, DType dtype, std::int64_t count, std::vector<float>& scratch);
// Rounds to `dtype` (nearest even) and stores.
void store_f32(std::byte* to, DType dtype, std::span<const float> values);
void store_f32(std::byte* to, DType dtype, float value);
float round_to(DType dtype, float value);

}  // namespace amk::vm
