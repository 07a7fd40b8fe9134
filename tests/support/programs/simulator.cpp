#include "tests/support/programs/simulator.h"

#include <algorithm>
#include <numeric>

namespace amk::testing {

namespace {
// More chunks than this behave like this many: each is one more turn of the same wheel.
constexpr std::int64_t kManyChunks = 64;
}  // namespace

std::string Simulator::name(TaskId id, std::int32_t step) const {
  return task_name(program_, id) + " of step " + std::to_string(step) + " (position " + std::to_string(position(step)) + ")";
}

void Simulator::broken(std::string kind, std::string what) {
  if (!breakage_) breakage_ = Breakage{std::move(kind), std::move(what)};
}

std::int64_t Simulator::chunks_of(TaskId id) const {
  const std::int64_t bytes = program_.tasks[static_cast<std::size_t>(id)].ring_bytes;
  return std::min(kManyChunks, (bytes + program_.ring.chunk_bytes - 1) / program_.ring.chunk_bytes);
}

bool Simulator::done(const Sm& sm, std::size_t index) const {
  return sm.step >= steps_ || (program_.queues[index].empty() && program_.step_sync == StepSync::Persistent);
}

bool Simulator::start(const Task& task, const Sm& sm) const {
  for (const Wait& w : task.waits) {
    const auto& counter = program_.counters[static_cast<std::size_t>(w.counter)];
    const std::uint32_t epoch = first_epoch_ + static_cast<std::uint32_t>(sm.step);
    const std::uint32_t threshold = epoch * static_cast<std::uint32_t>(counter.fan_in) + static_cast<std::uint32_t>(w.target);
    if (counters_[static_cast<std::size_t>(w.counter)] < threshold) return false;
  }
  return true;
}

// The producer of one SM fills the ring as far as slots, window and depth let it.
void Simulator::load(std::size_t index) {
  Sm& sm = sms_[index];
  const auto& stream = program_.streams[index];
  const Ring& ring = program_.ring;
  if (stream.empty() || ring.chunk_bytes <= 0 || ring.inflight_chunks < 1) return;
  const std::int64_t capacity = ring.ring_bytes / ring.chunk_bytes;
  while (sm.load_step < (program_.step_sync == StepSync::Launch ? launched_step_ + 1 : steps_)) {
    if (sm.load_at == static_cast<std::int32_t>(stream.size())) {
      sm.load_at = 0;
      ++sm.load_step;
      continue;
    }
    if (static_cast<std::int64_t>(sm.slots.size() - sm.first_slot) >= capacity) return;
    if (sm.load_chunk == 0 && sm.loaded_tasks - sm.finished_ring_tasks > ring.depth) return;
    const TaskId id = stream[static_cast<std::size_t>(sm.load_at)];
    const std::int64_t chunks = chunks_of(id);
    if (chunks > 0) sm.slots.push_back({id, sm.load_step, sm.load_chunk});
    if (++sm.load_chunk >= chunks) {
      sm.load_chunk = 0;
      ++sm.load_at;
      ++sm.loaded_tasks;
    }
  }
}

// The consumer takes chunks as they come: false while it must wait for one.
bool Simulator::take_weights(std::size_t index) {
  Sm& sm = sms_[index];
  const TaskId id = program_.queues[index][static_cast<std::size_t>(sm.at)];
  if (program_.ring.chunk_bytes <= 0) return false;
  while (sm.chunk < chunks_of(id)) {
    load(index);
    if (sm.first_slot == sm.slots.size()) return false;
    const Slot slot = sm.slots[sm.first_slot++];
    if (slot.task != id || slot.step != sm.step || slot.chunk != sm.chunk) {
      broken("wrong-weights", name(id, sm.step) + " finds weights of " + name(slot.task, slot.step) + " at the head of the ring");
      return true;
    }
    ++sm.chunk;
    if (sm.first_slot > 256) {
      sm.slots.erase(sm.slots.begin(), sm.slots.begin() + static_cast<std::ptrdiff_t>(sm.first_slot));
      sm.first_slot = 0;
    }
  }
  return true;
}

void Simulator::read(TaskId id, std::int32_t step) {
  const Instance& in = instances_[static_cast<std::size_t>(step)][static_cast<std::size_t>(id)];
  if (in.tears_itself) broken("wrong-read", name(id, step) + " overwrites what it still reads");
  for (const Touch& touch : in.reads)
    if (!right_version(touch, step))
      broken("wrong-read", name(id, step) + " reads " + buffer(touch.buffer).name + ", which does not hold this step's version");
}

void Simulator::write(TaskId id, std::int32_t step) {
  for (const Touch& touch : instances_[static_cast<std::size_t>(step)][static_cast<std::size_t>(id)].writes) {
    const Buffer& b = buffer(touch.buffer);
    const std::int32_t base = written_base_[static_cast<std::size_t>(touch.buffer)] - piece_at(b.storage, b.offset);
    for (std::int32_t i = touch.pieces.first; i < touch.pieces.last; ++i) {
      std::int32_t& steps = written_[static_cast<std::size_t>(base + i)];
      if ((steps >> step & 1) != 0) broken("double-write", name(id, step) + " writes bytes of " + b.name + " that were written in this step already");
      steps |= 1 << step;
      tags_[static_cast<std::size_t>(i)] = tag(touch.buffer, step);
    }
  }
}

// One phase of the task at the head of an SM's queue; false when it has to wait.
bool Simulator::move(std::size_t index) {
  Sm& sm = sms_[index];
  if (done(sm, index) || (program_.step_sync == StepSync::Launch && sm.step > launched_step_)) return false;
  const auto& queue = program_.queues[index];
  if (queue.empty()) {
    ++sm.step;
    return true;
  }
  const TaskId id = queue[static_cast<std::size_t>(sm.at)];
  const Task& task = program_.tasks[static_cast<std::size_t>(id)];
  if (id == schedule_.held && sm.phase == schedule_.before && sm.step >= held_step_) return false;
  switch (sm.phase) {
    case Phase::Start:
      if (!start(task, sm)) return false;
      sm.phase = Phase::Read;
      return true;
    case Phase::Read:
      read(id, sm.step);
      sm.phase = Phase::Weights;
      return true;
    case Phase::Weights:
      if (task.ring_bytes > 0 && !take_weights(index)) return false;
      sm.chunk = 0;
      sm.phase = Phase::Write;
      return true;
    case Phase::Write:
      write(id, sm.step);
      sm.phase = Phase::Signal;
      return true;
    case Phase::Signal:
      if (task.signal != kNone) ++counters_[static_cast<std::size_t>(task.signal)];
      if (task.ring_bytes > 0) ++sm.finished_ring_tasks;
      sm.phase = Phase::Start;
      if (++sm.at == static_cast<std::int32_t>(queue.size())) {
        sm.at = 0;
        ++sm.step;
      }
      return true;
  }
  return false;
}

void Simulator::finish_step(std::int32_t step) {
  for (std::size_t id = 0; id < program_.buffers.size(); ++id) {
    const Buffer& b = program_.buffers[id];
    if (b.space != Space::Output && b.space != Space::Kv) continue;
    const Touch all{static_cast<BufferId>(id), {piece_at(b.storage, b.offset), piece_at(b.storage, b.offset + b.bytes)}};
    if (!right_version(all, step)) broken("unwritten", b.name + " is not whole after step " + std::to_string(step));
  }
  for (std::size_t id = 0; id < program_.buffers.size(); ++id) {  // the host writes inputs anew before each launch
    const Buffer& b = program_.buffers[id];
    if (b.space != Space::Input || program_.step_sync != StepSync::Launch) continue;
    for (std::int32_t i = piece_at(b.storage, b.offset); i < piece_at(b.storage, b.offset + b.bytes); ++i)
      tags_[static_cast<std::size_t>(i)] = host_tag(static_cast<BufferId>(id));
  }
}

void Simulator::begin(const Schedule& schedule) {
  schedule_ = schedule;
  breakage_.reset();
  tags_ = initial_tags_;
  written_.assign(written_.size(), 0);
  counters_.resize(program_.counters.size());
  for (std::size_t c = 0; c < counters_.size(); ++c) counters_[c] = first_epoch_ * signals_[c];
  sms_.assign(program_.queues.size(), Sm{});
  launched_step_ = 0;
  held_step_ = schedule.held == kNone ? steps_ : 0;
}

bool Simulator::step_over() const {
  return std::all_of(sms_.begin(), sms_.end(), [&](const Sm& sm) { return sm.step > launched_step_; });
}

bool Simulator::all_done() const {
  for (std::size_t i = 0; i < sms_.size(); ++i)
    if (!done(sms_[i], i)) return false;
  return true;
}

std::optional<Breakage> Simulator::run(const Schedule& schedule) {
  begin(schedule);
  const bool launches = program_.step_sync == StepSync::Launch;
  Rng rng(schedule.seed);
  std::vector<std::size_t> order(sms_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (schedule.seed == 1) std::reverse(order.begin(), order.end());
  while (!breakage_) {
    bool moved = false;
    if (schedule.seed > 1)
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    for (const std::size_t sm : order) {
      std::uint64_t burst = schedule.seed > 1 ? 1 + rng.below(9) : ~std::uint64_t{0};
      while (burst-- > 0 && !breakage_ && move(sm)) moved = true;
    }
    if (breakage_) break;
    if (moved) continue;
    if (launches && step_over()) {
      finish_step(launched_step_);
      if (++launched_step_ == steps_) break;
    } else if (all_done()) {
      finish_step(steps_ - 1);
      break;
    } else if (held_step_ < steps_) {
      ++held_step_;
    } else {
      for (std::size_t i = 0; i < sms_.size(); ++i)
        if (!done(sms_[i], i) && !program_.queues[i].empty() && (!launches || sms_[i].step == launched_step_))
          broken("deadlock",
                 name(program_.queues[i][static_cast<std::size_t>(sms_[i].at)], sms_[i].step) + " on SM " + std::to_string(i) + " waits for ever");
      broken("deadlock", "nobody can move");
    }
  }
  return breakage_;
}

}  // namespace amk::testing
