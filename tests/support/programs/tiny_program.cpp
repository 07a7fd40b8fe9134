#include "tests/support/programs/tiny_program.h"

#include <algorithm>

#include "tests/support/programs/program_builder.h"

namespace amk::testing {

// Tasks in a sequence that would be right if it were executed one by one; each writes a fresh slice somewhere and reads what earlier ones wrote.
// Chance decides where slices lie on shared pages, on which SM a task runs, which waits are there, and at which positions tasks sleep.
Program tiny_program(Rng& rng, const TinyShape& shape) {
  const auto below = [&](int n) { return static_cast<int>(rng.below(static_cast<std::uint64_t>(n))); };
  const int sms = 1 + below(shape.max_sms);
  const int tasks = 2 + below(shape.max_tasks - 1);
  ProgramBuilder b(sms, 1 + below(3));
  const bool persistent = below(3) == 0;
  if (persistent) b.program.step_sync = StepSync::Persistent;
  const StorageId page = b.storage("page", 16 * 4);
  std::vector<BufferId> buffers;
  for (int i = 0; i < 3; ++i)
    buffers.push_back(below(3) == 0 ? b.buffer("own" + std::to_string(i), Space::Activation, 4)
                                    : b.buffer("shared" + std::to_string(i), Space::Activation, 4, page, 16 * below(2)));
  const BufferId cache = below(3) == 0 ? b.kv("cache", 1, 2) : kNone;
  const BufferId token = below(4) == 0 || persistent ? b.buffer("token", Space::Input, 1) : kNone;
  const BufferId out = b.buffer("out", Space::Output, 1);
  const CounterId first_counter = 0;
  for (int i = 0; i < tasks; ++i) b.counter("c" + std::to_string(i));
  struct Written {
    TaskId task;
    Region region;
  };
  std::vector<Written> written;
  std::vector<int> sm_of;
  for (int i = 0; i < tasks; ++i) {
    ProgramBuilder::Parts parts;
    const int sm = below(sms);
    if (below(5) == 0) parts.pos_lo = below(b.program.max_seq + 1);
    std::vector<TaskId> sources;
    for (int r = below(3); r > 0 && !written.empty(); --r) {
      const Written& source = written[rng.below(written.size())];
      Region region = source.region;
      if (region.buffer == cache && below(2) == 0) region = b.head(cache, 0);
      if (b.program.buffers[static_cast<std::size_t>(region.buffer)].space == Space::Input) continue;
      parts.reads.push_back(region);
      sources.push_back(source.task);
    }
    if (token != kNone && below(3) == 0) parts.reads.push_back(b.all(token));
    const auto write = [&](Region region) {
      if (below(12) == 0) region.pos_lo = below(b.program.max_seq + 1);
      parts.writes.push_back(region);
      written.push_back({static_cast<TaskId>(i), region});
    };
    if (i + 1 == tasks) {
      write(b.all(out));
      if (persistent && below(3) != 0) write(b.all(token));
    } else if (cache != kNone && below(3) == 0) {
      write(below(2) == 0 ? b.row(cache, 0, 0, 2) : b.row(cache, 0, below(2), 1));
    } else {
      const BufferId to = buffers[rng.below(buffers.size())];
      const int first = below(2) * 2;
      write(b.part(to, first, below(3) == 0 ? 4 - first : 2));
    }
    for (const TaskId s : sources)
      if (rng.uniform() < shape.wait_probability && (sm_of[static_cast<std::size_t>(s)] != sm || below(4) == 0))
        parts.waits.push_back(first_counter + s);
    if (i > 0 && below(3) == 0) parts.waits.push_back(first_counter + below(i));
    parts.signal = below(8) == 0 ? below(tasks) : i;
    if (below(6) == 0) parts.op = Opcode::Add;
    b.task(sm, std::move(parts));
    sm_of.push_back(sm);
  }
  if (persistent && below(3) != 0) b.program.tasks[static_cast<std::size_t>(below(tasks))].waits.push_back({first_counter + tasks - 1, 0});
  if (below(6) == 0) {  // out of the sequence
    std::vector<TaskId>& queue = b.program.queues[rng.below(b.program.queues.size())];
    if (queue.size() > 1) {
      std::swap(queue[0], queue[1]);
      for (std::size_t i = 0; i < queue.size(); ++i) b.program.tasks[static_cast<std::size_t>(queue[i])].queue_pos = static_cast<std::int32_t>(i);
    }
  }
  Program p = b.finish();
  // Waits for counters that nobody signals would only be refused for that.
  for (Task& t : p.tasks) std::erase_if(t.waits, [&](const Wait& w) { return p.counters[static_cast<std::size_t>(w.counter)].fan_in == 0; });
  return p;
}

}  // namespace amk::testing
