#include "tests/support/programs/program_builder.h"

#include <algorithm>

namespace amk::testing {

namespace {
constexpr std::int64_t kElement = 4;
}

ProgramBuilder::ProgramBuilder(int sms, int max_seq) {
  program.sm_count = sms;
  program.max_seq = max_seq;
  program.max_steps = 1 << 20;
  program.queues.resize(static_cast<std::size_t>(sms));
  program.streams.resize(static_cast<std::size_t>(sms));
  program.ring = {1 << 14, 1 << 10, 2, 4};
  instruction("step");
}

StorageId ProgramBuilder::storage(std::string name, std::int64_t bytes, Space space) {
  program.storages.push_back({std::move(name), space, bytes});
  return static_cast<StorageId>(program.storages.size() - 1);
}

BufferId ProgramBuilder::buffer(std::string name, Space space, std::int64_t elements, StorageId where, std::int64_t offset) {
  if (where == kNone) where = storage(name + ".mem", elements * kElement, space);
  Buffer b;
  b.name = std::move(name);
  b.space = space;
  b.shape = {elements};
  b.storage = where;
  b.offset = offset;
  b.bytes = elements * kElement;
  program.buffers.push_back(std::move(b));
  return static_cast<BufferId>(program.buffers.size() - 1);
}

BufferId ProgramBuilder::kv(std::string name, std::int64_t heads, std::int64_t head_dim) {
  const BufferId id = buffer(std::move(name), Space::Kv, heads * program.max_seq * head_dim);
  program.buffers.back().shape = {heads, program.max_seq, head_dim};
  return id;
}

BufferId ProgramBuilder::weight(std::string name, Matrix matrix, std::int64_t rows, std::int64_t cols) {
  const BufferId id = buffer(std::move(name), Space::Weight, rows * cols);
  program.buffers.back().shape = {rows, cols};
  program.buffers.back().binding.matrix = matrix;
  return id;
}

CounterId ProgramBuilder::counter(std::string name) {
  program.counters.push_back({std::move(name), 0});
  return static_cast<CounterId>(program.counters.size() - 1);
}

InstructionId ProgramBuilder::instruction(std::string name) {
  Instruction i;
  i.name = std::move(name);
  program.instructions.push_back(std::move(i));
  return static_cast<InstructionId>(program.instructions.size() - 1);
}

Region ProgramBuilder::part(BufferId id, std::int64_t first, std::int64_t count, int pos_lo, int pos_hi) const {
  return {id, first * kElement, (first + count) * kElement, 0, pos_lo, pos_hi};
}

Region ProgramBuilder::row(BufferId id, std::int64_t h, std::int64_t first, std::int64_t count) const {
  const std::int64_t dim = program.buffers[static_cast<std::size_t>(id)].shape[2];
  const std::int64_t at = h * program.max_seq * dim + first;
  return {id, at * kElement, (at + count) * kElement, dim * kElement, 0, kAllPositions};
}

Region ProgramBuilder::head(BufferId id, std::int64_t h) const {
  const std::int64_t bytes = program.max_seq * program.buffers[static_cast<std::size_t>(id)].shape[2] * kElement;
  return {id, h * bytes, (h + 1) * bytes, 0, 0, kAllPositions};
}

TaskId ProgramBuilder::task(int sm, Parts parts) {
  const auto id = static_cast<TaskId>(program.tasks.size());
  std::vector<TaskId>& queue = program.queues[static_cast<std::size_t>(sm)];
  Task t;
  t.op = parts.op;
  t.instruction = parts.instruction;
  t.fused = parts.fused;
  t.row_begin = id;  // only makes names distinct
  t.row_end = id + 1;
  t.pos_lo = parts.pos_lo;
  t.pos_hi = parts.pos_hi;
  t.reads = std::move(parts.reads);
  t.writes = std::move(parts.writes);
  for (const CounterId c : parts.waits) t.waits.push_back({c, 1});
  t.signal = parts.signal;
  t.sm = sm;
  t.queue_pos = static_cast<std::int32_t>(queue.size());
  if (parts.ring)
    for (const Region& r : t.reads)
      if (program.buffers[static_cast<std::size_t>(r.buffer)].space == Space::Weight) t.ring_bytes += r.end - r.begin;
  queue.push_back(id);
  program.tasks.push_back(std::move(t));
  return id;
}

Program ProgramBuilder::finish() const {
  Program out = program;
  for (Counter& c : out.counters) c.fan_in = 0;
  for (const Task& t : out.tasks)
    if (t.signal != kNone) ++out.counters[static_cast<std::size_t>(t.signal)].fan_in;
  for (Task& t : out.tasks)
    for (Wait& w : t.waits)
      if (w.target != 0) w.target = out.counters[static_cast<std::size_t>(w.counter)].fan_in;
  for (std::size_t s = 0; s < out.queues.size(); ++s) {
    out.streams[s].clear();
    for (const TaskId t : out.queues[s])
      if (out.tasks[static_cast<std::size_t>(t)].ring_bytes > 0) out.streams[s].push_back(t);
  }
  return out;
}

}  // namespace amk::testing
