#include <algorithm>

#include "tests/support/programs/simulator.h"

namespace amk::testing {

namespace {

// Wide enough for any product or sum of two 64-bit numbers.
__extension__ using Wide = __int128;

template <class T>
bool has(const std::vector<T>& items, std::int64_t index) {
  return index >= 0 && static_cast<std::size_t>(index) < items.size();
}

std::string task_text(const Program& p, std::size_t id) { return task_name(p, static_cast<TaskId>(id)); }

// First and last launch position at which the region is touched.
bool touched(const Program& p, const Task& t, const Region& r, std::int64_t& low, std::int64_t& high) {
  low = std::max<std::int64_t>({0, t.pos_lo, r.pos_lo});
  high = std::min<std::int64_t>({p.max_seq, t.pos_hi, r.pos_hi}) - 1;
  return low <= high;
}

std::optional<Breakage> region_breakage(const Program& p, std::size_t id, const Region& r, bool writes) {
  const Task& t = p.tasks[id];
  if (!has(p.buffers, r.buffer)) return Breakage{"crash", task_text(p, id) + " names a buffer that does not exist"};
  const Buffer& b = p.buffers[static_cast<std::size_t>(r.buffer)];
  std::int64_t low = 0, high = 0;
  if (!touched(p, t, r, low, high) || r.begin >= r.end) return {};
  for (const std::int64_t at : {low, high}) {
    const Wide shift = Wide{r.pos_stride} * at;
    if (r.begin + shift < 0 || r.end + shift > b.bytes)
      return Breakage{"crash", task_text(p, id) + " leaves " + b.name + " at position " + std::to_string(at)};
  }
  if ((r.begin | r.end | r.pos_stride) % dtype_bytes(b.dtype) != 0)
    return Breakage{"crash", task_text(p, id) + " touches part of an element of " + b.name};
  if (writes && (b.space == Space::Weight || b.space == Space::Const || (b.space == Space::Input && p.step_sync == StepSync::Launch)))
    return Breakage{"wrong-read", task_text(p, id) + " overwrites " + b.name + ", which later steps read as it was"};
  return {};
}

std::optional<Breakage> memory_breakage(const Program& p) {
  for (const Buffer& b : p.buffers) {
    if (!has(p.storages, b.storage)) return Breakage{"crash", b.name + " has no storage"};
    if (b.offset < 0 || b.bytes < 0 || Wide{b.offset} + b.bytes > p.storages[static_cast<std::size_t>(b.storage)].bytes)
      return Breakage{"crash", b.name + " does not fit its storage"};
    if (b.offset % dtype_bytes(b.dtype) != 0) return Breakage{"crash", b.name + " is not aligned to its elements"};
    Wide bytes = dtype_bytes(b.dtype);
    for (const std::int64_t dim : b.shape) {
      if (dim < 1 || bytes > b.bytes) return Breakage{"crash", b.name + " is not as large as its shape"};
      bytes *= dim;
    }
    if (bytes != b.bytes) return Breakage{"crash", b.name + " is not as large as its shape"};
    if (b.space == Space::Kv && (b.shape.size() < 2 || b.shape[b.shape.size() - 2] < p.max_seq)) return Breakage{"crash", b.name + " is too short"};
  }
  return {};
}

// Positions whose block of the cache belongs to a split of the task: every split_step-th from its first.
std::int64_t positions_of(const Program& p, const Task& t) {
  std::int64_t positions = 0;
  if (p.attention.kv_block < 1 || p.attention.split_step < 1 || t.splits < 1) return 0;
  for (std::int64_t at = 0; at < p.max_seq; ++at) {
    const std::int64_t split = at / p.attention.kv_block % t.splits;
    if (split >= t.split && (split - t.split) % p.attention.split_step == 0) ++positions;
  }
  return positions;
}

}  // namespace

std::optional<Breakage> static_breakage(const Program& p) {
  if (p.sm_count < 1 || p.queues.size() != static_cast<std::size_t>(p.sm_count) || p.streams.size() != p.queues.size() || p.max_seq < 1)
    return Breakage{"crash", "no queue or stream for some SM, or no position"};
  if (auto b = memory_breakage(p)) return b;
  for (std::size_t s = 0; s < p.queues.size(); ++s) {
    for (const TaskId id : p.queues[s])
      if (!has(p.tasks, id)) return Breakage{"crash", "a queue names a task that does not exist"};
    for (const TaskId id : p.streams[s])
      if (!has(p.tasks, id)) return Breakage{"crash", "a stream names a task that does not exist"};
  }
  for (std::size_t id = 0; id < p.tasks.size(); ++id) {
    const Task& t = p.tasks[id];
    if (t.signal != kNone && !has(p.counters, t.signal)) return Breakage{"crash", task_text(p, id) + " signals a counter that does not exist"};
    for (const Wait& w : t.waits)
      if (!has(p.counters, w.counter)) return Breakage{"crash", task_text(p, id) + " waits for a counter that does not exist"};
    std::int64_t packed = 0, element = 0;
    for (const Region& r : t.reads) {
      if (auto b = region_breakage(p, id, r, false)) return b;
      const Buffer& b = p.buffers[static_cast<std::size_t>(r.buffer)];
      if (b.space == Space::Weight && b.binding.rows_of_matrix()) packed += r.end - r.begin;
      if (b.space == Space::Kv) element = dtype_bytes(b.dtype);
    }
    if (t.op == Opcode::AttentionTile) packed = 2 * element * p.model.head_dim * positions_of(p, t);  // keys and values
    for (const Region& r : t.writes)
      if (auto b = region_breakage(p, id, r, true)) return b;
    if (t.ring_bytes != 0 && t.ring_bytes != packed)
      return Breakage{"wrong-weights", task_text(p, id) + " takes other bytes from the ring than it reads"};
  }
  return {};
}

}  // namespace amk::testing
