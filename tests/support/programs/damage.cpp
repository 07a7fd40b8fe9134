#include "tests/support/programs/damage.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

namespace amk::testing {

namespace {

// A number in the program, whatever its type.
struct Field {
  std::string_view kind;
  std::int32_t owner = kNone;  // task, buffer, …
  TaskId task = kNone;
  std::function<std::int64_t()> get;
  std::function<void(std::int64_t)> set;
  std::int64_t unit = 1;  // what it is a multiple of where it is right
};

template <class T>
Field field(std::string_view kind, std::int32_t owner, T& at, TaskId task = kNone, std::int64_t unit = 1) {
  return {kind,
          owner,
          task,
          [&at] { return static_cast<std::int64_t>(at); },
          [&at](std::int64_t value) {
            if constexpr (std::is_same_v<T, bool>)
              at = value != 0;
            else
              at = static_cast<T>(value);
          },
          unit};
}

std::int64_t element(const Program& p, BufferId id) {
  return id >= 0 && static_cast<std::size_t>(id) < p.buffers.size() ? dtype_bytes(p.buffers[static_cast<std::size_t>(id)].dtype) : 1;
}

using Visit = std::function<void(Field)>;

void fields_of(Program& p, Region& r, std::string_view begin, std::string_view end, TaskId id, const Visit& visit) {
  const std::int64_t unit = element(p, r.buffer);
  visit(field("region.buffer", id, r.buffer, id));
  visit(field(begin, id, r.begin, id, unit));
  visit(field(end, id, r.end, id, unit));
  visit(field("region.pos_stride", id, r.pos_stride, id, unit));
  visit(field("region.pos_lo", id, r.pos_lo, id));
  visit(field("region.pos_hi", id, r.pos_hi, id));
}

void fields_of(Program& p, TaskId id, const Visit& visit) {
  Task& t = p.tasks[static_cast<std::size_t>(id)];
  visit(field("task.op", id, t.op, id));
  visit(field("task.layer", id, t.layer, id));
  visit(field("task.instruction", id, t.instruction, id));
  visit(field("task.matrix", id, t.matrix, id));
  visit(field("task.fused", id, t.fused, id));
  visit(field("task.row_begin", id, t.row_begin, id, 8));
  visit(field("task.row_end", id, t.row_end, id, 8));
  visit(field("task.seq", id, t.seq, id));
  visit(field("task.head", id, t.head, id));
  visit(field("task.split", id, t.split, id));
  visit(field("task.splits", id, t.splits, id));
  visit(field("task.partial", id, t.partial, id));
  visit(field("task.pos_lo", id, t.pos_lo, id));
  visit(field("task.pos_hi", id, t.pos_hi, id));
  visit(field("task.signal", id, t.signal, id));
  visit(field("task.sm", id, t.sm, id));
  visit(field("task.queue_pos", id, t.queue_pos, id));
  visit(field("task.ring_bytes", id, t.ring_bytes, id, 2));
  for (Region& r : t.reads) fields_of(p, r, "read.begin", "read.end", id, visit);
  for (Region& r : t.writes) fields_of(p, r, "write.begin", "write.end", id, visit);
  for (Wait& w : t.waits) {
    visit(field("wait.counter", id, w.counter, id));
    visit(field("wait.target", id, w.target, id));
  }
}

void fields_of(Program& p, const Visit& visit) {
  visit(field("batch", 0, p.batch));
  visit(field("max_seq", 0, p.max_seq));
  visit(field("max_steps", 0, p.max_steps));
  visit(field("step_sync", 0, p.step_sync));
  visit(field("sm_count", 0, p.sm_count));
  visit(field("ring.ring_bytes", 0, p.ring.ring_bytes, kNone, 128));
  visit(field("ring.chunk_bytes", 0, p.ring.chunk_bytes, kNone, 128));
  visit(field("ring.inflight_chunks", 0, p.ring.inflight_chunks));
  visit(field("ring.depth", 0, p.ring.depth));
  visit(field("attention.kv_block", 0, p.attention.kv_block));
  visit(field("attention.splits", 0, p.attention.splits));
  visit(field("attention.split_step", 0, p.attention.split_step));
  for (std::size_t i = 0; i < p.storages.size(); ++i) {
    visit(field("storage.space", static_cast<std::int32_t>(i), p.storages[i].space));
    visit(field("storage.bytes", static_cast<std::int32_t>(i), p.storages[i].bytes, kNone, 256));
  }
  for (std::size_t i = 0; i < p.buffers.size(); ++i) {
    Buffer& b = p.buffers[i];
    const auto id = static_cast<std::int32_t>(i);
    visit(field("buffer.space", id, b.space));
    visit(field("buffer.dtype", id, b.dtype));
    for (std::int64_t& dim : b.shape) visit(field("buffer.shape", id, dim));
    visit(field("buffer.storage", id, b.storage));
    visit(field("buffer.offset", id, b.offset, kNone, 256));
    visit(field("buffer.bytes", id, b.bytes, kNone, dtype_bytes(b.dtype)));
    if (b.space != Space::Weight) continue;
    visit(field("binding.matrix", id, b.binding.matrix));
    visit(field("binding.kind", id, b.binding.kind));
    visit(field("binding.layer", id, b.binding.layer));
    visit(field("binding.bias", id, b.binding.bias));
    visit(field("binding.scale", id, b.binding.scale));
  }
  for (std::size_t i = 0; i < p.counters.size(); ++i) visit(field("counter.fan_in", static_cast<std::int32_t>(i), p.counters[i].fan_in));
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    Instruction& in = p.instructions[i];
    const auto id = static_cast<std::int32_t>(i);
    visit(field("instruction.op", id, in.op));
    visit(field("instruction.layer", id, in.layer));
    visit(field("instruction.matrix", id, in.matrix));
    visit(field("instruction.fused", id, in.fused));
  }
  for (std::size_t i = 0; i < p.tasks.size(); ++i) fields_of(p, static_cast<TaskId>(i), visit);
  for (std::size_t sm = 0; sm < p.queues.size(); ++sm)
    for (TaskId& id : p.queues[sm]) visit(field("queue", static_cast<std::int32_t>(sm), id, id));
  for (std::size_t sm = 0; sm < p.streams.size(); ++sm)
    for (TaskId& id : p.streams[sm]) visit(field("stream", static_cast<std::int32_t>(sm), id, id));
}

class Damage {
 public:
  Damage(const Program& program, Rng& rng) : rng_(rng) { out_.program = program; }

  Damaged take() {
    while (out_.what.empty() || out_.program.tasks.empty()) {
      switch (rng_.below(11)) {
        case 0:
        case 1:
          fields(1 + below(3));
          break;
        case 7:
        case 8:
          pages(1 + below(2));
          break;
        case 9:
          for (std::int32_t n = 1 + below(3); n > 0; --n) move_tidily(any_task());
          break;
        case 2:
          fields_of_one_task(2 + below(2));
          break;
        case 3:
          redirect();
          break;
        case 4:
          shift();
          break;
        case 5:
          whole_instruction();
          break;
        case 6:
          lists(1 + below(2));
          break;
        default:
          exchange();
          break;
      }
    }
    return std::move(out_);
  }

 private:
  Program& p() { return out_.program; }
  std::int32_t below(std::size_t n) { return static_cast<std::int32_t>(rng_.below(n)); }
  TaskId any_task() { return below(p().tasks.size()); }
  Task& task(TaskId id) { return p().tasks[static_cast<std::size_t>(id)]; }
  void say(const std::string& text) { out_.what += (out_.what.empty() ? "" : ", ") + text; }
  void suspect(TaskId id) {
    if (id >= 0 && static_cast<std::size_t>(id) < p().tasks.size() && out_.suspects.size() < 4) out_.suspects.push_back(id);
  }

  std::int64_t other_value(const Field& f, const std::vector<Field>& alike) {
    const std::int64_t now = f.get();
    switch (rng_.below(6)) {
      case 0:
      case 1:
      case 2:
        return alike[rng_.below(alike.size())].get();
      case 3:
        return now + f.unit * (rng_.below(2) == 0 ? 1 : -1);
      case 4:
        return now + f.unit * (std::int64_t{1} << rng_.below(6)) * (rng_.below(2) == 0 ? 1 : -1);
      default: {
        constexpr std::int64_t kMax32 = std::numeric_limits<std::int32_t>::max(), kMax64 = std::numeric_limits<std::int64_t>::max();
        const std::array<std::int64_t, 10> wild{0, 1, -1, 2, now ^ 1, now ^ (std::int64_t{1} << rng_.below(6)), 2 * now, now / 2, kMax32, kMax64};
        return wild[rng_.below(wild.size())];
      }
    }
  }

  void change(Field& f, const std::vector<Field>& alike) {
    const std::int64_t before = f.get();
    if (rng_.below(6) == 0) {  // exchange
      const Field& with = alike[rng_.below(alike.size())];
      const std::int64_t theirs = with.get();
      f.set(theirs);
      with.set(before);
      suspect(with.task);
    } else {
      f.set(other_value(f, alike));
    }
    if (f.get() == before) return;
    suspect(f.task);
    say(std::string(f.kind) + "[" + std::to_string(f.owner) + "] " + std::to_string(before) + " -> " + std::to_string(f.get()));
  }

  // By kind first: a program has one ring, and thousands of regions.
  void fields(std::int32_t count) {
    std::map<std::string_view, std::vector<Field>> kinds;
    fields_of(p(), [&](Field f) { kinds[f.kind].push_back(std::move(f)); });
    for (std::int32_t i = 0; i < count; ++i) {
      auto kind = kinds.begin();
      std::advance(kind, below(kinds.size()));
      change(kind->second[rng_.below(kind->second.size())], kind->second);
    }
  }

  void fields_of_one_task(std::int32_t count) {
    std::map<std::string_view, std::vector<Field>> kinds;
    fields_of(p(), [&](Field f) { kinds[f.kind].push_back(std::move(f)); });
    std::vector<Field> own;
    fields_of(p(), any_task(), [&](Field f) { own.push_back(std::move(f)); });
    for (std::int32_t i = 0; i < count; ++i) {
      Field& f = own[rng_.below(own.size())];
      change(f, kinds[f.kind]);
    }
  }

  // One task, or all of its instruction, take another buffer of the same size for one of theirs.
  void redirect() {
    const TaskId first = any_task();
    Task& t = task(first);
    auto& list = t.writes.empty() || (!t.reads.empty() && rng_.below(3) != 0) ? t.reads : t.writes;
    if (list.empty()) return;
    const BufferId from = list[rng_.below(list.size())].buffer;
    std::vector<BufferId> to;
    for (std::size_t b = 0; b < p().buffers.size(); ++b)
      if (p().buffers[b].bytes == p().buffers[static_cast<std::size_t>(from)].bytes && static_cast<BufferId>(b) != from)
        to.push_back(static_cast<BufferId>(b));
    if (to.empty()) return;
    const BufferId target = to[rng_.below(to.size())];
    const bool all = rng_.below(2) == 0, reads = rng_.below(4) != 0, writes = !reads || rng_.below(2) == 0;
    for (std::size_t i = 0; i < p().tasks.size(); ++i) {
      Task& other = p().tasks[i];
      if (static_cast<TaskId>(i) != first && (!all || other.instruction != t.instruction)) continue;
      for (auto* regions : {&other.reads, &other.writes})
        for (Region& r : *regions)
          if (r.buffer == from && (regions == &other.reads ? reads : writes)) r.buffer = target;
      suspect(static_cast<TaskId>(i));
    }
    say(std::string(all ? "instruction" : "task") + " of " + task_name(p(), first) + (reads ? " reads " : "") + (writes ? " writes " : "") +
        p().buffers[static_cast<std::size_t>(target)].name + " instead of " + p().buffers[static_cast<std::size_t>(from)].name);
  }

  // Buffers put where others lie, whole or in part; the page is as large as it takes.
  void pages(std::int32_t count) {
    std::vector<std::size_t> movable;
    for (std::size_t b = 0; b < p().buffers.size(); ++b)
      if (p().buffers[b].space == Space::Activation) movable.push_back(b);
    for (std::int32_t i = 0; i < count && movable.size() > 1; ++i) {
      Buffer& moved = p().buffers[movable[rng_.below(movable.size())]];
      const Buffer& there = p().buffers[movable[rng_.below(movable.size())]];
      const std::int64_t steps = std::array<std::int64_t, 8>{0, 0, 1, -1, 2, -2, 3, 4}[rng_.below(8)];
      moved.storage = there.storage;
      moved.offset = std::max<std::int64_t>(0, there.offset + 256 * steps);
      std::int64_t& bytes = p().storages[static_cast<std::size_t>(moved.storage)].bytes;
      bytes = std::max(bytes, (moved.offset + moved.bytes + 255) / 256 * 256);
      say(moved.name + " put to " + there.name + " + " + std::to_string(256 * steps));
    }
  }

  // Rows, heads, splits of a task moved, and the regions that go with them.
  void shift() {
    const TaskId id = any_task();
    Task& t = task(id);
    const std::int32_t by = std::array<std::int32_t, 8>{1, -1, 4, -4, 8, -8, 16, -16}[rng_.below(8)];
    const std::uint64_t which = rng_.below(6);
    if (which == 0 || which == 2) t.row_begin += by;
    if (which == 1 || which == 2) t.row_end += by;
    if (which == 3) t.head += by;
    if (which == 4) t.split += by;
    if (which == 5) t.partial += by;
    std::int32_t moved = 0;
    for (auto* regions : {&t.reads, &t.writes})
      for (Region& r : *regions) {
        if (rng_.below(3) == 0) continue;
        const std::int64_t bytes = by * element(p(), r.buffer) *
                                   (which == 5                 ? kArgmaxWords
                                    : which == 3 || which == 4 ? (r.end - r.begin) / element(p(), r.buffer)
                                                               : 1);
        if (which != 1) r.begin += bytes;
        if (which != 0) r.end += bytes;
        ++moved;
      }
    suspect(id);
    say("shift " + std::to_string(which) + " of " + task_name(p(), id) + " by " + std::to_string(by) + ", regions moved: " + std::to_string(moved));
  }

  // The same change in every task of an instruction, as an error of lowering would make it.
  void whole_instruction() {
    const TaskId first = any_task();
    const InstructionId id = task(first).instruction;
    Instruction& in = p().instructions[static_cast<std::size_t>(id)];
    const std::string name = in.name;
    const std::uint64_t what = rng_.below(7);
    const std::uint64_t number = rng_.next();
    const std::int32_t layers = p().model.layers;
    if (what == 0) in.fused ^= 1u << number % 6;
    if (what == 1) in.layer = static_cast<std::int16_t>(number % static_cast<std::uint64_t>(layers));
    if (what == 2) in.op = static_cast<Opcode>(number % 12);
    const bool also = rng_.below(2) == 0;  // a list goes with the flag
    for (std::size_t i = 0; i < p().tasks.size(); ++i) {
      Task& t = p().tasks[i];
      if (t.instruction != id) continue;
      suspect(static_cast<TaskId>(i));
      t.fused = in.fused;
      t.layer = in.layer;
      t.op = in.op;
      if ((what == 3 || (what == 0 && also)) && !t.reads.empty())
        t.reads.erase(t.reads.begin() + static_cast<std::ptrdiff_t>(number % t.reads.size()));
      if (what == 4 && t.reads.size() > 1) std::swap(t.reads[number % t.reads.size()], t.reads[(number >> 20) % t.reads.size()]);
      if (what == 5 && !t.writes.empty()) t.writes.erase(t.writes.begin() + static_cast<std::ptrdiff_t>(number % t.writes.size()));
      if (what == 6) t.waits.clear();
    }
    say("all of " + name + ": change " + std::to_string(what) + (also && what == 0 ? " and a read" : ""));
  }

  template <class T>
  void edit(std::vector<T>& list, const char* name) {
    if (list.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(rng_.below(list.size())), to = static_cast<std::ptrdiff_t>(rng_.below(list.size()));
    switch (rng_.below(4)) {
      case 0:
        list.erase(list.begin() + at);
        break;
      case 1:
        list.insert(list.begin() + at, T(list[static_cast<std::size_t>(to)]));
        break;
      case 2:
        std::swap(list[static_cast<std::size_t>(at)], list[static_cast<std::size_t>(to)]);
        break;
      default:
        std::rotate(list.begin(), list.begin() + at, list.end());
        break;
    }
    say(std::string("list of ") + name);
  }

  void lists(std::int32_t count) {
    for (std::int32_t i = 0; i < count; ++i) {
      const TaskId id = any_task();
      const auto sm = static_cast<std::size_t>(below(p().queues.size()));
      switch (rng_.below(8)) {
        case 0:
          edit(task(id).reads, "reads");
          break;
        case 1:
          edit(task(id).writes, "writes");
          break;
        case 2:
          edit(task(id).waits, "waits");
          break;
        case 3:
          edit(p().queues[sm], "queue");
          break;
        case 4:
          edit(p().streams[sm], "stream");
          break;
        case 5:
          drop_tidily(id);
          return;
        case 6:
          move_tidily(id);
          return;
        default:
          edit(p().counters, "counters");
          break;
      }
      suspect(id);
    }
  }

  bool known(CounterId id) { return id >= 0 && static_cast<std::size_t>(id) < p().counters.size(); }

  // What a careful author of a wrong program would keep right: numbers, fan-ins, whole targets.
  void renumber() {
    std::vector<std::int32_t> fans(p().counters.size(), 0);
    for (const Task& t : p().tasks)
      if (known(t.signal)) ++fans[static_cast<std::size_t>(t.signal)];
    for (Task& t : p().tasks)
      for (Wait& w : t.waits)
        if (w.target != 0 && known(w.counter)) w.target = fans[static_cast<std::size_t>(w.counter)];
    for (std::size_t c = 0; c < fans.size(); ++c) p().counters[c].fan_in = fans[c];
    for (std::size_t sm = 0; sm < p().queues.size(); ++sm) {
      p().streams[sm].clear();
      for (std::size_t i = 0; i < p().queues[sm].size(); ++i) {
        Task& t = task(p().queues[sm][i]);
        t.sm = static_cast<std::int32_t>(sm);
        t.queue_pos = static_cast<std::int32_t>(i);
        if (t.ring_bytes > 0) p().streams[sm].push_back(p().queues[sm][i]);
      }
    }
  }

  void drop_tidily(TaskId id) {
    if (p().tasks.size() < 2) return;
    say("without " + task_name(p(), id));
    p().tasks.erase(p().tasks.begin() + id);
    for (auto& queue : p().queues) {
      std::erase(queue, id);
      for (TaskId& q : queue) q -= q > id ? 1 : 0;
    }
    renumber();
  }

  void move_tidily(TaskId id) {
    say(task_name(p(), id) + " moved");
    for (auto& queue : p().queues) std::erase(queue, id);
    auto& queue = p().queues[static_cast<std::size_t>(below(p().queues.size()))];
    queue.insert(queue.begin() + static_cast<std::ptrdiff_t>(rng_.below(queue.size() + 1)), id);
    renumber();
    suspect(id);
  }

  // Whole objects.
  void exchange() {
    const auto a = static_cast<std::size_t>(below(p().buffers.size())), b = static_cast<std::size_t>(below(p().buffers.size()));
    const TaskId one = any_task(), other = any_task();
    switch (rng_.below(6)) {
      case 0:
        std::swap(p().buffers[a].binding, p().buffers[b].binding);
        say("bindings of " + p().buffers[a].name + " and " + p().buffers[b].name + " exchanged");
        break;
      case 1:
        std::swap(p().buffers[a].storage, p().buffers[b].storage);
        std::swap(p().buffers[a].offset, p().buffers[b].offset);
        say("places of " + p().buffers[a].name + " and " + p().buffers[b].name + " exchanged");
        break;
      case 2:
        std::swap(task(one).signal, task(other).signal);
        renumber();
        say("signals of " + task_name(p(), one) + " and " + task_name(p(), other) + " exchanged");
        break;
      case 3:
        std::swap(task(one).waits, task(other).waits);
        say("waits of " + task_name(p(), one) + " and " + task_name(p(), other) + " exchanged");
        break;
      case 4: {  // both do the other's work
        Task& x = task(one);
        Task& y = task(other);
        std::swap(x, y);
        std::swap(x.sm, y.sm);
        std::swap(x.queue_pos, y.queue_pos);
        renumber();
        say("work of " + task_name(p(), one) + " and " + task_name(p(), other) + " exchanged");
        break;
      }
      default:
        if (task(one).reads.empty() || task(other).reads.empty()) return;
        std::swap(task(one).reads[rng_.below(task(one).reads.size())], task(other).reads[rng_.below(task(other).reads.size())]);
        say("reads of " + task_name(p(), one) + " and " + task_name(p(), other) + " exchanged");
        break;
    }
    suspect(one);
    suspect(other);
  }

  Damaged out_;
  Rng& rng_;
};

}  // namespace

Damaged damage(const Program& program, Rng& rng) { return Damage(program, rng).take(); }

}  // namespace amk::testing
