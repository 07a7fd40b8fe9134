// Damage: any field, any value.
#include <array>
#include <limits>

#include "tests/support/programs/mutate_parts.h"

namespace amk::testing {

namespace {
constexpr std::int32_t kMin32 = std::numeric_limits<std::int32_t>::min(), kMax32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMin64 = std::numeric_limits<std::int64_t>::min(), kMax64 = std::numeric_limits<std::int64_t>::max();
}  // namespace

bool Mutator::wild_index() {
  const TaskId id = pick_task([](const Task& t) { return !t.reads.empty() && !t.writes.empty() && !t.waits.empty(); });
  if (id == kNone) return false;
  Task& t = task(id);
  Buffer& b = buffer(below(p().buffers.size()));
  auto& some_queue = queue(t.sm);
  auto& some_stream = p().streams[static_cast<std::size_t>(t.sm)];
  std::vector<std::int32_t*> fields{&t.reads[rng_.below(t.reads.size())].buffer,
                                    &t.writes[rng_.below(t.writes.size())].buffer,
                                    &t.waits[rng_.below(t.waits.size())].counter,
                                    &t.signal,
                                    &t.sm,
                                    &t.queue_pos,
                                    &t.instruction,
                                    &b.storage,
                                    &some_queue[rng_.below(some_queue.size())]};
  if (!some_stream.empty()) fields.push_back(&some_stream[rng_.below(some_stream.size())]);
  std::int32_t& field = *fields[rng_.below(fields.size())];
  suspect(id);
  const std::array<std::int32_t, 8> values{-1, -2, kMin32, kMax32, field + 1, field - 1, static_cast<std::int32_t>(p().tasks.size()), below(1000)};
  field = values[rng_.below(values.size())];
  return true;
}

bool Mutator::wild_number() {
  const TaskId id = pick_task([](const Task& t) { return !t.reads.empty() && !t.writes.empty() && !t.waits.empty(); });
  if (id == kNone) return false;
  Task& t = task(id);
  Region& r = coin() ? t.reads[rng_.below(t.reads.size())] : t.writes[rng_.below(t.writes.size())];
  Buffer& b = buffer(coin() ? r.buffer : below(p().buffers.size()));
  suspect(id);
  const std::int32_t small = std::array<std::int32_t, 8>{0, 1, -1, kMin32, kMax32, 1 << 30, below(200), -below(200)}[rng_.below(8)];
  const std::int64_t large = std::array<std::int64_t, 8>{0, 1, -1, kMin64, kMax64, std::int64_t{1} << 40, below(5000), kMax64 - 3}[rng_.below(8)];
  switch (rng_.below(22)) {
    case 0:
      r.begin = large;
      break;
    case 1:
      r.end = large;
      break;
    case 2:
      r.pos_stride = large;
      break;
    case 3:
      r.pos_lo = small;
      break;
    case 4:
      r.pos_hi = small;
      break;
    case 5:
      t.pos_lo = small;
      break;
    case 6:
      t.pos_hi = small;
      break;
    case 7:
      t.waits[0].target = small;
      break;
    case 8:
      t.ring_bytes = large;
      break;
    case 9:
      b.offset = large;
      break;
    case 10:
      b.bytes = large;
      break;
    case 11:
      b.shape[rng_.below(b.shape.size())] = large;
      break;
    case 12:
      b.shape.clear();
      break;
    case 13:
      p().storages[static_cast<std::size_t>(b.storage)].bytes = large;
      break;
    case 14:
      counter(t.waits[0].counter).fan_in = small;
      break;
    case 15:
      p().max_steps = large;
      break;
    case 16:
      p().max_seq = small;
      break;
    case 17:
      p().sm_count = small;
      break;
    case 18:
      p().ring.chunk_bytes = large;
      break;
    case 19:
      p().ring.ring_bytes = large;
      break;
    case 20:
      p().ring.inflight_chunks = small;
      break;
    default:
      p().ring.depth = small;
      break;
  }
  return true;
}

}  // namespace amk::testing
