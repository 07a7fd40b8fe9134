#include "tests/support/programs/mutate.h"

#include <algorithm>

#include "tests/support/programs/mutate_parts.h"

namespace amk::testing {

std::string_view to_string(Mutation mutation) {
  static constexpr std::string_view kNames[] = {
      "drop a wait",
      "lower a target",
      "raise a target",
      "target zero",
      "redirect a wait",
      "repeat a wait",
      "wait for itself",
      "drop a signal",
      "redirect a signal",
      "change a fan-in",
      "drop a signal, counts kept right",
      "redirect a signal, counts kept right",
      "overflow max_steps",
      "swap queue entries",
      "move a task to another SM",
      "move a task, leave the rest",
      "queue a task twice",
      "drop a queue entry",
      "duplicate a task",
      "drop a task",
      "swap stream entries",
      "drop a stream entry",
      "stream a task twice",
      "stream another SM's task",
      "shorten the ring",
      "chunk larger than the ring",
      "no copy in flight",
      "change a task's ring bytes",
      "reduce the depth",
      "alias a page",
      "move an offset",
      "swap two offsets",
      "shrink a storage",
      "grow a buffer",
      "shrink a buffer",
      "change a space",
      "shrink a read",
      "extend a read",
      "shift a read",
      "redirect a read",
      "drop a read",
      "shrink a write",
      "extend a write",
      "shift a write",
      "redirect a write",
      "drop a write",
      "duplicate a write",
      "swap two writes",
      "change a task's guard",
      "change a region's guard",
      "change a stride",
      "append to another row",
      "shorten a cache",
      "raise max_seq",
      "mix up two sequences",
      "unalign",
      "wild index",
      "wild number",
  };
  static_assert(std::size(kNames) == kMutations);
  return kNames[static_cast<std::size_t>(mutation)];
}

std::optional<Mutant> mutate(const Program& program, Mutation mutation, Rng& rng) {
  Mutator mutator(program, rng);
  if (!mutator.apply(mutation)) return std::nullopt;
  Mutant out = mutator.take();
  std::sort(out.suspects.begin(), out.suspects.end());
  out.suspects.erase(std::unique(out.suspects.begin(), out.suspects.end()), out.suspects.end());
  const Program& p = out.program;
  if (p.tasks == program.tasks && p.queues == program.queues && p.streams == program.streams && p.buffers == program.buffers &&
      p.storages == program.storages && p.counters == program.counters && p.ring == program.ring && p.max_seq == program.max_seq &&
      p.max_steps == program.max_steps && p.sm_count == program.sm_count && p.version == program.version)
    return std::nullopt;
  return out;
}

bool Mutator::apply(Mutation m) {
  if (m <= Mutation::OverflowSteps) return synchronisation(m);
  if (m <= Mutation::DropTask) return placement(m);
  if (m <= Mutation::ReduceDepth) return streams(m);
  if (m <= Mutation::ChangeSpace) return storage(m);
  if (m <= Mutation::SwapWrites) return regions(m);
  if (m == Mutation::MixSequences) return mix_sequences();
  if (m <= Mutation::Unalign) return positions(m);
  return m == Mutation::WildIndex ? wild_index() : wild_number();
}

void Mutator::suspect_counter(CounterId id) {
  const auto waits = [&](const Task& t) { return std::any_of(t.waits.begin(), t.waits.end(), [&](const Wait& w) { return w.counter == id; }); };
  for (int i = 0; i < 2; ++i) {
    if (const TaskId t = pick_task(waits); t != kNone) suspect(t);
    if (const TaskId t = pick_task([&](const Task& candidate) { return candidate.signal == id; }); t != kNone) suspect(t);
  }
}

void Mutator::suspect_users(BufferId id) {
  const auto uses = [&](const std::vector<Region>& list) {
    return std::any_of(list.begin(), list.end(), [&](const Region& r) { return r.buffer == id; });
  };
  for (int i = 0; i < 2; ++i) {
    if (const TaskId t = pick_task([&](const Task& candidate) { return uses(candidate.reads); }); t != kNone) suspect(t);
    if (const TaskId t = pick_task([&](const Task& candidate) { return uses(candidate.writes); }); t != kNone) suspect(t);
  }
}

// One region of a batch moved to the same bytes of another sequence, or a task said to be another sequence's.
bool Mutator::mix_sequences() {
  if (p().batch < 2) return false;
  const TaskId id = pick_task([](const Task&) { return true; });
  Task& t = task(id);
  suspect(id);
  if ((t.op == Opcode::AttentionTile || t.op == Opcode::Argmax) && coin()) {
    t.seq = (t.seq + 1 + below(static_cast<std::size_t>(p().batch - 1))) % p().batch;
    return true;
  }
  std::vector<Region>& list = coin() ? t.reads : t.writes;
  const std::int32_t at = pick(list.size(), [&](std::int32_t i) { return is_memory(list[static_cast<std::size_t>(i)].buffer); });
  if (at == kNone) return false;
  Region& r = list[static_cast<std::size_t>(at)];
  const std::int64_t slice = buffer(r.buffer).bytes / p().batch, from = r.begin / slice;
  const std::int64_t by = ((from + 1 + below(static_cast<std::size_t>(p().batch - 1))) % p().batch - from) * slice;
  r.begin += by, r.end += by;
  suspect_users(r.buffer);
  return true;
}

void Mutator::number_queues() {
  for (std::size_t s = 0; s < p().queues.size(); ++s)
    for (std::size_t i = 0; i < p().queues[s].size(); ++i) {
      task(p().queues[s][i]).sm = static_cast<std::int32_t>(s);
      task(p().queues[s][i]).queue_pos = static_cast<std::int32_t>(i);
    }
}

void Mutator::rebuild_streams() {
  for (std::size_t s = 0; s < p().queues.size(); ++s) {
    p().streams[s].clear();
    for (const TaskId id : p().queues[s])
      if (task(id).ring_bytes > 0) p().streams[s].push_back(id);
  }
}

void Mutator::rebuild_counts() {
  std::vector<std::int32_t> signals(p().counters.size(), 0);
  for (const Task& t : p().tasks)
    if (t.signal != kNone) ++signals[static_cast<std::size_t>(t.signal)];
  for (Task& t : p().tasks)
    for (Wait& w : t.waits)
      if (w.target == counter(w.counter).fan_in) w.target = signals[static_cast<std::size_t>(w.counter)];
  // A counter that nobody signals any more cannot be waited for.
  for (Task& t : p().tasks) std::erase_if(t.waits, [&](const Wait& w) { return signals[static_cast<std::size_t>(w.counter)] == 0; });
  for (std::size_t c = 0; c < signals.size(); ++c) p().counters[c].fan_in = signals[c];
}

}  // namespace amk::testing
