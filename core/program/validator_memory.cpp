#include "core/program/validator_memory.h"

#include <algorithm>

namespace amk::validation {

ByteTracker::ByteTracker(const Program& program, const Layout& layout, const ByteTracker* previous)
    : program_(program),
      layout_(layout),
      previous_(previous),
      sms_(static_cast<std::size_t>(program.sm_count)),
      states_(program.buffers.size()),
      cells_(layout.borders.size()),
      residents_(program.storages.size()),
      clocks_(sms_) {
  for (std::size_t b = 0; b < states_.size(); ++b) states_[b].pending_writes = layout.writes[b];
}

TaskId ByteTracker::task_of(Event event) const {
  const std::vector<TaskId>& queue = program_.queues[static_cast<std::size_t>(event.sm)];
  return queue[static_cast<std::size_t>(event.order - 1) % queue.size()];
}

Access ByteTracker::translate(const Access& access, BufferId other) const {
  if (other == access.buffer) return access;
  const Buffer& from = buffer(access.buffer);
  const Buffer& to = buffer(other);
  Access out = access;
  out.buffer = other;
  out.begin = std::max<std::int64_t>(access.begin + from.offset - to.offset, 0);
  out.end = std::min(access.end + from.offset - to.offset, to.bytes);
  if (out.begin >= out.end) out.begin = out.end = 0;
  return out;
}

void ByteTracker::make_resident(BufferId id) {
  BufferState& mine = state(id);
  if (mine.resident) return;
  mine.resident = true;
  if (buffer(id).space != Space::Activation) return;  // alone in its storage: check_structure
  std::vector<std::int32_t>& residents = residents_[static_cast<std::size_t>(buffer(id).storage)];
  std::erase_if(residents, [&](std::int32_t other) { return state(other).dropped; });
  const Access whole{id, 0, buffer(id).bytes, 0, program_.max_seq};
  for (const std::int32_t other : residents) {
    if (const Access shared = translate(whole, other); shared.begin == shared.end) continue;
    mine.rivals.push_back(other);
    state(other).rivals.push_back(id);
  }
  residents.push_back(id);
}

// Of the batch: each has a slice of every vector, and a task may be through with one before it begins the next.
std::int64_t ByteTracker::sequence_of(const Region& region) const {
  return region.begin / std::max<std::int64_t>(1, buffer(region.buffer).bytes / program_.batch);
}

// A task that reads and writes the same bytes is safe only if it finishes with each element before it writes it. That is so where output element i
// needs input element i alone: then both regions are the same bytes in elements of the same size, and of the same sequence.
Verdict ByteTracker::in_place(TaskId id, const Task& task) const {
  for (const Region& w : task.writes) {
    const Buffer& out = buffer(w.buffer);
    if (out.space == Space::Kv) continue;  // an append is nobody's input before it is written
    for (const Region& r : task.reads) {
      const Buffer& in = buffer(r.buffer);
      if (in.storage != out.storage) continue;
      const std::int64_t wb = w.begin + out.offset, we = w.end + out.offset, rb = r.begin + in.offset, re = r.end + in.offset;
      if (wb >= re || rb >= we) continue;
      const Positions wp = positions_of(program_, task, w), rp = positions_of(program_, task, r);
      if (std::max(wp.lo, rp.lo) >= std::min(wp.hi, rp.hi)) continue;
      const bool residual = task.op == Opcode::Gemv && (task.fused & kFusedResidualAdd) != 0 && &r == &task.reads.back();
      const bool element_wise = task.op == Opcode::Add || task.op == Opcode::SiluMul || residual;
      const bool same_elements = wb == rb && we == re && dtype_bytes(out.dtype) == dtype_bytes(in.dtype) && sequence_of(w) == sequence_of(r);
      if (element_wise && same_elements && w.buffer != r.buffer) continue;
      Finding finding;
      finding.rule = w.buffer == r.buffer ? "war" : "page-alias";
      finding.task = id;
      finding.buffer = w.buffer;
      finding.other_buffer = w.buffer == r.buffer ? kNone : r.buffer;
      finding.begin = w.begin;
      finding.end = w.end;
      finding.message = cat(task_name(program_, id), " writes ", out.name, " over bytes of ", in.name, " that it still reads");
      return reject(program_, std::move(finding));
    }
  }
  return {};
}

Verdict ByteTracker::access(TaskId id, Event self, const std::int32_t* clock) {
  const Task& task = program_.tasks[static_cast<std::size_t>(id)];
  const Actor actor{id, self, clock};
  if (Verdict v = in_place(id, task)) return v;
  for (const Region& region : task.reads) {
    if (!is_tracked(buffer(region.buffer))) continue;
    for (const Access& access : accesses_of(program_, task, region))
      if (Verdict v = read(actor, access)) return v;
  }
  for (const Region& region : task.writes)
    for (const Access& access : accesses_of(program_, task, region))
      if (Verdict v = write(actor, access)) return v;
  return {};
}

}  // namespace amk::validation
