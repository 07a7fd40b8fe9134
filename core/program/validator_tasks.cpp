#include <string_view>

#include "core/program/validator_access.h"
#include "core/program/validator_structure.h"

namespace amk::validation {

namespace {

class TaskChecker {
 public:
  explicit TaskChecker(const Program& program) : p_(program) {}

  Verdict run() {
    for (std::size_t i = 0; i < p_.tasks.size(); ++i)
      if (Verdict v = check(static_cast<TaskId>(i))) return v;
    return check_queues();
  }

 private:
  Verdict found(std::string_view rule, TaskId task, std::string message, const Region* region = nullptr) const {
    Finding finding;
    finding.rule = rule;
    finding.task = task;
    finding.message = std::move(message);
    if (region != nullptr) {
      finding.buffer = region->buffer;
      finding.begin = region->begin;
      finding.end = region->end;
    }
    return reject(p_, std::move(finding));
  }
  Verdict malformed(TaskId task, std::string_view what) const { return found("malformed", task, cat(task_name(p_, task), ": ", what)); }

  Verdict check(TaskId id) const {
    const Task& t = p_.tasks[static_cast<std::size_t>(id)];
    if (t.op > Opcode::AttentionO) return malformed(id, "unknown opcode");
    if (t.matrix > Matrix::LmHead) return malformed(id, "unknown matrix");
    if (t.instruction < 0 || static_cast<std::size_t>(t.instruction) >= p_.instructions.size())
      return malformed(id, cat("instruction ", t.instruction, " of ", p_.instructions.size()));
    if (t.sm < 0 || t.sm >= p_.sm_count) return malformed(id, cat("SM ", t.sm, " of ", p_.sm_count));
    const std::vector<TaskId>& queue = p_.queues[static_cast<std::size_t>(t.sm)];
    if (t.queue_pos < 0 || static_cast<std::size_t>(t.queue_pos) >= queue.size() || queue[static_cast<std::size_t>(t.queue_pos)] != id)
      return malformed(id, cat("it says queue position ", t.queue_pos, " of SM ", t.sm, ", but is not there"));
    if (t.pos_lo < 0 || t.pos_hi < t.pos_lo) return malformed(id, cat("positions [", t.pos_lo, ",", t.pos_hi, ") are not an interval"));
    if (t.signal != kNone && (t.signal < 0 || static_cast<std::size_t>(t.signal) >= p_.counters.size()))
      return malformed(id, cat("signals counter ", t.signal, " of ", p_.counters.size()));
    if (t.ring_bytes < 0) return malformed(id, cat("ring_bytes is ", t.ring_bytes));
    for (const Wait& wait : t.waits)
      if (wait.counter < 0 || static_cast<std::size_t>(wait.counter) >= p_.counters.size())
        return malformed(id, cat("waits for counter ", wait.counter, " of ", p_.counters.size()));
    for (const Region& region : t.reads)
      if (Verdict v = check_region(id, t, region, "reads")) return v;
    for (const Region& region : t.writes) {
      if (Verdict v = check_region(id, t, region, "writes")) return v;
      if (Verdict v = check_written_space(id, region)) return v;
    }
    return {};
  }

  Verdict check_written_space(TaskId id, const Region& region) const {
    const Buffer& b = p_.buffers[static_cast<std::size_t>(region.buffer)];
    const bool input_between_steps = b.space == Space::Input && p_.step_sync == StepSync::Persistent;
    if (b.space == Space::Activation || b.space == Space::Kv || b.space == Space::Output || input_between_steps) return {};
    return found("malformed", id, cat(task_name(p_, id), " writes ", b.name, ", which is read-only (", to_string(b.space), ")"), &region);
  }

  // Text only for a region that is refused: there are many regions, and few refusals.
  std::string what(TaskId id, const Region& r, std::string_view verb) const {
    return cat(task_name(p_, id), " ", verb, " bytes [", r.begin, ",", r.end, ") of ", p_.buffers[static_cast<std::size_t>(r.buffer)].name);
  }

  Verdict check_region(TaskId id, const Task& t, const Region& r, std::string_view verb) const {
    if (r.buffer < 0 || static_cast<std::size_t>(r.buffer) >= p_.buffers.size())
      return malformed(id, cat(verb, " buffer ", r.buffer, " of ", p_.buffers.size()));
    const Buffer& b = p_.buffers[static_cast<std::size_t>(r.buffer)];
    if (r.pos_lo < 0 || r.pos_hi < r.pos_lo)
      return found("malformed", id, cat(what(id, r, verb), ": positions [", r.pos_lo, ",", r.pos_hi, ") are not an interval"));
    if (r.begin < 0 || r.end <= r.begin || r.end > b.bytes)
      return found("out-of-range", id, cat(what(id, r, verb), ", which is not a non-empty part of its ", b.bytes, " bytes"), &r);
    const std::int64_t element = dtype_bytes(b.dtype);
    if (r.begin % element != 0 || r.end % element != 0 || r.pos_stride % element != 0)
      return found("misaligned", id, cat(what(id, r, verb), ", which are not whole elements of ", element, " bytes"), &r);
    return b.space == Space::Kv ? check_kv_region(id, b, r, verb) : check_strided_region(id, t, b, r, verb);
  }

  // Only tables that nobody writes may be indexed by the position: for anything else the tracker would have to know every position apart.
  Verdict check_strided_region(TaskId id, const Task& t, const Buffer& b, const Region& r, std::string_view verb) const {
    if (r.pos_stride == 0) return {};
    if (is_tracked(b)) return found("length", id, cat(what(id, r, verb), " moving with the position; only KV rows and constant tables may"), &r);
    const Positions when = positions_of(p_, t, r);
    if (when.empty()) return {};
    const std::int64_t last = when.hi - 1;
    if (r.pos_stride < 0 || (last > 0 && r.pos_stride > (b.bytes - r.end) / last))
      return found("out-of-range", id, cat(what(id, r, verb), " at position 0, and leaves the buffer before position ", when.hi), &r);
    return {};
  }

  Verdict check_kv_region(TaskId id, const Buffer& b, const Region& r, std::string_view verb) const {
    const KvShape shape = kv_shape(b);
    if (r.pos_stride == 0) {
      if (verb == "reads") return {};
      return found(
          "length", id,
          cat(what(id, r, verb), " at every position; an append writes the row of the launch position only (pos_stride ", shape.row_bytes, ")"), &r);
    }
    if (r.pos_stride != shape.row_bytes)
      return found(
          "length", id,
          cat(what(id, r, verb), " with pos_stride ", r.pos_stride, "; a row has ", shape.row_bytes, " bytes, so this meets other positions' rows"),
          &r);
    if (const std::int64_t column = r.begin % shape.head_bytes(); column >= shape.row_bytes || column + (r.end - r.begin) > shape.row_bytes)
      return found("length", id,
                   cat(what(id, r, verb), " at position 0, which is not inside row 0 of one head: other positions' rows would be touched"), &r);
    return {};
  }

  // Every task sits in exactly one place of one queue: check() matched tasks to places, the count shows that no place is left over.
  Verdict check_queues() const {
    std::size_t places = 0;
    for (std::size_t sm = 0; sm < p_.queues.size(); ++sm) {
      places += p_.queues[sm].size();
      for (std::size_t i = 0; i < p_.queues[sm].size(); ++i) {
        const TaskId id = p_.queues[sm][i];
        if (id >= 0 && static_cast<std::size_t>(id) < p_.tasks.size()) continue;
        Finding finding;
        finding.rule = "malformed";
        finding.message = cat("queue position ", i, " of SM ", sm, " names task ", id, " of ", p_.tasks.size());
        return reject(p_, std::move(finding));
      }
    }
    if (places == p_.tasks.size()) return {};
    Finding finding;
    finding.rule = "malformed";
    finding.message = cat("the queues have ", places, " places for ", p_.tasks.size(), " tasks; each task must have exactly one");
    return reject(p_, std::move(finding));
  }

  const Program& p_;
};

}  // namespace

Verdict check_tasks(const Program& program) { return TaskChecker(program).run(); }

}  // namespace amk::validation
