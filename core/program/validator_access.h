// Regions as the byte tracker sees them. Internal to core/program. Pure.
//
// Most buffers are tracked byte by byte. A KV cache [heads, positions, row] is tracked as it looks at the launch position: one row of each head,
// `heads · row_bytes` bytes ("columns"). Rows of other positions belong to other steps: an append may not touch them (check_structure), and what a
// read needs of them is that every step appends every row, which the tracker checks as coverage of the whole buffer at every position.
#pragma once

#include <array>
#include <cstdint>

#include "core/program/program.h"

namespace amk::validation {

struct KvShape {
  std::int64_t heads = 0;
  std::int64_t positions = 0;
  std::int64_t row_bytes = 0;
  std::int64_t head_bytes() const { return positions * row_bytes; }
};
// Needs a checked shape of at least two dimensions.
KvShape kv_shape(const Buffer& buffer);

// Bytes [begin, end) of a buffer in tracker coordinates, touched when lo <= position < hi. Never empty.
struct Access {
  BufferId buffer = kNone;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int32_t lo = 0;
  std::int32_t hi = 0;
};

// A region splits into at most three: a first and a last head of which it holds only some rows, and the whole heads between.
struct AccessList {
  std::array<Access, 3> items;
  int count = 0;
  const Access* begin() const { return items.data(); }
  const Access* end() const { return items.data() + count; }
};

// Could two tasks disagree about these bytes? Weights and constants are never written (check_tasks), so nothing about them needs tracking.
bool is_tracked(const Buffer& buffer);
std::int64_t tracked_bytes(const Buffer& buffer);
AccessList accesses_of(const Program& program, const Task& task, const Region& region);

// The positions at which the region is touched at all, within [0, max_seq); empty when lo >= hi.
struct Positions {
  std::int32_t lo = 0;
  std::int32_t hi = 0;
  bool empty() const { return lo >= hi; }
};
Positions positions_of(const Program& program, const Task& task, const Region& region);

}  // namespace amk::validation
