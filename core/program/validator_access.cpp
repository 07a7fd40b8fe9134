#include "core/program/validator_access.h"

#include <algorithm>

namespace amk::validation {

KvShape kv_shape(const Buffer& buffer) {
  const std::size_t n = buffer.shape.size();
  KvShape out{1, buffer.shape[n - 2], buffer.shape[n - 1] * dtype_bytes(buffer.dtype)};
  for (std::size_t i = 0; i + 2 < n; ++i) out.heads *= buffer.shape[i];
  return out;
}

bool is_tracked(const Buffer& buffer) { return buffer.space != Space::Weight && buffer.space != Space::Const; }

std::int64_t tracked_bytes(const Buffer& buffer) {
  if (buffer.space != Space::Kv) return buffer.bytes;
  const KvShape shape = kv_shape(buffer);
  return shape.heads * shape.row_bytes;
}

Positions positions_of(const Program& program, const Task& task, const Region& region) {
  return {std::max({task.pos_lo, region.pos_lo, 0}), std::min({task.pos_hi, region.pos_hi, program.max_seq})};
}

AccessList accesses_of(const Program& program, const Task& task, const Region& region) {
  AccessList out;
  const Positions when = positions_of(program, task, region);
  if (when.empty()) return out;
  const auto add = [&](std::int64_t begin, std::int64_t end, std::int64_t lo, std::int64_t hi) {
    lo = std::max<std::int64_t>(lo, when.lo);
    hi = std::min<std::int64_t>(hi, when.hi);
    if (begin < end && lo < hi)
      out.items[static_cast<std::size_t>(out.count++)] = {region.buffer, begin, end, static_cast<std::int32_t>(lo), static_cast<std::int32_t>(hi)};
  };
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(region.buffer)];
  if (buffer.space != Space::Kv) {
    add(region.begin, region.end, when.lo, when.hi);
    return out;
  }
  const KvShape shape = kv_shape(buffer);
  const std::int64_t head_bytes = shape.head_bytes();
  const std::int64_t first_head = region.begin / head_bytes;
  if (region.pos_stride != 0) {  // within the launch position's row of one head: check_tasks
    const std::int64_t column = first_head * shape.row_bytes + region.begin % head_bytes;
    add(column, column + (region.end - region.begin), when.lo, when.hi);
    return out;
  }
  // A partly covered row counts as covered: what is read of it must be written all the same.
  const auto head = [&](std::int64_t h, std::int64_t begin, std::int64_t end) {
    add(h * shape.row_bytes, (h + 1) * shape.row_bytes, begin / shape.row_bytes, (end + shape.row_bytes - 1) / shape.row_bytes);
  };
  const std::int64_t last_head = (region.end - 1) / head_bytes;
  const std::int64_t first_begin = region.begin - first_head * head_bytes;
  const std::int64_t last_end = region.end - last_head * head_bytes;
  if (first_head == last_head) {
    head(first_head, first_begin, last_end);
    return out;
  }
  std::int64_t whole_from = first_head;
  std::int64_t whole_to = last_head + 1;
  if (first_begin != 0) head(whole_from++, first_begin, head_bytes);
  if (last_end != head_bytes) head(--whole_to, 0, last_end);
  add(whole_from * shape.row_bytes, whole_to * shape.row_bytes, 0, shape.positions);
  return out;
}

}  // namespace amk::validation
