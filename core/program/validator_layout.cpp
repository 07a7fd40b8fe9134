#include "core/program/validator_layout.h"

#include <algorithm>

namespace amk::validation {

Layout::Layout(const Program& program) : cells(program.buffers.size()), writes(program.buffers.size(), 0) {
  for (const Task& task : program.tasks)
    for (const Region& region : task.writes) writes[static_cast<std::size_t>(region.buffer)] += accesses_of(program, task, region).count;
  std::vector<std::size_t> next(program.buffers.size() + 1, 0);
  for (std::size_t b = 0; b < program.buffers.size(); ++b) next[b + 1] = next[b] + 2 * static_cast<std::size_t>(writes[b]);
  borders.resize(next.back());
  std::vector<std::size_t> fill(next.begin(), next.end() - 1);
  for (const Task& task : program.tasks)
    for (const Region& region : task.writes)
      for (const Access& access : accesses_of(program, task, region)) {
        std::size_t& at = fill[static_cast<std::size_t>(region.buffer)];
        borders[at++] = access.begin;
        borders[at++] = access.end;
      }
  std::size_t kept = 0;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const auto from = borders.begin() + static_cast<std::ptrdiff_t>(next[b]);
    const auto to = borders.begin() + static_cast<std::ptrdiff_t>(next[b + 1]);
    if (from == to) continue;
    std::sort(from, to);
    const auto unique = static_cast<std::size_t>(std::unique(from, to) - from);
    std::move(from, from + static_cast<std::ptrdiff_t>(unique), borders.begin() + static_cast<std::ptrdiff_t>(kept));
    cells[b] = {static_cast<std::int32_t>(kept), static_cast<std::int32_t>(unique - 1)};
    kept += unique;
  }
  borders.resize(kept);
}

Layout::Span Layout::span(BufferId buffer, std::int64_t begin, std::int64_t end) const {
  const CellRange range = cells[static_cast<std::size_t>(buffer)];
  if (range.count == 0) return {};
  const auto low = borders.begin() + range.first;
  const auto high = low + range.count;  // the last border ends the last cell and begins none
  // First cell that ends after `begin`; first cell that begins at or after `end`.
  const auto first = std::upper_bound(low + 1, high + 1, begin) - 1;
  const auto last = std::lower_bound(low, high, end);
  if (first >= last) return {};
  return {static_cast<std::int32_t>(first - borders.begin()), static_cast<std::int32_t>(last - borders.begin())};
}

}  // namespace amk::validation
