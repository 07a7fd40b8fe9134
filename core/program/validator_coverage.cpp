#include "core/program/validator_coverage.h"

#include <algorithm>

#include "core/program/validator_access.h"

namespace amk::validation {

namespace {

__extension__ using Area = unsigned __int128;  // up to 2^50 bytes × 2^31 positions

// Also an input that the program feeds back to its next step: where it were not written, that step would take an older one.
bool must_be_whole(const Buffer& buffer, Area written) {
  return buffer.space == Space::Output || buffer.space == Space::Kv || (buffer.space == Space::Input && written > 0);
}

// Slow: only to name the hole that the sum has shown to exist.
Verdict name_hole(const Program& p, BufferId id) {
  const Buffer& buffer = p.buffers[static_cast<std::size_t>(id)];
  std::vector<Access> writes;
  std::vector<std::int64_t> starts{0};
  for (const Task& task : p.tasks)
    for (const Region& region : task.writes) {
      if (region.buffer != id) continue;
      for (const Access& access : accesses_of(p, task, region)) {
        writes.push_back(access);
        starts.push_back(access.begin);
        starts.push_back(access.end);
      }
    }
  std::sort(starts.begin(), starts.end());
  std::sort(writes.begin(), writes.end(), [](const Access& a, const Access& b) { return a.lo < b.lo; });
  Finding finding;
  finding.rule = "unwritten-output";
  finding.buffer = id;
  for (const std::int64_t byte : starts) {
    if (byte >= tracked_bytes(buffer)) break;
    std::int32_t position = 0;
    std::int32_t until = p.max_seq;
    for (const Access& w : writes)
      if (w.begin <= byte && byte < w.end) {
        if (w.lo > position) {
          until = w.lo;
          break;
        }
        position = std::max(position, w.hi);
      }
    if (position >= p.max_seq) continue;
    finding.begin = byte;
    finding.end = *std::upper_bound(starts.begin(), starts.end() - 1, byte);
    if (finding.end <= byte) finding.end = tracked_bytes(buffer);
    finding.pos_lo = position;
    finding.pos_hi = until;
    break;
  }
  finding.message =
      cat("nobody writes bytes [", finding.begin, ",", finding.end, ") of ", buffer.name,
          buffer.space == Space::Kv ? " (columns of the launch position's rows)" : "", " at positions [", finding.pos_lo, ",", finding.pos_hi, ")");
  finding.missing = "a task that writes them";
  return reject(p, std::move(finding));
}

}  // namespace

Verdict check_coverage(const Program& p) {
  std::vector<Area> written(p.buffers.size(), 0);
  for (const Task& task : p.tasks)
    for (const Region& region : task.writes) {
      if (p.buffers[static_cast<std::size_t>(region.buffer)].space == Space::Activation) continue;
      for (const Access& access : accesses_of(p, task, region))
        written[static_cast<std::size_t>(region.buffer)] += static_cast<Area>(access.end - access.begin) * static_cast<Area>(access.hi - access.lo);
    }
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (!must_be_whole(p.buffers[b], written[b])) continue;
    const Area whole = static_cast<Area>(tracked_bytes(p.buffers[b])) * static_cast<Area>(p.max_seq);
    if (written[b] != whole) return name_hole(p, static_cast<BufferId>(b));
  }
  return {};
}

}  // namespace amk::validation
