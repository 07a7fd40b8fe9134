#include "core/reference/reference_vm_memory.h"

#include <algorithm>
#include <cstring>

namespace amk::vm {
namespace {

constexpr unsigned char kPoison = 0xFF;

tl::unexpected<Error> outside(const std::string& what, std::int64_t begin, std::int64_t end, std::int64_t bytes) {
  return fail(ErrorKind::InvalidArgument,
              what + " covers bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ") of " + std::to_string(bytes),
              {{"field", what}, {"bytes", {begin, end}}, {"accepted", "within [0, " + std::to_string(bytes) + ")"}});
}

}  // namespace

Result<Memory> Memory::create(const Program& program, bool allocate) {
  Memory memory;
  memory.allocated_ = allocate;
  std::int64_t total = 0;
  for (const Storage& storage : program.storages) {
    const bool held = allocate && storage.space != Space::Weight;
    if (storage.bytes < 0 || (held && storage.bytes > kMaxBytes - total))
      return fail(ErrorKind::Unavailable, "the program's storages take more than " + std::to_string(kMaxBytes) + " bytes of memory",
                  {{"field", storage.name}, {"value", storage.bytes}});
    if (held) total += storage.bytes;
    memory.blocks_.push_back({storage.space, std::vector<std::byte>(held ? static_cast<std::size_t>(storage.bytes) : 0)});
  }
  for (const Buffer& buffer : program.buffers) {
    if (buffer.storage < 0 || buffer.storage >= static_cast<StorageId>(program.storages.size()))
      return fail(ErrorKind::InvalidArgument, "buffer " + buffer.name + " names no storage", {{"field", buffer.name}, {"value", buffer.storage}});
    const std::int64_t bytes = program.storages[buffer.storage].bytes;
    if (buffer.offset < 0 || buffer.bytes < 0 || buffer.offset > bytes || buffer.bytes > bytes - buffer.offset)
      return outside("buffer " + buffer.name, buffer.offset, buffer.offset + buffer.bytes, bytes);
    if (buffer.offset % dtype_bytes(buffer.dtype) != 0)
      return fail(ErrorKind::InvalidArgument, "buffer " + buffer.name + " is misaligned at byte " + std::to_string(buffer.offset),
                  {{"field", buffer.name}, {"value", buffer.offset}});
  }
  return memory;
}

Result<BoundRegion> Memory::bind(const Program& program, const Region& region) {
  if (region.buffer < 0 || region.buffer >= static_cast<BufferId>(program.buffers.size()))
    return fail(ErrorKind::InvalidArgument, "a region names no buffer", {{"field", "buffer"}, {"value", region.buffer}});
  const Buffer& buffer = program.buffers[region.buffer];
  const std::int64_t size = dtype_bytes(buffer.dtype);
  // Positions at which nothing is touched need not fit.
  const std::int64_t last = std::min<std::int64_t>(program.max_seq, region.pos_hi) - 1;
  const std::int64_t furthest = last > 0 ? last : 0;
  if (region.begin < 0 || region.end < region.begin || region.pos_stride < 0 || region.end > buffer.bytes ||
      (furthest > 0 && region.pos_stride > (buffer.bytes - region.end) / furthest))
    return outside("region of " + buffer.name, region.begin, region.end + region.pos_stride * furthest, buffer.bytes);
  if (region.begin % size != 0 || region.end % size != 0 || region.pos_stride % size != 0)
    return fail(ErrorKind::InvalidArgument, "region of " + buffer.name + " splits an element", {{"field", buffer.name}, {"value", region.begin}});
  BoundRegion bound;
  if (allocated_ && buffer.space != Space::Weight) bound.data = address(program, region.buffer) + region.begin;
  bound.buffer = region.buffer;
  bound.dtype = buffer.dtype;
  bound.first = region.begin / size;
  bound.count = (region.end - region.begin) / size;
  bound.stride_bytes = region.pos_stride;
  bound.pos_lo = region.pos_lo;
  bound.pos_hi = region.pos_hi;
  return bound;
}

void Memory::poison_step() {
  for (Block& block : blocks_)
    if ((block.space == Space::Activation || block.space == Space::Output) && !block.bytes.empty())
      std::memset(block.bytes.data(), kPoison, block.bytes.size());
}

void Memory::poison_kv() {
  for (Block& block : blocks_)
    if (block.space == Space::Kv && !block.bytes.empty()) std::memset(block.bytes.data(), kPoison, block.bytes.size());
}

void Memory::poison_kv(const Program& program, int seq) {
  for (BufferId id = 0; id < static_cast<BufferId>(program.buffers.size()); ++id) {
    if (program.buffers[id].space != Space::Kv) continue;
    const std::int64_t slice = program.buffers[id].bytes / program.batch;
    std::memset(address(program, id) + seq * slice, kPoison, static_cast<std::size_t>(slice));
  }
}

std::byte* Memory::address(const Program& program, BufferId id) {
  const Buffer& buffer = program.buffers[id];
  return blocks_[buffer.storage].bytes.data() + buffer.offset;
}

std::span<const float> load_f32(const std::byte* from, DType dtype, std::int64_t count, std::vector<float>& scratch) {
  if (dtype == DType::F32) return {reinterpret_cast<const float*>(from), static_cast<std::size_t>(count)};
  scratch.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    scratch[i] = dtype == DType::BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
  return scratch;
}

void store_f32(std::byte* to, DType dtype, float value) {
  if (dtype == DType::F32) {
    std::memcpy(to, &value, 4);
  } else {
    const std::uint16_t bits = dtype == DType::BF16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(to, &bits, 2);
  }
}

void store_f32(std::byte* to, DType dtype, std::span<const float> values) {
  if (dtype == DType::F32) {
    std::memcpy(to, values.data(), values.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) store_f32(to + i * dtype_bytes(dtype), dtype, values[i]);
}

float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::BF16:
      return bf16_to_f32(f32_to_bf16(value));
    case DType::F16:
      return f16_to_f32(f32_to_f16(value));
    default:
      return value;
  }
}

}  // namespace amk::vm
