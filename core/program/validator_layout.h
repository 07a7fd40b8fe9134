// The bytes of every tracked buffer cut into cells at the borders of its writes, so that a write is a run of whole cells. Internal to core/program.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/validator_access.h"

namespace amk::validation {

struct CellRange {
  std::int32_t first = 0;  // into Layout::borders: cell i is [borders[i], borders[i + 1])
  std::int32_t count = 0;
};

struct Layout {
  explicit Layout(const Program& program);  // O(n log n) in the written regions of a buffer

  std::vector<std::int64_t> borders;  // per buffer count + 1 of them, ascending; none when nobody writes it
  std::vector<CellRange> cells;       // [buffer]
  std::vector<std::int32_t> writes;   // [buffer]: written accesses in a step

  // Cells of `buffer` that meet [begin, end): indices into borders, [first, last).
  struct Span {
    std::int32_t first = 0;
    std::int32_t last = 0;
  };
  Span span(BufferId buffer, std::int64_t begin, std::int64_t end) const;
};

}  // namespace amk::validation
