// Pieces of memory and what each task touches of them at each step.
#include <algorithm>

#include "tests/support/programs/simulator.h"

namespace amk::testing {

namespace {

constexpr std::int32_t kGarbage = -1;

bool remembered(const Buffer& b) { return b.space != Space::Weight && b.space != Space::Const; }

struct Rows {
  std::int64_t heads = 1, positions = 0, row = 0;
};
Rows rows_of(const Buffer& b) {
  const std::size_t n = b.shape.size();
  Rows out;
  out.row = b.shape[n - 1] * dtype_bytes(b.dtype);
  out.positions = b.shape[n - 2];
  out.heads = b.bytes / (out.positions * out.row);
  return out;
}

bool awake(const Task& t, const Region& r, std::int64_t position) {
  return position >= t.pos_lo && position < t.pos_hi && position >= r.pos_lo && position < r.pos_hi && r.begin < r.end;
}

// Output element i of these needs input element i alone: of the same sequence, whose lists follow one another.
bool element_by_element(const Task& t, std::size_t read_index, std::size_t write_index, std::size_t batch) {
  const std::size_t reader = read_index * batch / t.reads.size(), writer = write_index * batch / t.writes.size();
  if (t.op == Opcode::Add || t.op == Opcode::SiluMul) return reader == writer;
  return t.op == Opcode::Gemv && (t.fused & kFusedResidualAdd) != 0 && read_index + 1 == t.reads.size() && writer + 1 == batch;
}

}  // namespace

Simulator::Simulator(const Program& program, std::int32_t first_position, std::uint32_t first_epoch, int steps)
    : program_(program), first_position_(first_position), first_epoch_(first_epoch), steps_(steps), signals_(program.counters.size(), 0) {
  for (const auto& queue : program.queues)
    for (const TaskId id : queue)
      if (const CounterId c = program.tasks[static_cast<std::size_t>(id)].signal; c != kNone) ++signals_[static_cast<std::size_t>(c)];
  input_replaced_.assign(program.buffers.size(), false);
  for (const Task& t : program.tasks)
    for (const Region& r : t.writes)
      if (std::max({0, t.pos_lo, r.pos_lo}) < std::min({program.max_seq, t.pos_hi, r.pos_hi}))
        input_replaced_[static_cast<std::size_t>(r.buffer)] = true;
  cut();
  std::int32_t next = 0;
  for (const Buffer& b : program.buffers) {
    written_base_.push_back(next);
    if (remembered(b)) next += piece_at(b.storage, b.offset + b.bytes) - piece_at(b.storage, b.offset);
  }
  written_.resize(static_cast<std::size_t>(next));
  instances_.resize(static_cast<std::size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    for (const Task& t : program.tasks) {
      Instance in;
      for (std::size_t r = 0; r < t.reads.size(); ++r) {
        if (!awake(t, t.reads[r], position(step)) || !remembered(buffer(t.reads[r].buffer))) continue;
        in.reads.push_back(touch(t.reads[r], position(step)));
        const Region& reads = t.reads[r];
        const std::int64_t rb = buffer(reads.buffer).offset + reads.begin, re = buffer(reads.buffer).offset + reads.end;
        for (std::size_t to = 0; to < t.writes.size(); ++to) {
          const Region& w = t.writes[to];
          const Buffer& out = buffer(w.buffer);
          if (!awake(t, w, position(step)) || out.storage != buffer(reads.buffer).storage || out.space == Space::Kv) continue;
          const std::int64_t wb = out.offset + w.begin, we = out.offset + w.end;
          const bool same = wb == rb && we == re && dtype_bytes(out.dtype) == dtype_bytes(buffer(reads.buffer).dtype);
          if (wb < re && rb < we && !(same && element_by_element(t, r, to, static_cast<std::size_t>(program.batch)))) in.tears_itself = true;
        }
      }
      for (const Region& w : t.writes)
        if (awake(t, w, position(step))) in.writes.push_back(touch(w, position(step)));
      instances_[static_cast<std::size_t>(step)].push_back(std::move(in));
    }
  }
  add_history();
}

void Simulator::cut() {
  borders_.assign(program_.storages.size(), {});
  for (const Buffer& b : program_.buffers) {
    if (!remembered(b)) continue;
    auto& borders = borders_[static_cast<std::size_t>(b.storage)];
    borders.push_back(b.offset);
    borders.push_back(b.offset + b.bytes);
    if (b.space != Space::Kv) continue;
    const Rows rows = rows_of(b);
    for (std::int64_t h = 0; h < rows.heads; ++h)
      for (std::int64_t p = first_position_; p <= first_position_ + steps_; ++p) borders.push_back(b.offset + (h * rows.positions + p) * rows.row);
    for (std::int64_t h = 1; h < rows.heads; ++h) borders.push_back(b.offset + h * rows.positions * rows.row);
  }
  for (const Task& t : program_.tasks)
    for (const auto* list : {&t.reads, &t.writes})
      for (const Region& r : *list) {
        const Buffer& b = buffer(r.buffer);
        if (!remembered(b)) continue;
        for (std::int32_t s = 0; s < steps_; ++s)
          if (awake(t, r, position(s))) {
            const std::int64_t shift = b.offset + r.pos_stride * position(s);
            borders_[static_cast<std::size_t>(b.storage)].push_back(r.begin + shift);
            borders_[static_cast<std::size_t>(b.storage)].push_back(r.end + shift);
          }
      }
  std::int32_t next = 0;
  for (auto& borders : borders_) {
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    first_piece_.push_back(next);
    next += static_cast<std::int32_t>(borders.size());
  }
  initial_tags_.assign(static_cast<std::size_t>(next), kGarbage);
  row_of_piece_.assign(static_cast<std::size_t>(next), -1);
}

std::int32_t Simulator::piece_at(StorageId storage, std::int64_t byte) const {
  const auto& borders = borders_[static_cast<std::size_t>(storage)];
  const auto at = std::lower_bound(borders.begin(), borders.end(), byte) - borders.begin();
  return first_piece_[static_cast<std::size_t>(storage)] + static_cast<std::int32_t>(at);
}

Simulator::Touch Simulator::touch(const Region& r, std::int32_t at) const {
  const Buffer& b = buffer(r.buffer);
  const std::int64_t shift = b.offset + r.pos_stride * at;
  return {r.buffer, {piece_at(b.storage, r.begin + shift), piece_at(b.storage, r.end + shift)}};
}

// Earlier steps, at positions 0 … first_position - 1: rows they did not append are garbage. Between the borders of guards all positions are alike.
void Simulator::add_history() {
  std::vector<std::int64_t> samples{0, 1, first_position_ - 1};
  for (const Task& t : program_.tasks)
    for (const Region& w : t.writes)
      if (buffer(w.buffer).space == Space::Kv)
        for (const std::int64_t p : {t.pos_lo, t.pos_hi, w.pos_lo, w.pos_hi}) samples.push_back(p), samples.push_back(p - 1);
  std::sort(samples.begin(), samples.end());
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  for (std::size_t id = 0; id < program_.buffers.size(); ++id) {
    const Buffer& b = program_.buffers[id];
    const auto buffer_id = static_cast<BufferId>(id);
    if (b.space == Space::Input) {
      for (std::int32_t i = piece_at(b.storage, b.offset); i < piece_at(b.storage, b.offset + b.bytes); ++i)
        initial_tags_[static_cast<std::size_t>(i)] = host_tag(buffer_id);
    }
    if (b.space != Space::Kv) continue;
    const Rows rows = rows_of(b);
    std::vector<bool> kept(static_cast<std::size_t>(rows.heads), true);
    for (const std::int64_t p : samples) {
      if (p < 0 || p >= first_position_) continue;
      for (std::int64_t h = 0; h < rows.heads; ++h) {
        const std::int64_t row = (h * rows.positions + p) * rows.row;
        std::vector<std::pair<std::int64_t, std::int64_t>> appended;
        for (const Task& t : program_.tasks)
          for (const Region& w : t.writes)
            if (w.buffer == buffer_id && awake(t, w, p)) appended.emplace_back(w.begin + w.pos_stride * p, w.end + w.pos_stride * p);
        std::sort(appended.begin(), appended.end());
        std::int64_t at = row;
        for (const auto& [begin, end] : appended)
          if (begin <= at) at = std::max(at, end);
        if (at < row + rows.row) kept[static_cast<std::size_t>(h)] = false;
      }
    }
    const auto& borders = borders_[static_cast<std::size_t>(b.storage)];
    for (std::int32_t i = piece_at(b.storage, b.offset); i < piece_at(b.storage, b.offset + b.bytes); ++i) {
      const std::int64_t byte = borders[static_cast<std::size_t>(i - first_piece_[static_cast<std::size_t>(b.storage)])] - b.offset;
      const auto p = static_cast<std::int32_t>(byte / rows.row % rows.positions);
      row_of_piece_[static_cast<std::size_t>(i)] = p;
      const auto head = static_cast<std::size_t>(byte / rows.row / rows.positions);
      if (p < first_position_ && kept[head]) initial_tags_[static_cast<std::size_t>(i)] = tag(buffer_id, -1);
    }
  }
}

// The version that the buffer must hold at this step, piece by piece.
bool Simulator::right_version(const Touch& touch, std::int32_t step) const {
  const Buffer& b = buffer(touch.buffer);
  for (std::int32_t i = touch.pieces.first; i < touch.pieces.last; ++i) {
    std::int32_t expected = tag(touch.buffer, step);
    if (b.space == Space::Kv) {
      const std::int32_t p = row_of_piece_[static_cast<std::size_t>(i)];
      if (p > position(step)) continue;  // rows of the future: nobody looks at what is there
      expected = tag(touch.buffer, p < first_position_ ? -1 : p - first_position_);
    } else if (b.space == Space::Input) {
      const bool fed_back = input_replaced_[static_cast<std::size_t>(touch.buffer)] && program_.step_sync == StepSync::Persistent && step > 0;
      expected = fed_back ? tag(touch.buffer, step - 1) : host_tag(touch.buffer);
    }
    if (tags_[static_cast<std::size_t>(i)] != expected) return false;
  }
  return true;
}

}  // namespace amk::testing
