// Single vectors and cache rows between host and device: what an isolated instruction is given, and what it leaves.
#include <cstring>

#include "core/schedule/rules.h"
#include "kernels/megakernel/device_program.h"

namespace amk {

Result<cuda::DevicePtr> DeviceProgram::activation_at(BufferId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= program_->buffers.size())
    return bad_field("buffer", id, "0 to " + std::to_string(program_->buffers.size() - 1));
  const Buffer& buffer = program_->buffers[static_cast<std::size_t>(id)];
  const StoragePlace& place = plan_.storages[static_cast<std::size_t>(buffer.storage)];
  if (place.bytes == 0 || buffer.offset + buffer.bytes > place.bytes)
    return bad_field("buffer", buffer.name, "a vector among activations and given inputs, stored as it is");
  return activations_.pointer() + static_cast<std::uint64_t>(place.offset + buffer.offset);
}

Status DeviceProgram::write_activation(BufferId id, std::span<const std::byte> bytes, const cuda::Stream& stream) const {
  AMK_TRY(at, activation_at(id));
  const std::int64_t size = program_->buffers[static_cast<std::size_t>(id)].bytes;
  if (static_cast<std::int64_t>(bytes.size()) != size) return bad_field("bytes", bytes.size(), std::to_string(size));
  AMK_CHECK(cuda::copy_to_device(at, bytes.data(), bytes.size(), stream));
  return stream.synchronize();  // the source is the caller's
}

Result<std::vector<std::byte>> DeviceProgram::read_activation(BufferId id, const cuda::Stream& stream) const {
  AMK_TRY(at, activation_at(id));
  std::vector<std::byte> out(static_cast<std::size_t>(program_->buffers[static_cast<std::size_t>(id)].bytes));
  AMK_CHECK(cuda::copy_to_host(out.data(), at, out.size(), stream));
  AMK_CHECK(stream.synchronize());
  return out;
}

Result<cuda::DevicePtr> DeviceSequence::cache_at(int layer, bool values, std::int64_t first, std::int64_t count) const {
  const std::int64_t one = std::int64_t{spec_.kv_rows()} * max_seq_;  // elements of a layer's K or V: device/block.cuh
  if (layer < 0 || layer >= spec_.layers) return bad_field("layer", layer, "0 to " + std::to_string(spec_.layers - 1));
  if (first < 0 || count < 0 || first > one || count > one - first) return bad_field("first", first, "elements of a cache of " + std::to_string(one));
  const std::int64_t element = cache_element_bytes();
  return kv() + static_cast<std::uint64_t>(((std::int64_t{layer} * 2 + (values ? 1 : 0)) * one + first) * element);
}

// Rows between their own order and the cache's: one is the other's inverse.
Status DeviceSequence::reorder_rows(std::int64_t first, std::span<const std::byte> from, std::span<std::byte> to) const {
  const std::int64_t element = cache_element_bytes(), row = spec_.head_dim * element, piece = 16;
  const std::int64_t begin = first * element, size = static_cast<std::int64_t>(from.size());
  if (begin % row != 0 || size % row != 0)
    return bad_field("first", first, "whole rows of the cache, " + std::to_string(spec_.head_dim) + " elements each");
  for (std::int64_t at = 0; at < size; at += piece) {
    const auto position = static_cast<std::uint32_t>((begin + at) / row % max_seq_);
    const std::int64_t swizzle = amk_vm::cache_swizzle(static_cast<std::uint32_t>(spec_.head_dim), position);
    const std::int64_t in_row = (begin + at) % row / piece;
    std::memcpy(to.data() + at - in_row * piece + (in_row ^ swizzle) * piece, from.data() + at, piece);
  }
  return {};
}

std::int64_t DeviceSequence::cache_element_bytes() const { return kv_bytes_ / (std::int64_t{2} * spec_.layers * spec_.kv_rows() * max_seq_); }

Status DeviceSequence::write_cache(int layer, bool values, std::int64_t first, std::span<const std::byte> bytes, const cuda::Stream& stream) const {
  AMK_TRY(at, cache_at(layer, values, first, static_cast<std::int64_t>(bytes.size()) / cache_element_bytes()));
  std::vector<std::byte> rows;
  if (matrix_attention(spec_)) {
    rows.resize(bytes.size());
    AMK_CHECK(reorder_rows(first, bytes, rows));
    bytes = rows;
  }
  AMK_CHECK(cuda::copy_to_device(at, bytes.data(), bytes.size(), stream));
  return stream.synchronize();
}

Result<std::vector<std::byte>> DeviceSequence::read_cache(int layer, bool values, std::int64_t first, std::int64_t count,
                                                          const cuda::Stream& stream) const {
  AMK_TRY(at, cache_at(layer, values, first, count));
  std::vector<std::byte> out(static_cast<std::size_t>(count * cache_element_bytes()));
  AMK_CHECK(cuda::copy_to_host(out.data(), at, out.size(), stream));
  AMK_CHECK(stream.synchronize());
  if (!matrix_attention(spec_)) return out;
  std::vector<std::byte> rows(out.size());
  AMK_CHECK(reorder_rows(first, out, rows));
  return rows;
}

}  // namespace amk
