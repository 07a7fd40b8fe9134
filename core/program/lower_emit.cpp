#include "core/program/lower_emit.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/program/packing.h"

namespace amk::lowering {
namespace {

// Calls part(begin, end) for the natural rows that packed rows [begin, end) of a run of heads hold: whole heads as one interval, a partly
// covered head as its first halves and their partners.
template <class Part>
void head_slices(std::int32_t begin, std::int32_t end, std::int32_t head_dim, Part part) {
  while (begin < end) {
    const std::int32_t in_head = begin % head_dim;
    if (in_head == 0 && end - begin >= head_dim) {
      const std::int32_t whole = begin + (end - begin) / head_dim * head_dim;
      part(begin, whole);
      begin = whole;
      continue;
    }
    const std::int32_t head = begin - in_head;
    const std::int32_t stop = std::min(end, head + head_dim);
    const std::int32_t low = head + in_head / kRowUnit * kPairsPerUnit;
    const std::int32_t high = head + (stop - head) / kRowUnit * kPairsPerUnit;
    part(low, high);
    part(low + head_dim / 2, high + head_dim / 2);
    begin = stop;
  }
}

class Emitter {
 public:
  Emitter(const ModelSpec& spec, const Plan& plan, Program& program) : spec_(spec), plan_(plan), program_(program) {}

  void regions(const PlannedInstruction& in, const Run& run, Task& t) {
    if (in.info.op == Opcode::AttentionTile) return attention(in, run.row_begin, t);
    if (in.info.op == Opcode::Argmax) return argmax(in, run.row_begin, t);
    if (in.info.op == Opcode::AttentionO) {  // its rows are counted within the head
      t.head = run.row_begin / spec_.hidden;
      t.row_begin -= t.head * spec_.hidden;
      t.row_end -= t.head * spec_.hidden;
    }
    if (in.partial != kNone) t.partial = next_partial_++;
    for (seq_ = 0; seq_ < program_.batch; ++seq_) sequence(in, run, t);
  }

 private:
  // What the task touches of sequence `seq_`; with the first one also what all share.
  void sequence(const PlannedInstruction& in, const Run& run, Task& t) {
    const std::int32_t r0 = run.row_begin;
    const std::int32_t r1 = run.row_end;
    switch (in.info.op) {
      case Opcode::Embed:
        elements(t.reads, in.input, 0, 1);
        shared(t.reads, in.weight);
        elements(t.writes, in.output, r0, r1);
        break;
      case Opcode::RmsNorm:
        elements(t.reads, in.input, 0, spec_.hidden);
        shared(t.reads, in.norm_weight, r0, r1);
        elements(t.writes, in.output, r0, r1);
        break;
      case Opcode::Gemv:
        gemv(in, r0, r1, t);
        break;
      case Opcode::Rope:
        rope(in, r0, r1, t);
        break;
      case Opcode::KvAppend:
        kv_append(in, r0, r1, t);
        break;
      case Opcode::AttentionCombine: {
        partials(t.reads, in.input, r0, r1);
        const std::int32_t rows = spec_.gqa() * spec_.head_dim;
        elements(t.writes, in.output, r0 * rows, r1 * rows);
        break;
      }
      case Opcode::SiluMul:
        elements(t.reads, in.input, r0, r1);
        elements(t.reads, in.input, spec_.intermediate + r0, spec_.intermediate + r1);
        elements(t.writes, in.output, r0, r1);
        break;
      case Opcode::Add:
        elements(t.reads, in.residual, r0, r1);
        elements(t.reads, in.input, r0, r1);
        elements(t.writes, in.output, r0, r1);
        break;
      case Opcode::ArgmaxPartial:
        elements(t.reads, in.input, r0, r1);
        argmax_partial(in, t);
        break;
      case Opcode::AttentionO:
        attention_o(in, t);
        break;
      case Opcode::AttentionTile:
      case Opcode::Argmax:
        break;  // of one sequence: regions()
    }
  }

  std::int64_t element_bytes(BufferId b) const { return dtype_bytes(program_.buffers[static_cast<std::size_t>(b)].dtype); }
  // Bytes of a sequence's slice, and where that of `seq_` begins.
  std::int64_t slice_bytes(BufferId b) const { return program_.buffers[static_cast<std::size_t>(b)].bytes / program_.batch; }
  std::int64_t slice(BufferId b) const { return seq_ * slice_bytes(b); }
  // Vectors of `n` elements in a sequence's slice: of a residual that AttentionO writes one a kv head, which are to be added up.
  std::int64_t vectors(BufferId b, std::int64_t n) const { return slice_bytes(b) / element_bytes(b) / n; }
  void shared(std::vector<Region>& list, BufferId b) const {
    if (seq_ == 0) list.push_back({b, 0, program_.buffers[static_cast<std::size_t>(b)].bytes});
  }
  void shared(std::vector<Region>& list, BufferId b, std::int64_t begin, std::int64_t end) const {
    const std::int64_t bytes = element_bytes(b);
    if (seq_ == 0) list.push_back({b, begin * bytes, end * bytes});
  }
  // Of the sequence's slice.
  void elements(std::vector<Region>& list, BufferId b, std::int64_t begin, std::int64_t end) const {
    const std::int64_t bytes = element_bytes(b);
    list.push_back({b, slice(b) + begin * bytes, slice(b) + end * bytes});
  }
  // First launch position at which split s has a block with keys; before it the split touches nothing.
  std::int32_t active_from(std::int32_t split) const { return split * plan_.attention.kv_block; }

  // Partials of kv heads [h0, h1), one region per split.
  void partials(std::vector<Region>& list, BufferId b, std::int32_t h0, std::int32_t h1) const {
    const std::int64_t record = partial_bytes(spec_);
    for (std::int32_t s = 0; s < plan_.attention.splits; ++s) {
      const std::int64_t base = std::int64_t{s} * spec_.kv_heads;
      list.push_back({b, slice(b) + (base + h0) * record, slice(b) + (base + h1) * record, 0, active_from(s)});
    }
  }

  // Rows [e0, e1) (natural rows of all kv heads) of the cache at the launch position, head by head.
  void cache_rows(std::vector<Region>& list, BufferId cache, std::int32_t e0, std::int32_t e1) const {
    const std::int64_t bytes = element_bytes(cache);
    const std::int64_t stride = spec_.head_dim * bytes;
    while (e0 < e1) {
      const std::int32_t head = e0 / spec_.head_dim;
      const std::int32_t stop = std::min(e1, (head + 1) * spec_.head_dim);
      const std::int64_t row = slice(cache) + std::int64_t{head} * program_.max_seq * stride;
      list.push_back({cache, row + (e0 - head * spec_.head_dim) * bytes, row + (stop - head * spec_.head_dim) * bytes, stride});
      e0 = stop;
    }
  }

  void argmax_partial(const PlannedInstruction& in, Task& t) const {
    elements(t.writes, in.partial, std::int64_t{t.partial} * kArgmaxWords, std::int64_t{t.partial + 1} * kArgmaxWords);
  }

  void gemv(const PlannedInstruction& in, std::int32_t r0, std::int32_t r1, Task& t) {
    const std::uint32_t fused = in.info.fused;
    const std::int64_t cols = packed_cols(spec_, in.info.matrix);
    if (fused & kFusedCombine)
      partials(t.reads, in.input, 0, spec_.kv_heads);
    else
      elements(t.reads, in.input, 0, cols * vectors(in.input, cols));
    if (fused & kFusedNorm) shared(t.reads, in.norm_weight);
    shared(t.reads, in.weight, r0 * cols, r1 * cols);
    if (in.scale != kNone) shared(t.reads, in.scale, r0, r1);
    if (in.bias != kNone) shared(t.reads, in.bias, r0, r1);
    if (fused & kFusedRopeAppend) {
      if (in.q_norm != kNone) shared(t.reads, in.q_norm);
      if (in.k_norm != kNone) shared(t.reads, in.k_norm);
      shared(t.reads, in.rope);
    }
    if (fused & kFusedResidualAdd)
      for (std::int64_t v = 0; v < vectors(in.residual, spec_.hidden); ++v)
        elements(t.reads, in.residual, v * spec_.hidden + r0, v * spec_.hidden + r1);
    if (program_.ring.ring_bytes > 0) t.ring_bytes = (r1 - r0) * cols * element_bytes(in.weight);

    switch (in.info.matrix) {
      case Matrix::Qkv:
        qkv_outputs(in, r0, r1, t);
        break;
      case Matrix::GateUp: {
        const std::int32_t e0 = r0 / kRowUnit * kPairsPerUnit;
        const std::int32_t e1 = r1 / kRowUnit * kPairsPerUnit;
        elements(t.writes, in.output, e0, e1);
        if (!(fused & kFusedSiluMul)) elements(t.writes, in.output, spec_.intermediate + e0, spec_.intermediate + e1);
        break;
      }
      default:
        elements(t.writes, in.output, r0, r1);
    }
    if (fused & kFusedArgmax) argmax_partial(in, t);
  }

  void qkv_outputs(const PlannedInstruction& in, std::int32_t r0, std::int32_t r1, Task& t) const {
    const bool append = in.info.fused & kFusedRopeAppend;
    const std::int32_t q = spec_.q_rows();
    const std::int32_t kv = spec_.kv_rows();
    head_slices(r0, std::min(r1, q), spec_.head_dim, [&](std::int32_t e0, std::int32_t e1) { elements(t.writes, in.output, e0, e1); });
    head_slices(std::max(r0, q) - q, std::min(r1, q + kv) - q, spec_.head_dim, [&](std::int32_t e0, std::int32_t e1) {
      if (append)
        cache_rows(t.writes, in.k_cache, e0, e1);
      else
        elements(t.writes, in.output, q + e0, q + e1);
    });
    const std::int32_t v0 = std::max(r0, q + kv);
    if (v0 >= r1) return;
    if (append)
      cache_rows(t.writes, in.v_cache, v0 - q - kv, r1 - q - kv);
    else
      elements(t.writes, in.output, v0, r1);
  }

  void rope(const PlannedInstruction& in, std::int32_t h0, std::int32_t h1, Task& t) const {
    const std::int32_t hd = spec_.head_dim;
    const std::int32_t q_end = std::min(h1, spec_.heads);
    const std::int32_t k_begin = std::max(h0, spec_.heads);
    // q heads and k heads are neighbours in qkv as they are in the numbering of heads.
    if (h0 < q_end) elements(t.reads, in.input, h0 * hd, q_end * hd);
    if (k_begin < h1) elements(t.reads, in.input, k_begin * hd, h1 * hd);
    if (in.q_norm != kNone) shared(t.reads, in.q_norm);
    if (in.k_norm != kNone) shared(t.reads, in.k_norm);
    shared(t.reads, in.rope);
    if (h0 < q_end) elements(t.writes, in.output, h0 * hd, q_end * hd);
    if (k_begin < h1) elements(t.writes, in.k_output, (k_begin - spec_.heads) * hd, (h1 - spec_.heads) * hd);
  }

  void kv_append(const PlannedInstruction& in, std::int32_t h0, std::int32_t h1, Task& t) const {
    const std::int32_t hd = spec_.head_dim;
    const std::int32_t v_base = spec_.q_rows() + spec_.kv_rows();
    elements(t.reads, in.input, h0 * hd, h1 * hd);
    elements(t.reads, in.second_input, v_base + h0 * hd, v_base + h1 * hd);
    cache_rows(t.writes, in.k_cache, h0 * hd, h1 * hd);
    cache_rows(t.writes, in.v_cache, h0 * hd, h1 * hd);
  }

  void attention(const PlannedInstruction& in, std::int32_t tile, Task& t) {
    t.head = tile % spec_.kv_heads;
    seq_ = t.seq = tile / spec_.kv_heads % program_.batch;
    t.split = tile / spec_.kv_heads / program_.batch;
    t.splits = plan_.attention.splits;
    t.row_begin = t.row_end = 0;
    t.pos_lo = active_from(t.split);
    t.reads.reserve(3);
    const std::int64_t q_rows = std::int64_t{spec_.gqa()} * spec_.head_dim;
    const std::int64_t cache_rows = std::int64_t{program_.max_seq} * spec_.head_dim;
    elements(t.reads, in.input, t.head * q_rows, (t.head + 1) * q_rows);
    elements(t.reads, in.k_cache, t.head * cache_rows, (t.head + 1) * cache_rows);
    elements(t.reads, in.v_cache, t.head * cache_rows, (t.head + 1) * cache_rows);
    for (Region& region : t.reads) region.pos_lo = t.pos_lo;
    if (plan_.cache_in_ring) t.ring_bytes = cache_bytes(program_, t);
    if (t.splits == 1) {
      elements(t.writes, in.output, t.head * q_rows, (t.head + 1) * q_rows);
      return;
    }
    const std::int64_t record = partial_bytes(spec_);
    for (std::int32_t s = t.split; s < t.splits; s += plan_.attention.split_step) {
      const std::int64_t at = slice(in.output) + (std::int64_t{s} * spec_.kv_heads + t.head) * record;
      t.writes.push_back({in.output, at, at + record, 0, active_from(s)});
    }
  }

  void attention_o(const PlannedInstruction& in, Task& t) {
    const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim, cols = packed_cols(spec_, Matrix::O);
    const std::int64_t cache = std::int64_t{program_.max_seq} * spec_.head_dim;
    elements(t.reads, in.input, t.head * group, (t.head + 1) * group);
    elements(t.reads, in.k_cache, t.head * cache, (t.head + 1) * cache);
    elements(t.reads, in.v_cache, t.head * cache, (t.head + 1) * cache);
    for (std::int64_t r = t.row_begin; r < t.row_end; ++r) shared(t.reads, in.weight, r * cols + t.head * group, r * cols + (t.head + 1) * group);
    if (t.head == 0) {
      if (in.bias != kNone) shared(t.reads, in.bias, t.row_begin, t.row_end);
      elements(t.reads, in.residual, t.row_begin, t.row_end);
    }
    const std::int64_t sum = std::int64_t{t.head} * spec_.hidden;
    elements(t.writes, in.output, sum + t.row_begin, sum + t.row_end);
  }

  void argmax(const PlannedInstruction& in, std::int32_t seq, Task& t) {
    seq_ = t.seq = seq;
    const std::vector<std::int64_t>& shape = program_.buffers[static_cast<std::size_t>(in.input)].shape;
    t.row_begin = 0;
    t.row_end = static_cast<std::int32_t>(shape[shape.size() - 2]);
    elements(t.reads, in.input, 0, std::int64_t{t.row_end} * kArgmaxWords);
    elements(t.writes, in.output, 0, 1);
  }

  const ModelSpec& spec_;
  const Plan& plan_;
  Program& program_;
  std::int32_t next_partial_ = 0;
  std::int32_t seq_ = 0;  // whose regions are being made
};

// kv heads [first, last) that a task of an instruction with per-head waits covers.
std::pair<std::int32_t, std::int32_t> heads_of(const ModelSpec& spec, const Instruction& info, const Run& run) {
  const std::int32_t first = head_of_row(spec, info, run.row_begin);
  return {first, info.op == Opcode::AttentionTile || info.op == Opcode::AttentionO ? first + 1 : head_of_row(spec, info, run.row_end - 1) + 1};
}

}  // namespace

void emit_tasks(const ModelSpec& spec, const Plan& plan, const std::vector<std::vector<Run>>& runs, Program& program) {
  std::vector<CounterId> first_counter(plan.instructions.size(), kNone);
  std::size_t task_count = 0;
  for (std::size_t i = 0; i < plan.instructions.size(); ++i) {
    const PlannedInstruction& in = plan.instructions[i];
    program.instructions.push_back(in.info);
    task_count += runs[i].size();
    if (!in.signals) continue;
    first_counter[i] = static_cast<CounterId>(program.counters.size());
    if (!in.grouped) {
      program.counters.push_back({in.info.name, static_cast<std::int32_t>(runs[i].size())});
      continue;
    }
    for (int h = 0; h < spec.kv_heads; ++h) program.counters.push_back({in.info.name + ".h" + std::to_string(h), 0});
    for (const Run& run : runs[i]) ++program.counters[static_cast<std::size_t>(first_counter[i] + run.group)].fan_in;
  }

  program.tasks.reserve(task_count);
  program.queues.assign(static_cast<std::size_t>(program.sm_count), {});
  program.streams.assign(static_cast<std::size_t>(program.sm_count), {});
  Emitter emitter(spec, plan, program);
  for (std::size_t i = 0; i < plan.instructions.size(); ++i) {
    const PlannedInstruction& in = plan.instructions[i];
    for (const Run& run : runs[i]) {
      const auto id = static_cast<TaskId>(program.tasks.size());
      Task& t = program.tasks.emplace_back();
      t.op = in.info.op;
      t.layer = in.info.layer;
      t.instruction = static_cast<InstructionId>(i);
      t.matrix = in.info.matrix;
      t.fused = in.info.fused;
      t.row_begin = run.row_begin;
      t.row_end = run.row_end;
      t.sm = run.sm;
      emitter.regions(in, run, t);
      auto& queue = program.queues[static_cast<std::size_t>(run.sm)];
      for (const Dependency& d : in.waits) {
        const bool grouped = plan.instructions[static_cast<std::size_t>(d.from)].grouped;
        const auto [first, last] = !grouped ? std::pair{0, 1} : d.per_head ? heads_of(spec, in.info, run) : std::pair{0, std::int32_t{spec.kv_heads}};
        for (std::int32_t g = first; g < last; ++g) {
          const CounterId counter = first_counter[static_cast<std::size_t>(d.from)] + g;
          t.waits.push_back({counter, program.counters[static_cast<std::size_t>(counter)].fan_in});
        }
      }
      if (in.signals) t.signal = first_counter[i] + run.group;
      t.queue_pos = static_cast<std::int32_t>(queue.size());
      queue.push_back(id);
      if (t.ring_bytes > 0) program.streams[static_cast<std::size_t>(run.sm)].push_back(id);
    }
  }
}

// Steps of one launch: what an SM does first in a step waits until the step before is over everywhere, which its argmax says (everything else comes
// before it). A target of 0 is that edge. Where caches alone travel without their readers' knowing (flagged data carries itself) and an SM that
// appends has no LM head rows by which the argmax knows of it, the appends are waited for as well.
void order_steps(const ScheduleConfig& config, Program& program) {
  if (program.step_sync != StepSync::Persistent) return;
  std::vector<Wait> over = {{program.tasks.back().signal, 0}};
  if (config.kernel.publish == Publish::Flagged) {
    const auto appends = [&](TaskId id) {
      const std::vector<Region>& writes = program.tasks[static_cast<std::size_t>(id)].writes;
      return std::any_of(writes.begin(), writes.end(),
                         [&](const Region& r) { return program.buffers[static_cast<std::size_t>(r.buffer)].space == Space::Kv; });
    };
    std::set<CounterId> appended;
    for (const auto& queue : program.queues) {
      if (std::any_of(queue.begin(), queue.end(), [&](TaskId id) { return program.tasks[static_cast<std::size_t>(id)].matrix == Matrix::LmHead; }))
        continue;
      for (const TaskId id : queue)
        if (appends(id)) appended.insert(program.tasks[static_cast<std::size_t>(id)].signal);
    }
    for (const CounterId c : appended) over.push_back({c, 0});
  }
  for (const auto& queue : program.queues) {
    if (queue.empty()) continue;
    std::vector<Wait>& waits = program.tasks[static_cast<std::size_t>(queue.front())].waits;
    waits.insert(waits.begin(), over.begin(), over.end());
  }
}

}  // namespace amk::lowering
