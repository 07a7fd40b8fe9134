#include "core/target/timeline.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "core/program/packing.h"

namespace amk {
namespace {

// What a task costs apart from waiting, from its regions alone.
struct TaskWork {
  double weight_bytes = 0;  // streamed
  double fetch_bytes = 0;   // activations read after the wait
  double kv_bytes = 0;
  bool kv_streams = false;  // they come through the ring
  bool kv_late = false;     // too many to be on their way before the wait, beside a ring that fills
  bool fetches = false;
  double compute_us = 0;
  double slices_us = 0;  // gemv_path slices: at the least, from the first product to the last
};

// What a task of gemv_path slices takes besides its bytes (kernels/megakernel/device/slices.cuh): it is done in groups of as many units at once as a
// warp has registers for, and as a chunk of the ring holds.
double slices_us(const ModelSpec& spec, const Task& task, const MachineRates& rates) {
  constexpr int kBlockColumns = 64, kUnitRows = 8, kHeldBlocks = 4;
  const int blocks = (packed_cols(spec, task.matrix) + kBlockColumns - 1) / kBlockColumns, slice = (blocks + rates.warps - 1) / rates.warps;
  const std::int64_t unit_bytes = std::int64_t{blocks} * kBlockColumns * kUnitRows * 2;
  int at_once = std::clamp(kHeldBlocks / slice, 1, rates.warps);
  if (rates.ring) at_once = std::clamp(static_cast<int>(rates.chunk_bytes / unit_bytes), 1, at_once);
  const int units = (task.row_end - task.row_begin + kUnitRows - 1) / kUnitRows, groups = (units + at_once - 1) / at_once;
  return (groups - 1) * rates.group_us + (slice - 1) * rates.block_us;
}

double region_bytes(const Region& region) { return static_cast<double>(region.end - region.begin); }

TaskWork work_of(const Program& program, const Task& task, const MachineRates& rates, int position) {
  TaskWork work;
  const bool active = position >= task.pos_lo && position < task.pos_hi;
  if (!active) return work;
  const ModelSpec& spec = program.model;
  for (const Region& region : task.reads) {
    if (position < region.pos_lo || position >= region.pos_hi) continue;
    const Buffer& buffer = program.buffers[region.buffer];
    if (buffer.space == Space::Weight) {
      if (buffer.binding.rows_of_matrix()) work.weight_bytes += region_bytes(region);
    } else if (buffer.space == Space::Activation || buffer.space == Space::Output) {
      work.fetch_bytes += region_bytes(region);
      work.fetches = true;
    }
  }
  switch (task.op) {
    case Opcode::Embed:
      work.fetches = true;
      break;  // token, then its row: a dependent pair of loads
    case Opcode::AttentionTile: {
      const std::int64_t block = std::max(1, program.attention.kv_block);
      const std::int64_t first = spec.sliding_window ? std::max<std::int64_t>(0, std::int64_t{position} + 1 - *spec.sliding_window) : 0;
      std::int64_t keys = 0;
      int awake = 0;  // splits of the task that have keys: each is a round of its own
      for (std::int64_t split = task.split; split < std::max(1, task.splits); split += std::max(1, program.attention.split_step)) {
        awake += split * block <= position ? 1 : 0;
        for (std::int64_t at = split * block; at <= position; at += std::int64_t{std::max(1, task.splits)} * block)
          keys += std::max<std::int64_t>(0, std::min<std::int64_t>(at + block, std::int64_t{position} + 1) - std::max(at, first));
      }
      double kv_element = 2;
      for (const Region& region : task.reads)
        if (program.buffers[region.buffer].space == Space::Kv) kv_element = dtype_bytes(program.buffers[region.buffer].dtype);
      work.kv_bytes = 2.0 * static_cast<double>(keys) * spec.head_dim * kv_element;
      // Arithmetic: two FMAs a query head and cache element, on 128 lanes a clock.
      const double fma_us = 2.0 * static_cast<double>(keys) * spec.gqa() * spec.head_dim / (128.0 * rates.clock_mhz);
      work.kv_streams = task.ring_bytes > 0 && rates.ring && static_cast<double>(keys) >= awake * rates.ring_keys;
      work.kv_late = rates.ring && !work.kv_streams && static_cast<double>(keys) >= awake * rates.ring_keys;
      work.compute_us = awake * rates.attention_us + std::max(work.kv_streams ? 0.0 : work.kv_bytes / rates.attention_bytes_per_us, fma_us);
      break;
    }
    case Opcode::RmsNorm:
      work.compute_us = rates.norm_us;
      break;
    case Opcode::Gemv:
      if (task.fused & kFusedNorm) work.compute_us += rates.norm_us;  // of a batch: the sequences' sums are reduced together
      if (rates.group_us > 0) work.slices_us = slices_us(spec, task, rates);
      break;
    default:
      break;
  }
  if (task.op != Opcode::Gemv) {
    double written = 0;
    for (const Region& region : task.writes) written += region_bytes(region);
    work.compute_us += written / rates.l2_sm_bytes_per_us;
  }
  return work;
}

constexpr double kInstantly = 1e12;  // bytes a µs, of what costs the memory nothing

struct ConsumedSpan {
  double begin_byte, end_byte, begin_us, end_us;
};

// One SM: where its stream is, and when its consumers are free.
struct Sm {
  std::size_t head = 0;
  double free_us = 0;
  double landed_us = 0;     // the last issued byte is in shared memory
  double stream_bytes = 0;  // issued so far
  std::vector<double> ring_ends;
  std::deque<ConsumedSpan> consumed;

  // When stream byte `byte` had been consumed, linear within a task. Bytes are asked for in ascending order.
  double consumed_at(double byte) {
    if (byte <= 0) return 0;
    while (consumed.size() > 1 && consumed.front().end_byte < byte) consumed.pop_front();
    if (consumed.empty()) return 0;
    const ConsumedSpan& span = consumed.front();
    if (byte >= span.end_byte) return span.end_us;
    if (byte <= span.begin_byte) return span.begin_us;
    return span.begin_us + (span.end_us - span.begin_us) * (byte - span.begin_byte) / (span.end_byte - span.begin_byte);
  }
};

class Simulation {
 public:
  Simulation(const Program& program, const MachineRates& rates, int position, double kv_from_hbm, bool hops)
      : program_(program), rates_(rates), position_(position), kv_from_hbm_(kv_from_hbm), hops_(hops) {
    for (const Task& task : program.tasks) work_.push_back(work_of(program, task, rates, position));
    std::vector<int> drawing(program.instructions.size(), 0);
    std::vector<std::int32_t> last_sm(program.instructions.size(), kNone);
    for (const auto& queue : program.queues)
      for (TaskId id : queue) {
        const Task& task = program.tasks[id];
        if (work_[id].weight_bytes == 0 || last_sm[task.instruction] == task.sm) continue;
        last_sm[task.instruction] = task.sm;
        ++drawing[task.instruction];
      }
    for (int sms : drawing) rate_.push_back(std::min(rates.sm_bytes_per_us, rates.total_bytes_per_us / std::max(1, sms)));
  }

  Timeline run() {
    Timeline timeline;
    timeline.instruction_end_us.assign(program_.instructions.size(), 0.0);
    sms_.resize(program_.queues.size());
    signals_.assign(program_.counters.size(), 0);
    signalled_us_.assign(program_.counters.size(), 0.0);
    waiting_.assign(program_.counters.size(), {});
    std::vector<std::int32_t> ready;
    for (std::size_t sm = program_.queues.size(); sm-- > 0;) ready.push_back(static_cast<std::int32_t>(sm));
    while (!ready.empty()) {
      const std::int32_t sm = ready.back();
      ready.pop_back();
      Sm& state = sms_[sm];
      while (state.head < program_.queues[sm].size()) {
        const TaskId id = program_.queues[sm][state.head];
        const Task& task = program_.tasks[id];
        double seen_us = 0;
        if (!waits_met(task, sm, seen_us)) break;
        const double end = execute(state, id, seen_us);
        ++state.head;
        timeline.instruction_end_us[task.instruction] = std::max(timeline.instruction_end_us[task.instruction], end);
        timeline.end_us = std::max(timeline.end_us, end);
        if (task.signal == kNone) continue;
        ++signals_[task.signal];
        signalled_us_[task.signal] = std::max(signalled_us_[task.signal], end);
        Waiters& waiters = waiting_[task.signal];
        if (signals_[task.signal] < waiters.lowest_target) continue;
        ready.insert(ready.end(), waiters.sms.begin(), waiters.sms.end());
        waiters = {};
      }
    }
    return timeline;
  }

 private:
  bool waits_met(const Task& task, std::int32_t sm, double& seen_us) {
    for (const Wait& wait : task.waits) {
      if (signals_[wait.counter] < wait.target) {
        Waiters& waiters = waiting_[wait.counter];
        waiters.sms.push_back(sm);
        waiters.lowest_target = std::min(waiters.lowest_target, wait.target);
        return false;
      }
      seen_us = std::max(seen_us, signalled_us_[wait.counter] + (hops_ ? rates_.hop_us : 0.0));
    }
    return true;
  }

  // Ends of a task: it waits for its counters, fetches its input, then consumes weights as they land.
  double execute(Sm& sm, TaskId id, double seen_us) {
    const Task& task = program_.tasks[id];
    const TaskWork& work = work_[id];
    double start = std::max(sm.free_us, seen_us);
    start += (work.fetches && hops_ ? rates_.fetch_us : 0.0) + work.fetch_bytes / rates_.l2_sm_bytes_per_us + rates_.task_us + work.compute_us;
    double end = start;
    if (work.weight_bytes > 0)
      end = task.ring_bytes > 0 && rates_.ring ? consume_ring(sm, work.weight_bytes, rate_[task.instruction], rates_.consume_bytes_per_us, start)
                                               : consume_direct(task, work, start);
    end = std::max(end, start + work.slices_us);
    const double share = std::min(rates_.sm_bytes_per_us, rates_.total_bytes_per_us / static_cast<double>(sms_.size()));
    if (work.kv_streams) {
      end = consume_ring(sm, work.kv_bytes, kv_from_hbm_ > 0 ? share / kv_from_hbm_ : kInstantly, rates_.ring_attention_bytes_per_us, start);
    } else if (work.kv_bytes > 0) {
      // K and V share the memory with the weight stream. What is loaded behind the wait cannot have come while the ring was full.
      const double kv_us = work.kv_bytes * kv_from_hbm_ / share;
      if (work.kv_late) {
        const double begun = start - work.compute_us, late_us = kv_us / rates_.late_kv_share;
        end = std::max(end, begun + late_us);
        sm.landed_us = std::max(sm.landed_us, begun) + late_us;
      } else {
        sm.landed_us = std::max(sm.landed_us, start - kv_us) + kv_us;
      }
    }
    sm.free_us = end;
    return end;
  }

  double consume_direct(const Task& task, const TaskWork& work, double start) {
    const double us = work.weight_bytes / std::min(rate_[task.instruction], rates_.consume_bytes_per_us);
    return start + us;
  }

  // `rate`: at which they land; `consume`: at which they are eaten once they have.
  double consume_ring(Sm& sm, double bytes, double rate, double consume, double start) {
    const double ring = static_cast<double>(rates_.ring_bytes);
    const double last_chunk = std::min(bytes, static_cast<double>(rates_.chunk_bytes));
    const double first = sm.stream_bytes;
    // The producer may be at most `depth` task boundaries ahead of the consumers.
    const std::size_t depth = static_cast<std::size_t>(std::max(0, program_.ring.depth));
    double issue = sm.landed_us;
    if (sm.ring_ends.size() > depth) issue = std::max(issue, sm.ring_ends[sm.ring_ends.size() - depth - 1]);
    const double ahead = std::min(bytes, ring);  // what can land before the task consumes anything
    double landed = std::max(issue + ahead / rate, sm.consumed_at(first - ring) + ahead / rate);
    landed = std::max(landed, sm.consumed_at(first + ahead - ring) + last_chunk / rate);
    double end = std::max(start + bytes / consume, landed + last_chunk / consume);
    if (bytes > ring) {  // what did not fit lands while the task consumes
      landed = std::max(start, landed) + (bytes - ahead) / rate;
      end = std::max(end, landed + last_chunk / consume);
    }
    sm.consumed.push_back({first, first + bytes, std::min(start, end), end});
    sm.stream_bytes += bytes;
    sm.landed_us = landed;
    sm.ring_ends.push_back(end);
    return end;
  }

  const Program& program_;
  const MachineRates& rates_;
  const int position_;
  const double kv_from_hbm_;
  const bool hops_;
  std::vector<TaskWork> work_;
  std::vector<double> rate_;  // [instruction]: what one of its SMs draws
  std::vector<Sm> sms_;
  std::vector<std::int32_t> signals_;
  std::vector<double> signalled_us_;
  // Woken together once the lowest of their targets is met: waking at every signal would cost SMs² per instruction.
  struct Waiters {
    std::vector<std::int32_t> sms;
    std::int32_t lowest_target = std::numeric_limits<std::int32_t>::max();
  };
  std::vector<Waiters> waiting_;
};

}  // namespace

Timeline simulate(const Program& program, const MachineRates& rates, int position, double kv_from_hbm, bool hops) {
  return Simulation(program, rates, position, kv_from_hbm, hops).run();
}

}  // namespace amk
