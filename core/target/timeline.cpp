#include "core/target/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>

#include "core/program/packing.h"

namespace amk {
namespace {

constexpr std::int64_t kTileKeys = 16;  // of the cache, that a warp takes at a time
constexpr double kFirstRounds = 2;      // attention_o: tiles a warp that take no longer than one
constexpr double kBurst = 0.4;          // of a copy's time at an SM's share, where all have been waiting to begin
constexpr double kSoonUs = 2;           // a wait below which nobody is far behind
constexpr double kDirectGroup = 0.5;    // of what a further group of units takes: its weights are on their way while the one before ends
constexpr double kDirectGroups = 1.4;   // of a warp without a ring, on the way: the next one, and what has come of the one at hand
constexpr double kDirectLag = 0.5;      // of the lag, where each warp asks for its own
constexpr double kUnpacking = 0.25;     // of a trip, where the look brought the data

// What a task costs apart from waiting, from its regions alone.
struct TaskWork {
  double weight_bytes = 0;  // streamed
  double fetch_bytes = 0;   // activations read after the wait
  double kv_bytes = 0;
  bool kv_streams = false;  // they come through the ring
  bool kv_late = false;     // too many to be on their way before the wait, beside a ring that fills
  double kv_asked = 0;      // of kv_bytes, what warps ask for before the wait
  bool fetches = false;
  bool looked_for = false;  // by its readers at once: the look that finds it brings it
  double compute_us = 0;    // what it takes besides its products, from its input's being there …
  double publish_us = 0;    // … and of its publish, besides what every one takes
  double products_us = 0;   // of the weights, once they are there …
  double last_us = 0;       // … and of the last of them
  double slices_us = 0;     // gemv_path slices: at the least, from the first product to the last
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
  return (groups - 1) * rates.group_us * (rates.ring ? 1.0 : kDirectGroup) + (slice - 1) * rates.block_us;
}

// How a matrix' rows are cut into segments, one of which a warp multiplies at a time (kernels/megakernel/device_shapes.cpp, choose_group and
// shape_of).
class Segments {
 public:
  Segments(const ModelSpec& spec, const MachineRates& rates) : rates_(rates) {
    element_ = spec.weight_format == WeightFormat::Int8 ? 1 : dtype_bytes(spec.dtype);
    group_ = (rates.warps <= 8 ? 4 : rates.warps <= 16 ? 2 : 1) * (element_ == 1 ? 2 : 1);
    const auto fits = [&] {
      for (const int columns : {spec.hidden, spec.q_rows(), spec.intermediate})
        if (blocks_of(columns) % group_ != 0) return false;
      return group_ * kBlockColumns <= rates_.columns && (!rates_.ring || group_ * block_bytes() <= rates_.chunk_bytes);
    };
    while (group_ > 1 && !fits()) --group_;
    for (const Matrix matrix : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down, Matrix::LmHead}) {
      const int blocks = blocks_of(packed_cols(spec, matrix));
      int segment = group_;
      for (int d = group_; d <= blocks; d += group_)
        if (blocks % d == 0 && d * kBlockColumns <= rates.columns && (!rates.ring || d * block_bytes() <= rates.chunk_bytes)) segment = d;
      const double bytes = static_cast<double>(segment * block_bytes()), turns = segment / group_ - 1;
      cut_[static_cast<std::size_t>(matrix)] = {
          blocks / segment, bytes / rates.warp_bytes_per_us + bytes * rates.fma_us_per_byte + rates.step_us + turns * rates.turn_us,
          bytes / rates.lone_warp_bytes_per_us + rates.step_us + turns * rates.last_turn_us};
    }
  }
  // From a task's first product to its last, all weights being there.
  double consume_us(const Task& task) const {
    const Cut& cut = cut_[static_cast<std::size_t>(task.matrix)];
    const int rows = task.row_end - task.row_begin, units = rates_.packed ? (rows + kRowUnit - 1) / kRowUnit : rows;
    const int steps = (units * cut.segments + rates_.warps - 1) / rates_.warps;
    return steps * cut.step_us + (steps > 1 && steps % 2 == 1 ? rates_.odd_step_us : 0.0);
  }
  // What a warp without a ring has on the way.
  double group_bytes() const { return static_cast<double>(group_ * block_bytes()); }
  // One warp's segment, behind the last byte's landing.
  double last_us(const Task& task) const { return cut_[static_cast<std::size_t>(task.matrix)].last_us; }

 private:
  struct Cut {
    int segments = 1;  // of a unit of rows
    double step_us = 0, last_us = 0;
  };
  static constexpr int kBlockColumns = 64;
  static int blocks_of(int columns) { return (columns + kBlockColumns - 1) / kBlockColumns; }
  std::int64_t block_bytes() const { return std::int64_t{kBlockColumns} * (rates_.packed ? kRowUnit : 1) * element_; }

  const MachineRates& rates_;
  std::int64_t element_ = 2;
  int group_ = 1;
  std::array<Cut, 6> cut_;  // [Matrix]
};

// Of an element of the cache that the task reads.
int kv_bytes_of(const Program& program, const Task& task) {
  for (const Region& region : task.reads)
    if (program.buffers[region.buffer].space == Space::Kv) return dtype_bytes(program.buffers[region.buffer].dtype);
  return 2;
}

double region_bytes(const Region& region) { return static_cast<double>(region.end - region.begin); }

// Of a task of attention: its tiles, this step's row, and how its keys and values come.
void add_attention(TaskWork& work, const Program& program, const Task& task, const MachineRates& rates, int position, double cache_us_per_byte) {
  const ModelSpec& spec = program.model;
  const std::int64_t block = std::max(1, program.attention.kv_block), splits = std::max(1, task.splits);
  const std::int64_t step = std::max(1, program.attention.split_step);
  const std::int64_t first = spec.sliding_window ? std::max<std::int64_t>(0, std::int64_t{position} + 1 - *spec.sliding_window) : 0;
  std::int64_t keys = 0, turns = 0;  // of all warps, a tile each
  int awake = 0;                     // splits of the task that have keys: each is a round of its own
  for (std::int64_t split = task.split; split < splits; split += step) {
    awake += split * block <= position ? 1 : 0;
    const std::int64_t before = keys;
    for (std::int64_t at = split * block; at <= position; at += splits * block)
      keys += std::max<std::int64_t>(0, std::min<std::int64_t>(at + block, std::int64_t{position} + 1) - std::max(at, first));
    turns += (keys - before + kTileKeys * rates.warps - 1) / (kTileKeys * rates.warps);
  }
  const double row_bytes = 2.0 * spec.head_dim * kv_bytes_of(program, task), turn_bytes = static_cast<double>(kTileKeys * rates.warps) * row_bytes;
  work.kv_bytes = static_cast<double>(keys) * row_bytes;
  work.kv_streams = task.ring_bytes > 0 && rates.ring && static_cast<double>(keys) >= awake * rates.ring_keys;
  work.kv_late = rates.ring && !work.kv_streams && static_cast<double>(keys) >= awake * rates.ring_keys;
  if (!work.kv_streams && !work.kv_late && !rates.slices) work.kv_asked = std::min(work.kv_bytes, turn_bytes);
  // Arithmetic: two FMAs a query head and cache element, on 128 lanes a clock.
  const double fma_us = 2.0 * static_cast<double>(keys) * spec.gqa() * spec.head_dim / (128.0 * rates.clock_mhz);
  const double turn_us = work.kv_streams ? 0.0 : turn_bytes / rates.attention_bytes_per_us;
  double walk_us = turn_us * static_cast<double>(turns);
  // This step's row is asked for behind the wait, and comes behind what warps have asked for before; packets of it are looked for anew, behind
  // those.
  if (position / block % splits % step == task.split) {
    const double behind = rates.slices ? std::min(work.kv_bytes, turn_bytes) : turn_bytes;
    walk_us += rates.row_us > 0 ? rates.row_us + rates.row_looks * behind * cache_us_per_byte : behind / rates.l2_sm_bytes_per_us;
  }
  work.fetches = false;  // its queries are looked for by its warps
  work.compute_us = rates.attention_us * std::max(1, awake) + std::max(walk_us, fma_us);
  const double wide = spec.head_dim / 64.0;  // whose rows want more registers
  work.compute_us += rates.attention_spill_us * (rates.slices ? 1.0 : wide * wide);
}

TaskWork work_of(const Program& program, const Task& task, const MachineRates& rates, const Segments& segments, int position,
                 double cache_us_per_byte) {
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
      // The virtual machine's partials fill half of the room that the program has for them where activations are bf16, but for slices'.
      const bool halved = spec.dtype == DType::BF16 && !rates.slices && buffer.dtype == DType::F32 && buffer.name.ends_with("partials");
      work.fetch_bytes += region_bytes(region) * rates.fetched_bytes * (halved ? 0.5 : 1.0);
      work.fetches = true;
    }
  }
  work.compute_us = rates.task_us;
  work.looked_for = work.fetch_bytes <= rates.looked_for_bytes;
  switch (task.op) {
    case Opcode::Embed:
      work.fetches = true;
      break;  // token, then its row: a dependent pair of loads
    case Opcode::AttentionO: {
      const std::int64_t keys = std::min<std::int64_t>(std::int64_t{position} + 1, spec.sliding_window.value_or(position + 1));
      const std::int64_t tiles = (keys + kTileKeys - 1) / kTileKeys;
      const double rounds = std::max(kFirstRounds, static_cast<double>(tiles) / rates.warps);
      const double row = 2.0 * spec.head_dim * kv_bytes_of(program, task);
      // The tasks of a head read the same rows: of memory each a share, of L2 each all. What shared memory has no room for comes during the task;
      // its weights, a few KB, before it.
      work.weight_bytes = 0;
      work.kv_bytes = static_cast<double>(keys) * row * (task.row_end - task.row_begin) / spec.hidden;
      work.compute_us += rates.head_us + (rounds - kFirstRounds) * rates.round_us;
      // Steps from here on: who is timed decodes a few.
      const std::int64_t staged = static_cast<std::int64_t>(rates.staged_bytes / row) / kTileKeys * kTileKeys, late = keys + kTileKeys / 2 - staged;
      if (late > 0) work.compute_us += rates.late_us + static_cast<double>(late) * row / rates.late_bytes_per_us;
      break;
    }
    case Opcode::AttentionTile:
      add_attention(work, program, task, rates, position, cache_us_per_byte);
      break;
    case Opcode::RmsNorm:
      work.compute_us += rates.norm_us;
      break;
    case Opcode::Gemv:
      if (task.fused & kFusedCombine) {
        const int block = std::max(1, program.attention.kv_block);
        work.compute_us += std::log2(std::min(position / block + 1, std::max(1, program.attention.splits))) * rates.merge_us;
      }
      if (task.fused & kFusedNorm) work.compute_us += rates.norm_us;  // of a batch: the sequences' sums are reduced together
      if (rates.slices) {
        if (task.matrix == Matrix::LmHead)  // whose units are each one warp's, without a barrier
          work.publish_us = rates.slices_head_us;
        else
          work.slices_us = slices_us(spec, task, rates);
        if (!rates.ring && task.matrix != Matrix::LmHead)
          work.compute_us += ((task.row_end - task.row_begin + kRowUnit - 1) / kRowUnit - 1) * rates.unit_us;
        work.products_us = work.weight_bytes / (rates.warp_bytes_per_us * rates.warps);
        work.last_us = std::min(work.products_us, static_cast<double>(rates.chunk_bytes) / (rates.warp_bytes_per_us * rates.warps));
      } else {
        work.products_us = segments.consume_us(task);
        work.last_us = segments.last_us(task);
      }
      if (task.ring_bytes > 0) work.compute_us += rates.unhoisted_us;
      if (task.fused & kFusedRopeAppend) work.publish_us = rates.append_us * spec.head_dim / 64;
      break;
    default:
      break;
  }
  if (task.op != Opcode::Gemv && task.op != Opcode::AttentionO) {
    double written = 0;
    for (const Region& region : task.writes) written += region_bytes(region);
    work.compute_us += written / rates.l2_sm_bytes_per_us;
    if (task.op == Opcode::AttentionTile) work.publish_us = written * rates.publish_us_per_byte;
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
  double landed_us = 0;              // the last issued byte is in shared memory
  double stream_bytes = 0;           // issued so far
  double lag_us = 0;                 // of whichever SM is the last to end the task at hand
  double turned_us = 0;              // gemv_path slices: from when on it can look for what its next task waits for
  std::int32_t instruction = kNone;  // of the task before
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
      : program_(program), rates_(rates), kv_from_hbm_(kv_from_hbm), hops_(hops) {
    const Segments segments(program.model, rates);
    filling_ = lower_of(rates.sm_ahead_bytes_per_us, rates.waiting_share * rates.memory_bytes_per_us / static_cast<double>(program.queues.size()));
    const double share =
        std::min(rates.sm_bytes_per_us, rates.total_bytes_per_us / static_cast<double>(std::max<std::size_t>(1, program.queues.size())));
    const double cache_us_per_byte = kv_from_hbm / share + (1 - kv_from_hbm) / rates.l2_sm_bytes_per_us;
    for (const Task& task : program.tasks) work_.push_back(work_of(program, task, rates, segments, position, cache_us_per_byte));
    std::vector<int> drawing(program.instructions.size(), 0);
    std::vector<std::int32_t> last_sm(program.instructions.size(), kNone);
    for (const auto& queue : program.queues)
      for (TaskId id : queue) {
        const Task& task = program.tasks[id];
        if (work_[id].weight_bytes == 0 || last_sm[task.instruction] == task.sm) continue;
        last_sm[task.instruction] = task.sm;
        ++drawing[task.instruction];
      }
    const bool direct = !rates.ring && !rates.slices;
    opened_bytes_ = direct ? std::min(rates.opened_bytes, kDirectGroups * rates.warps * segments.group_bytes()) : rates.opened_bytes;
    for (int sms : drawing) {
      rate_.push_back(
          lower_of(rates.sm_bytes_per_us * opened_bytes_ / std::max(1.0, rates.opened_bytes), rates.memory_bytes_per_us / std::max(1, sms)));
      ahead_rate_.push_back(lower_of(rates.sm_ahead_bytes_per_us, rates.waiting_share * rates.memory_bytes_per_us / std::max(1, sms)));
    }
    // What the stream can bring while a task waits: its own bytes and those of the `depth` ring tasks behind it, as far as the ring holds them.
    ahead_bytes_.assign(program.tasks.size(), 0.0);
    held_.assign(program.tasks.size(), false);
    const int slots = rates.ring ? static_cast<int>(rates.ring_bytes / rates.chunk_bytes) : 0;
    const std::size_t depth = static_cast<std::size_t>(std::max(0, program.ring.depth));
    for (const auto& queue : program.queues) {
      std::deque<double> behind;
      std::deque<int> chunks;
      double sum = 0;
      int sum_chunks = 0;
      for (std::size_t i = queue.size(); i-- > 0;) {
        const TaskId id = queue[i];
        const double bytes =
            rates.ring && program.tasks[id].ring_bytes > 0 ? work_[id].weight_bytes + (work_[id].kv_streams ? work_[id].kv_bytes : 0.0) : 0.0;
        if (bytes > 0) {
          behind.push_front(bytes);
          chunks.push_front(static_cast<int>(std::ceil(bytes / static_cast<double>(rates.chunk_bytes))));
          sum += bytes;
          sum_chunks += chunks.front();
          if (behind.size() > depth + 1) sum -= behind.back(), behind.pop_back(), sum_chunks -= chunks.back(), chunks.pop_back();
        }
        held_[id] = behind.size() > depth && sum_chunks <= slots;
        ahead_bytes_[id] = std::min(sum, static_cast<double>(rates.ring_bytes));
      }
    }
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
        double signalled_us = 0;
        if (!waits_met(task, sm, signalled_us)) break;
        const std::size_t streamed = state.ring_ends.size();
        const double end = execute(state, id, signalled_us + sight_us(state, id, signalled_us));
        ++state.head;
        const double published = end + state.lag_us + publish_us(state, id, program_.queues[sm], end);
        if (rates_.slices && state.ring_ends.size() > streamed) state.ring_ends.back() = published;  // from then on it counts as done
        state.turned_us = published + (task.op == Opcode::AttentionO && !held_[id] ? rates_.attention_o_turn_us : rates_.slices_turn_us);
        timeline.instruction_end_us[task.instruction] = std::max(timeline.instruction_end_us[task.instruction], published);
        timeline.end_us = std::max(timeline.end_us, published);
        if (task.signal == kNone) continue;
        ++signals_[task.signal];
        signalled_us_[task.signal] = std::max(signalled_us_[task.signal], published);
        Waiters& waiters = waiting_[task.signal];
        if (signals_[task.signal] < waiters.lowest_target) continue;
        ready.insert(ready.end(), waiters.sms.begin(), waiters.sms.end());
        waiters = {};
      }
    }
    return timeline;
  }

 private:
  bool waits_met(const Task& task, std::int32_t sm, double& signalled_us) {
    for (const Wait& wait : task.waits) {
      if (signals_[wait.counter] < wait.target) {
        Waiters& waiters = waiting_[wait.counter];
        waiters.sms.push_back(sm);
        waiters.lowest_target = std::min(waiters.lowest_target, wait.target);
        return false;
      }
      signalled_us = std::max(signalled_us, signalled_us_[wait.counter]);
    }
    return true;
  }

  // A hop is what its publisher takes, until its stores are where others see them, and what the waiter takes to see the signal. Each is slow while
  // that SM's own ring is being filled: until all that it can take ahead of `next` has landed. The share of `loaded_us` in which it is.
  double streaming(const Sm& sm, TaskId next, double from_us, double loaded_us) const {
    if (ahead_bytes_[next] <= 0) return 0;
    double filled_us = std::max(sm.landed_us + ahead_bytes_[next] / filling_, sm.free_us + static_cast<double>(rates_.chunk_bytes) / filling_);
    if (!sm.consumed.empty()) {  // what the last task gave back is brought anew from when it began to
      const ConsumedSpan& last = sm.consumed.back();
      filled_us = std::max(filled_us, last.begin_us + std::min(last.end_byte - last.begin_byte, static_cast<double>(rates_.ring_bytes)) / filling_);
    }
    return std::clamp((filled_us - from_us) / loaded_us, 0.0, 1.0);
  }
  // SMs draw alike here. Where a stage waits for its bytes, some SM has drawn less than the others, another one each time, and the stage ends with
  // it: the further behind the longer it takes, by the wait's root as sums of chances are.
  double lag_us(double wait_us) const {
    return wait_us > 0 ? rates_.lag_us * std::sqrt(wait_us) + rates_.soon_lag_us * (1 - std::exp(-wait_us / kSoonUs)) : 0.0;
  }
  // What an SM draws while all do.
  double sm_share() const { return std::min(rates_.sm_bytes_per_us, rates_.total_bytes_per_us / static_cast<double>(sms_.size())); }
  double sight_us(const Sm& sm, TaskId id, double signalled_us) const {
    if (!hops_ || program_.tasks[id].waits.empty()) return 0;
    return rates_.idle_sight_us + (rates_.sight_us - rates_.idle_sight_us) * streaming(sm, id, signalled_us, rates_.sight_us);
  }
  // Of the task that ended last; sm.head is the next one.
  double publish_us(const Sm& sm, TaskId id, const std::vector<TaskId>& queue, double end_us) const {
    if (!hops_) return 0;
    const Task& task = program_.tasks[id];
    const double own_us = work_[id].publish_us;
    if (task.op != Opcode::Gemv) return rates_.lone_publish_us + own_us;
    if (sm.head == queue.size()) return rates_.idle_publish_us + own_us;
    const TaskId next = queue[sm.head];
    // What warps have asked for of the cache is on the way that this task's stores take, and before them, as long as memory takes to bring it.
    const double behind_us = work_[next].kv_asked * kv_from_hbm_ / sm_share();
    return own_us + rates_.asked_share * behind_us + rates_.idle_publish_us +
           (rates_.publish_us - rates_.idle_publish_us) * streaming(sm, next, end_us, rates_.publish_us);
  }

  // Ends of a task: it waits for its counters, fetches its input, then consumes weights as they land.
  double execute(Sm& sm, TaskId id, double seen_us) {
    const Task& task = program_.tasks[id];
    const TaskWork& work = work_[id];
    sm.lag_us = 0;
    double start = std::max(sm.free_us, seen_us);
    // A second task of an instruction is to slices what a second group of units is.
    if (rates_.slices && task.instruction == sm.instruction)
      start += rates_.group_us;
    else if (rates_.slices && hops_)
      start = std::max(start, sm.turned_us + rates_.slices_direct_us);
    sm.instruction = task.instruction;
    if (hops_ && held_[id] && (task.op == Opcode::AttentionO || task.op == Opcode::AttentionTile)) start += rates_.poll_us;
    double fetch_us = 0;
    if (work.fetches && hops_) {
      fetch_us = rates_.idle_fetch_us + (rates_.fetch_us - rates_.idle_fetch_us) * streaming(sm, id, start, rates_.fetch_us);
      if (work.looked_for) fetch_us *= kUnpacking;
    }
    start += fetch_us + work.fetch_bytes / rates_.l2_sm_bytes_per_us + work.compute_us;
    double end = start;
    if (work.weight_bytes > 0)
      end = task.ring_bytes > 0 && rates_.ring ? consume_ring(sm,
                                                              {work.weight_bytes, rate_[task.instruction], ahead_rate_[task.instruction],
                                                               work.weight_bytes / work.products_us, work.last_us},
                                                              start)
                                               : consume_direct(sm, task, work, start);
    end = std::max(end, start + work.slices_us);
    const double share = sm_share();
    if (work.kv_streams) {
      const double lands = kv_from_hbm_ > 0 ? share / kv_from_hbm_ : kInstantly, eaten = rates_.ring_attention_bytes_per_us;
      end = consume_ring(sm, {work.kv_bytes, lands, lands, eaten, std::min(work.kv_bytes, static_cast<double>(rates_.chunk_bytes)) / eaten}, start);
    } else if (work.kv_bytes > 0) {
      // K and V share the memory with the weight stream. What is loaded behind the wait cannot have come while the ring was full.
      const double kv_us = work.kv_bytes * kv_from_hbm_ / share;
      if (work.kv_late) {
        const double begun = start - work.compute_us, late_us = kv_us / rates_.late_kv_share;
        end = std::max(end, begun + late_us);
      } else {
        sm.landed_us += kv_us;
        end = std::max(end, sm.landed_us);
      }
    }
    sm.free_us = end;
    return end;
  }

  // Each warp's first segment was asked for when the task before had ended; the others once this one begins.
  double consume_direct(Sm& sm, const Task& task, const TaskWork& work, double start) const {
    const double rate = rate_[task.instruction], first = std::min(work.weight_bytes, opened_bytes_);
    const double asked = rates_.slices ? start : sm.free_us + rates_.load_latency_us + first / rate;
    const double opened = std::max(start, asked);
    // Half of a trip under load is the queue, which is in the rate.
    const double rest = work.weight_bytes - first, landed = rest > 0 ? std::max(opened, start + rates_.load_latency_us / 2) + rest / rate : opened;
    if (hops_) sm.lag_us = kDirectLag * lag_us(landed - start);
    return std::max(landed, opened + work.products_us);
  }

  struct Streamed {
    double bytes, rate, ahead_rate;  // they land at `rate`, and before the task is the one at hand at `ahead_rate` …
    double consume, last_us;         // … are eaten at `consume` once they have, and the last of them in `last_us`
  };
  double consume_ring(Sm& sm, const Streamed& s, double start) {
    const auto [bytes, rate, ahead_rate, consume, last_us] = s;
    const double ring = static_cast<double>(rates_.ring_bytes);
    const double last_chunk = std::min(bytes, static_cast<double>(rates_.chunk_bytes));
    const double first = sm.stream_bytes;
    // The producer may be at most `depth` task boundaries ahead of the consumers.
    const std::size_t depth = static_cast<std::size_t>(std::max(0, program_.ring.depth));
    const double allowed = sm.ring_ends.size() > depth ? sm.ring_ends[sm.ring_ends.size() - depth - 1] : 0;
    const double issue = std::max(sm.landed_us, allowed);
    const double ahead = std::min(bytes, ring);  // what can land before the task consumes anything
    double landed = std::max(issue, sm.consumed_at(first - ring)) + ahead / ahead_rate;
    const double before = landed - ahead / ahead_rate;
    if (landed > start) landed = std::max(before, start) + (landed - std::max(before, start)) * ahead_rate / rate;
    landed = std::max({landed, sm.consumed_at(first + ahead - ring) + last_chunk / rate,
                       allowed + rates_.load_latency_us + (rates_.slices ? kBurst : 1.0) * last_chunk / rate});
    double end = std::max(start + bytes / consume, landed + last_us);
    if (bytes > ring) {  // what did not fit lands while the task consumes
      landed = std::max(start, landed) + (bytes - ahead) / rate;
      end = std::max(end, landed + last_us);
    }
    if (hops_) sm.lag_us = lag_us(landed - start);
    sm.consumed.push_back({first, first + bytes, std::min(start, end), end});
    sm.stream_bytes += bytes;
    sm.landed_us = landed;
    sm.ring_ends.push_back(end);
    return end;
  }

  const Program& program_;
  const MachineRates& rates_;
  const double kv_from_hbm_;
  const bool hops_;
  std::vector<TaskWork> work_;
  std::vector<double> rate_, ahead_rate_;  // [instruction]: what one of its SMs draws
  double opened_bytes_ = 0;                // without a ring: of a task's weights, asked for before its wait
  std::vector<double> ahead_bytes_;        // [task]
  std::vector<bool> held_;                 // [task]: while it is at hand the producer has room for more, and may not begin
  double filling_ = 1;                     // of one SM's ring, while all wait
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
