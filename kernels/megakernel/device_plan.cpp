#include "kernels/megakernel/device_plan.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/program/packing.h"
#include "core/schedule/rules.h"
#include "embedded/megakernel_sources.h"
#include "kernels/megakernel/device/cache_ranges.cuh"
#include "kernels/megakernel/device_rules.h"
#include "kernels/megakernel/device_tasks.h"

namespace amk {
namespace {

constexpr std::int64_t kBoostChunks = 1;    // copies beyond the window while consumers are in the task being loaded (docs/lab/megakernel.md)
constexpr int kLimbs = 3, kHeldPieces = 8;  // device/fixed_point.cuh
constexpr int kPartialFloatsAim = 1152;     // 16 units of 8 segments
constexpr int kTile = amk_vm::kTile;
constexpr int kSequencesAtOnce = 4;  // of one matrix instruction: device/segment.cuh
// Registers of 384 threads, 168 each, when the producer's four warps keep 40, or 56 where two of them finish rows (device/memory.cuh): for vectors,
// and for each consumer thread.
constexpr int kFinishThreads = 64;  // device/finishers.cuh
constexpr int kNormByPairs = 2048;  // device/stage.cuh
constexpr int kDirectWarps = 8, kDirectGroup = 4, kDirectRegisters = 128, kConsumerRegisters = 232, kFinisherRegisters = 224;
static_assert(kMaxBatch == amk_vm::kMaxSequences);

int type_number(DType t) { return t == DType::F32 ? 0 : t == DType::F16 ? 1 : 2; }

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

class Planner {
 public:
  Planner(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits, const PlanOptions& options)
      : program_(program), spec_(program.model), config_(config), limits_(limits), options_(options), layout_(spec_, config.kernel.weight_layout) {
    plan_.format = gpu_format(spec_.dtype);
    plan_.layout = config.kernel.weight_layout;
    bulk_ = limits.sm_major >= 9 && !config.kernel.cpasync;
    consumer_warps_ = config.threads_per_block / 32 - 1;
    packed_ = config.kernel.weight_layout == WeightLayout::Packed;
  }

  // Everything that may be refused, but for offsets.
  Status fit() {
    AMK_CHECK(check_device_rules(program_, config_, limits_));
    AMK_CHECK(shape_ring());
    shape_shared();
    AMK_CHECK(measure_tables());
    AMK_CHECK(shape_heads());
    return check_shared();
  }

  Result<DevicePlan> plan() {
    AMK_CHECK(fit());
    place_activations();
    place_given();
    plan_.grid = program_.sm_count;
    plan_.threads = launch_threads();
    plan_.steps = config_.kernel.tokens_per_launch;
    plan_.counter_count = static_cast<std::int64_t>(program_.counters.size());
    AMK_CHECK(make_tables());
    make_request();
    return std::move(plan_);
  }

 private:
  struct Shape {
    int seg = 1;            // blocks of 64 columns a segment
    int segs_per_unit = 1;  // per row in the row layout
    std::int64_t seg_bytes = 0;
    int segs_per_chunk = 1;
    int unit_sums = 1;  // partial sums of a row: a warp adds up its own segments of a unit
    int stride() const { return unit_sums * kRowUnit + kRowUnit; }
  };

  // Blocks that a warp loads at once, the same for every matrix: as many as registers allow (two groups are held), a divisor of every width.
  int choose_group() const {
    const int most = (consumer_warps_ <= 8 ? 4 : consumer_warps_ <= 16 ? 2 : 1) * (int8_ ? 2 : 1);  // the same registers
    for (int g = most; g > 1; --g) {
      bool divides = true;
      for (const int columns : {spec_.hidden, spec_.q_rows(), spec_.intermediate})
        divides = divides && padded_columns(columns) / kBlockColumns % g == 0;
      const std::int64_t bytes = std::int64_t{g} * kBlockColumns * (packed_ ? kRowUnit : 1) * element_;
      if (divides && g * kBlockColumns <= config_.kernel.cols_per_warp && (slot_bytes_ == 0 || bytes <= slot_bytes_)) return g;
    }
    return 1;
  }

  // Segments: the widest whole fraction of the row that cols_per_warp and the chunk allow, in whole groups.
  Shape shape_of(std::int64_t columns, std::int64_t slot_bytes) const {
    const int blocks = static_cast<int>(padded_columns(columns) / kBlockColumns);
    const std::int64_t block_bytes = std::int64_t{kBlockColumns} * (packed_ ? kRowUnit : 1) * element_;
    Shape s;
    s.seg = group_;
    for (int d = group_; d <= blocks; d += group_) {
      if (blocks % d == 0 &&
          (d == group_ || (d * kBlockColumns <= config_.kernel.cols_per_warp && (slot_bytes == 0 || d * block_bytes <= slot_bytes))))
        s.seg = d;
    }
    s.segs_per_unit = blocks / s.seg;
    s.unit_sums = packed_ ? std::min(s.segs_per_unit, consumer_warps_) : s.segs_per_unit;
    s.seg_bytes = s.seg * block_bytes;
    s.segs_per_chunk = slot_bytes == 0 ? 1 : static_cast<int>(slot_bytes / s.seg_bytes);
    return s;
  }

  // Slices: a group of units is a chunk, read by all warps in the ring's order, each giving back what it has read: none can be a turn ahead.
  int slice_units(std::int64_t columns) const {
    const int blocks = static_cast<int>(padded_columns(static_cast<int>(columns)) / kBlockColumns),
              slice = (blocks + consumer_warps_ - 1) / consumer_warps_;
    const std::int64_t held = std::min(std::max(1, kSliceBlocks / slice), consumer_warps_),
                       unit = std::int64_t{blocks} * kBlockColumns * kRowUnit * element_;
    return static_cast<int>(slots_ == 0 ? held : std::min(held, slot_bytes_ / unit));
  }
  Status shape_slices_ring() {
    for (const int columns : {spec_.hidden, spec_.q_rows(), spec_.intermediate}) {
      const std::int64_t unit = std::int64_t{padded_columns(columns)} * kRowUnit * element_;
      if (unit > slot_bytes_)
        return reject_plan("slices-needs-whole-units",
                           "kernel_knobs.gemv_path \"slices\" reads the ring in whole units of 8 rows, " + std::to_string(unit) +
                               " bytes for this model's widest matrix; a slot of its ring has " + std::to_string(slot_bytes_) +
                               ": a larger kernel_knobs.chunk_bytes, or smem_bytes_per_block 0",
                           {{"unit", unit}, {"slot", slot_bytes_}});
    }
    boost_ = std::clamp<std::int64_t>(slots_ - window_, 0, kBoostChunks);
    return {};
  }

  Status shape_ring() {
    const Ring& ring = program_.ring;
    if (ring.ring_bytes > 0) {
      slot_bytes_ = ring.chunk_bytes;
      window_ = ring.inflight_chunks;
      if (!bulk_) {  // a cp.async group: cpa_cols columns of a unit, cpa_stages groups in flight
        slot_bytes_ = std::min<std::int64_t>(slot_bytes_, std::int64_t{config_.kernel.cpa_cols} * kRowUnit * element_);
        window_ = config_.kernel.cpa_stages;
      }
      slots_ = ring.ring_bytes / slot_bytes_;
    }
    group_ = choose_group();
    hidden_ = shape_of(spec_.hidden, slot_bytes_);
    q_ = shape_of(spec_.q_rows(), slot_bytes_);
    inter_ = shape_of(spec_.intermediate, slot_bytes_);
    hoist_ = slots_ == 0;
    if (slots_ == 0) return {};
    if (slices_) return shape_slices_ring();
    // A warp must never be a whole turn of the ring ahead of the copies, or it would take one turn's barrier phase for another's: between two of its
    // segments lie at most ceil(warps / segments per chunk) chunks, and copies land at most `window` out of order (docs/megakernel-vm.md).
    AMK_CHECK(shape_cache_chunks());
    int fewest = std::min({hidden_.segs_per_chunk, q_.segs_per_chunk, inter_.segs_per_chunk});
    if (cache_group_ > 0) fewest = std::min(fewest, cache_group_ / kTile);
    const std::int64_t needed = (consumer_warps_ + fewest - 1) / fewest + window_;
    if (slots_ < needed)
      return reject_plan("ring-turn",
                         "the ring has " + std::to_string(slots_) + " slots; " + std::to_string(consumer_warps_) + " consumer warps with " +
                             std::to_string(fewest) + " segments a chunk and " + std::to_string(window_) + " copies in flight need " +
                             std::to_string(needed) + ": a larger ring, smaller chunks or fewer columns per warp",
                         {{"slots", slots_}, {"needed", needed}});
    boost_ = std::min<std::int64_t>(kBoostChunks, slots_ - needed);
    // Opening a task's first segment before its wait puts up to two tasks' chunks between a warp's segments.
    hoist_ = slots_ >= needed + boost_ + (consumer_warps_ + fewest - 1) / fewest + 1;
    return {};
  }

  // kv_path ring: a chunk of the cache is as many rows of keys and of values as a slot holds, of one KV block.
  Status shape_cache_chunks() {
    if (config_.kernel.kv_path == KvPath::Direct) return {};
    if (!matrix_attention(spec_))
      return reject_plan("kv-ring-needs-mma-attention",
                         "kernel_knobs.kv_path \"ring\" needs a bf16 model, head_dim 32, 64, 96 or 128 and at most 8 query heads a kv head",
                         {{"kv_path", "ring"}, {"head_dim", spec_.head_dim}});
    const std::int64_t row = std::int64_t{2} * spec_.head_dim * dtype_bytes(plan_.format.kv);
    int group = program_.attention.kv_block;
    while (group >= kTile && group * row > slot_bytes_) group /= 2;
    if (group < kTile)
      return reject_plan("kv-ring-chunk",
                         "a chunk of the cache is at least " + std::to_string(kTile) + " positions, " + std::to_string(kTile * row) +
                             " bytes; a slot of the ring has " + std::to_string(slot_bytes_),
                         {{"slot_bytes", slot_bytes_}, {"needed", kTile * row}});
    cache_group_ = group;
    return {};
  }

  // The vectors of several sequences lie in shared memory, and down's are by far the longest. They may take the place of the ring's last slots, if
  // those that are left suffice for down (device/ring.cuh): the ring is long where the wait for down's successors is to be bridged.
  void shape_vectors() {
    const std::int64_t batch = program_.batch;
    const auto stride = [&](std::int64_t columns) { return round_up(padded_columns(columns) * dtype_bytes(spec_.dtype), 128); };
    const std::int64_t merge = std::int64_t{consumer_warps_} * spec_.gqa() * (spec_.head_dim + kPartialTail) * 4 * (slices_ ? 2 : 1);
    wide_stride_ = stride(spec_.intermediate);
    act_stride_ = stride(std::max(spec_.hidden, spec_.q_rows()));
    act_bytes_ = round_up(std::max(batch * act_stride_, merge), 128);
    down_segs_ = direct_segs(Matrix::Down, inter_, spec_.intermediate);
    o_segs_ = direct_segs(Matrix::O, q_, spec_.q_rows());
    finishers_ = can_finish() && direct();
    if (norm_direct()) act_bytes_ = round_up(merge, 128);  // nothing is staged
    if (down_segs_ > 0) return;
    const std::int64_t over = batch * wide_stride_ - act_bytes_;
    const std::int64_t left = slots_ - (slots_ == 0 ? 0 : (over + slot_bytes_ - 1) / slot_bytes_);
    const std::int64_t needed = (consumer_warps_ + inter_.segs_per_chunk - 1) / inter_.segs_per_chunk + window_;
    constexpr std::int64_t kMostSlots = 31, kMostCopies = 8;  // bits of a word, bytes of another
    if (batch > 1 && over > 0 && left >= needed && slots_ <= kMostSlots && window_ + kBoostChunks <= kMostCopies) {
      wide_slots_ = left;
      return;
    }
    act_stride_ = std::max(act_stride_, wide_stride_);
    std::int64_t vectors = batch * act_stride_;
    if (int8_) {
      // device/fixed_point.cuh: limbs are written at once where activations are as products take them and the threads can hold all of a vector.
      const std::int64_t threads = std::int64_t{consumer_warps_} * 32,
                         widest = padded_columns(std::max({spec_.hidden, spec_.q_rows(), spec_.intermediate}));
      const auto held = [threads](std::int64_t pieces) { return pieces <= kHeldPieces * threads; };
      const bool direct = spec_.dtype == DType::BF16 && held(widest / 8) && held(spec_.hidden / 4) && held(spec_.q_rows() / 4 * 2);
      if (!direct) limbs_at_ = round_up(widest * dtype_bytes(spec_.dtype), 128);
      vectors = limbs_at_ + widest * kLimbs;
    }
    act_bytes_ = round_up(std::max(vectors, merge), 128);
  }

  // Several sequences on Hopper: the producer's spare warps finish rows (device/finishers.cuh), where there is only the one way to do it.
  bool can_finish() const {
    const Fusion& f = config_.fusion;
    bool whole = f.qkv_rope_append && f.o_add && f.gate_up_silu && f.down_add && f.lm_head_argmax && !spec_.qk_norm && spec_.head_dim % kRowUnit == 0;
    for (const Shape* s : {&hidden_, &q_, &inter_}) whole = whole && s->unit_sums == consumer_warps_;
    return whole && program_.batch > 1 && consumer_warps_ == kDirectWarps;
  }
  int most_units() const { return can_finish() ? kFinishThreads / (program_.batch <= 2 ? 2 : program_.batch <= 4 ? 4 : 8) / 2 : kBatchUnitsMax; }

  // Norms straight to the registers of products, which keep the residual in an order of their own: where nobody else reads or writes it.
  bool norm_direct() const {
    const Fusion& f = config_.fusion;
    bool own = finishers_ && f.norm_qkv && f.norm_gate_up && f.norm_lm_head && down_segs_ > 0 && o_segs_ > 0 && spec_.hidden == kNormByPairs &&
               hidden_.segs_per_unit == consumer_warps_ && q_.segs_per_unit == consumer_warps_;
    for (const Buffer& b : program_.buffers) own = own && !given(b);
    return own;
  }

  // Several sequences' vectors of down, and of O, need not be staged where a warp's own part of them fits its registers, of which Hopper lets the
  // producer's warps give theirs away (device/gemv.cuh, direct_products). How many segments of a unit that is; 0: they are staged.
  int direct_segs(Matrix matrix, const Shape& shape, std::int64_t columns) const {
    if (program_.batch == 1 || !packed_ || config_.kernel.gemv_path != GemvPath::Mma || spec_.dtype != DType::BF16 || int8_ || slots_ == 0) return 0;
    if (config_.kernel.publish == Publish::Flagged || limits_.architecture != "sm_90a" || consumer_warps_ != kDirectWarps) return 0;
    const int sets = (program_.batch + kSequencesAtOnce - 1) / kSequencesAtOnce;
    const bool whole = columns % kBlockColumns == 0 && shape.segs_per_unit % consumer_warps_ == 0 && group_ == kDirectGroup &&
                       hidden_.seg == group_ && q_.seg == group_ && inter_.seg == group_;
    const int segs = shape.segs_per_unit / consumer_warps_;
    if (!whole || segs * sets * group_ * 4 > kDirectRegisters) return 0;
    for (const Task& task : program_.tasks) {
      if (task.op != Opcode::Gemv || task.matrix != matrix) continue;
      if ((task.row_end - task.row_begin + kRowUnit - 1) / kRowUnit > std::min(most_units(), partial_floats_ / shape.stride())) return 0;
      for (const Region& r : task.reads)  // filled by the host, in its own order
        if (program_.buffers[static_cast<std::size_t>(r.buffer)].space == Space::Input) return 0;
    }
    return segs;
  }

  void shape_shared() {
    const int batch = program_.batch;
    slot_arrivals_ = std::max(1, cache_group_ / kTile);
    const int aim = batch == 1 ? kPartialFloatsAim : 2 * kPartialFloatsAim / batch;
    for (const Shape* s : {&hidden_, &q_, &inter_}) {
      slot_arrivals_ = std::max(slot_arrivals_, s->segs_per_chunk);
      const int heads = spec_.qk_norm && s == &hidden_ ? spec_.head_dim / kRowUnit : 1;
      partial_floats_ = std::max({partial_floats_, s->stride() * heads, std::min(s->stride() * kBatchUnitsMax, aim)});
    }
    if (slices_) slot_arrivals_ = consumer_warps_;
    if (slices_) {  // sums of all warps of a group's rows and of the squares, and a word; device/attention_slices.cuh
      const int quads = (consumer_warps_ + 3) / 4;
      partial_floats_ = std::max(partial_floats_, (kSliceRows + 1) * (quads + (quads % 2 == 0 ? 1 : 0)) * 4 + 4);
    }
    partial_floats_ = static_cast<int>(round_up(partial_floats_, 32));
    if (batch > 1) partial_floats_ += kRowUnit;  // four sequences' sums of a unit, stored at once, on different banks
    shape_vectors();
  }

  // Flagged: every word is a packet of 8 bytes with its tag.
  std::int64_t widen(std::int64_t bytes) const { return config_.kernel.publish == Publish::Flagged ? 2 * bytes : bytes; }

  void place_activations() {
    std::int64_t at = kGuardBytes;
    const auto place = [&](std::int64_t bytes) {
      const StoragePlace out{at, bytes};
      at = round_up(at + bytes, 128) + kGuardBytes;
      return out;
    };
    for (const Storage& s : program_.storages) plan_.storages.push_back(s.space == Space::Activation ? place(widen(s.bytes)) : StoragePlace{});
    if (config_.kernel.publish == Publish::Flagged) {  // this step's k and v rows, one layer at a time
      plan_.storages.push_back(place(widen(std::int64_t{2} * program_.batch * spec_.kv_rows() * dtype_bytes(plan_.format.kv))));
      kv_now_ = plan_.storages.back().offset;
    }
    plan_.activation_bytes = at;
  }

  // Vectors that the host fills before a launch (core/program/lower_instruction.h); a given cache is the sequence's.
  static bool given(const Buffer& b) { return b.space == Space::Input && b.dtype != DType::I32 && b.shape.size() == 1; }
  void place_given() {
    for (const Buffer& b : program_.buffers) {
      if (!given(b)) continue;
      const std::int64_t bytes = program_.storages[static_cast<std::size_t>(b.storage)].bytes;
      plan_.storages[static_cast<std::size_t>(b.storage)] = {plan_.activation_bytes, bytes};
      plan_.activation_bytes = round_up(plan_.activation_bytes + bytes, 128) + kGuardBytes;
    }
  }

  amk_vm::WaitDesc wait_desc(const Wait& wait) const {
    const Counter& counter = program_.counters[static_cast<std::size_t>(wait.counter)];
    return {static_cast<std::uint32_t>(wait.counter), static_cast<std::uint32_t>(counter.fan_in), static_cast<std::uint32_t>(wait.target), 0};
  }

  // The edges from the step before are the SM's, not the task's: they come behind all of a queue's others.
  static bool within_step(const Wait& wait) { return wait.target > 0; }
  static std::int64_t waits_within(const Task& task) { return std::count_if(task.waits.begin(), task.waits.end(), within_step); }
  bool takes_ring(const Task& task) const {
    return slots_ > 0 && (task.op == Opcode::Gemv || (task.op == Opcode::AttentionTile && cache_group_ > 0));
  }

  // The longest queue, and what its tables take.
  Status measure_tables() {
    for (std::size_t sm = 0; sm < program_.queues.size(); ++sm) {
      const std::vector<TaskId>& queue = program_.queues[sm];
      const std::vector<TaskId>& stream = program_.streams[sm];
      std::int64_t waits = 0;
      std::size_t streamed = 0;
      bool in_order = true;
      for (const TaskId id : queue) {
        const Task& task = program_.tasks[static_cast<std::size_t>(id)];
        constexpr std::int64_t kMostWaits = 65535;
        if (waits + static_cast<std::int64_t>(task.waits.size()) > kMostWaits)
          return reject_plan("waits", "one multiprocessor has more than 65,535 waits", {{"sm", sm}});
        waits += waits_within(task);
        if (!takes_ring(task)) continue;
        in_order = in_order && streamed < stream.size() && stream[streamed] == id;
        ++streamed;
      }
      if (slots_ > 0 && (!in_order || streamed != stream.size()))
        return reject_plan("stream-order", "the weight stream of SM " + std::to_string(sm) + " is not its queue's order", {{"sm", sm}});
      if (persistent_ && !queue.empty()) {
        const Task& first = program_.tasks[static_cast<std::size_t>(queue.front())];
        waits += static_cast<std::int64_t>(first.waits.size()) - waits_within(first);
      }
      const auto tasks = static_cast<std::int64_t>(queue.size());
      longest_queue_ = std::max(longest_queue_, static_cast<std::uint32_t>(tasks));
      table_bytes_ = std::max(
          table_bytes_, tasks * static_cast<std::int64_t>(sizeof(amk_vm::TaskDesc)) + waits * static_cast<std::int64_t>(sizeof(amk_vm::WaitDesc)));
    }
    return {};
  }

  Status make_tables() {
    const auto offset_of = [this](BufferId id) -> std::int64_t {
      const Buffer& b = program_.buffers[static_cast<std::size_t>(id)];
      return plan_.storages[static_cast<std::size_t>(b.storage)].offset + widen(b.offset);
    };
    // The one instruction that writes a buffer, for tags.
    std::vector<InstructionId> producers(program_.buffers.size(), kNone);
    for (const Task& task : program_.tasks) {
      for (const Region& r : task.writes) producers[static_cast<std::size_t>(r.buffer)] = task.instruction;
    }
    std::vector<TaskId> releases = signals_of_steps(program_, config_);
    std::sort(releases.begin(), releases.end());
    for (std::size_t sm = 0; sm < program_.queues.size(); ++sm) {
      amk_vm::QueueDesc queue{};
      queue.task_first = static_cast<std::uint32_t>(plan_.tasks.size());
      queue.wait_first = static_cast<std::uint32_t>(plan_.waits.size());
      queue.stream_first = static_cast<std::uint32_t>(plan_.streams.size());
      for (const TaskId id : program_.queues[sm]) {
        const Task& task = program_.tasks[static_cast<std::size_t>(id)];
        AMK_TRY(desc, device_task(program_, task, layout_, offset_of, producers, widen(4)));
        desc.wait_first = static_cast<std::uint16_t>(plan_.waits.size() - queue.wait_first);
        desc.wait_count = static_cast<std::uint16_t>(waits_within(task));
        for (const Wait& wait : task.waits) {
          if (within_step(wait)) plan_.waits.push_back(wait_desc(wait));
        }
        if (std::binary_search(releases.begin(), releases.end(), id)) desc.fused |= amk_vm::kSignalsStep;
        if (options_.fault_hang && sm == 0 && plan_.tasks.size() == queue.task_first) desc.signal = amk_vm::kNoOffset;
        plan_.tasks.push_back(desc);
        if (!takes_ring(task)) continue;
        if (task.op == Opcode::AttentionTile) {
          plan_.streams.push_back({desc.layer, desc.head, desc.split, amk_vm::kStreamCache + desc.matrix * amk_vm::kStreamKinds});
          continue;
        }
        const Shape& shape = task.matrix == Matrix::O ? q_ : task.matrix == Matrix::Down ? inter_ : hidden_;
        const std::int64_t rows = packed_ ? round_up(task.row_end - task.row_begin, kRowUnit) / kRowUnit : task.row_end - task.row_begin;
        if (slices_) {
          const std::int64_t columns = packed_cols(spec_, task.matrix), unit = padded_columns(static_cast<int>(columns)) * kRowUnit * element_;
          plan_.streams.push_back({desc.weight, static_cast<std::uint32_t>((task.row_end - task.row_begin + kRowUnit - 1) / kRowUnit * unit),
                                   static_cast<std::uint32_t>(slice_units(columns) * unit), 0u});
          continue;
        }
        plan_.streams.push_back({desc.weight, static_cast<std::uint32_t>(rows * shape.segs_per_unit * shape.seg_bytes),
                                 static_cast<std::uint32_t>(shape.segs_per_chunk * shape.seg_bytes),
                                 wide_slots_ > 0 && task.matrix == Matrix::Down ? amk_vm::kStreamWide : amk_vm::kStreamWeights});
      }
      queue.step_first = static_cast<std::uint32_t>(plan_.waits.size()) - queue.wait_first;
      if (persistent_ && !program_.queues[sm].empty())
        for (const Wait& wait : program_.tasks[static_cast<std::size_t>(program_.queues[sm].front())].waits)
          if (!within_step(wait)) plan_.waits.push_back(wait_desc(wait));
      queue.step_count = static_cast<std::uint32_t>(plan_.waits.size()) - queue.wait_first - queue.step_first;
      queue.task_count = static_cast<std::uint32_t>(plan_.tasks.size()) - queue.task_first;
      queue.wait_count = static_cast<std::uint32_t>(plan_.waits.size()) - queue.wait_first;
      queue.stream_count = static_cast<std::uint32_t>(plan_.streams.size()) - queue.stream_first;
      plan_.queues.push_back(queue);
      plan_.task_ids.push_back(program_.queues[sm]);
    }
    return {};
  }

  std::int64_t shared_bytes() const {
    const amk_vm::SharedLayout layout = amk_vm::shared_layout(
        static_cast<std::uint32_t>(slots_), static_cast<std::uint32_t>(slot_bytes_), static_cast<std::uint32_t>(act_bytes_),
        static_cast<std::uint32_t>(program_.batch * partial_floats_), static_cast<std::uint32_t>(spec_.head_dim),
        static_cast<std::uint32_t>(config_.kernel.publish == Publish::Confirmed ? finishers_ ? launch_threads() : consumer_warps_ * 32 : 0),
        static_cast<std::uint32_t>(program_.batch), persistent_);
    return layout.tables + table_bytes_;
  }

  // Attention and O in one instruction (device/attention_o.cuh): records, the head's vector, a barrier, queries, the units' weights, and of the
  // cache's rows as many as there is room for.
  Status shape_heads() {
    if (!attention_in_o(config_.fusion)) return {};
    constexpr std::int64_t kBarrier = 128, kFewRows = 64;
    for (const Task& task : program_.tasks)
      if (task.op == Opcode::AttentionO) head_units_ = std::max(head_units_, std::min((task.row_end - task.row_begin) / kRowUnit, consumer_warps_));
    const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim, vector = group * dtype_bytes(plan_.format.activations);
    const std::int64_t records = std::int64_t{consumer_warps_} * spec_.gqa() * (spec_.head_dim + kPartialTail) * 4;
    const std::int64_t row = std::int64_t{2} * spec_.head_dim * dtype_bytes(plan_.format.kv);  // of keys and of values
    const std::int64_t before = act_bytes_, fixed = round_up(records + vector, 128) + kBarrier + vector + head_units_ * group * kRowUnit * element_;
    const std::int64_t all = round_up(program_.max_seq, kTile);
    act_bytes_ = 0;
    std::int64_t rows = std::min((limits_.smem_optin_bytes - shared_bytes() - fixed - 128) / row / kTile * kTile, all);
    if (options_.staged_rows > 0) rows = std::min<std::int64_t>(rows, round_up(options_.staged_rows, kTile));
    if (rows < std::min<std::int64_t>(all, options_.staged_rows > 0 ? kTile : kFewRows))
      return reject_plan("attention-o-rows",
                         "attention and o_proj in one group read the cache from shared memory, at least " + std::to_string(std::min(all, kFewRows)) +
                             " positions at a time, " + std::to_string(row) + " bytes each; beside the ring there is room for " +
                             std::to_string(std::max<std::int64_t>(0, rows)) + ": a smaller smem_bytes_per_block",
                         {{"rows", rows}, {"row_bytes", row}});
    staged_rows_ = rows;
    act_bytes_ = round_up(std::max(before, fixed + staged_rows_ * row), 128);
    return {};
  }

  Status check_shared() {
    plan_.shared_bytes = shared_bytes();
    if (plan_.shared_bytes <= limits_.smem_optin_bytes) return {};
    const std::int64_t fixed = plan_.shared_bytes - slots_ * slot_bytes_;
    const std::int64_t room = std::max<std::int64_t>(0, limits_.smem_optin_bytes - fixed);
    const std::string staged =
        program_.batch == 1 ? ""
                            : ", " + std::to_string(act_bytes_) + " of them the input vectors of " + std::to_string(program_.batch) + " sequences";
    return reject_plan("shared-memory",
                       "a block needs " + std::to_string(plan_.shared_bytes) + " bytes of shared memory (" + std::to_string(fixed) +
                           " besides the ring" + staged + "); the device allows " + std::to_string(limits_.smem_optin_bytes) +
                           ": smem_bytes_per_block at most " + std::to_string(room / slot_bytes_or_one() * slot_bytes_or_one()),
                       {{"needed", plan_.shared_bytes},
                        {"fixed", fixed},
                        {"allowed", limits_.smem_optin_bytes},
                        {"largest_ring", room / slot_bytes_or_one() * slot_bytes_or_one()}});
  }
  std::int64_t slot_bytes_or_one() const { return std::max<std::int64_t>(1, slot_bytes_); }

  void make_request() {
    CompileRequest& r = plan_.request;
    r.name = "vm.cu";
    r.architecture = limits_.architecture;
    for (const auto& [path, text] : megakernel_sources()) {
      const std::string name = path.substr(path.rfind('/') + 1);
      if (name == "vm.cu")
        r.source = text;
      else
        r.headers.emplace_back(name, text);
    }
    r.options = {"-std=c++17", "-default-device", "--ptxas-options=-v"};
    const auto define = [&](const char* name, std::int64_t value) {
      r.options.push_back("-DAMK_" + std::string(name) + "=" + std::to_string(value));
    };
    define("WEIGHT_TYPE", type_number(plan_.format.weights));
    define("INT8", int8_ ? 1 : 0);
    define("LIMBS_AT", limbs_at_);
    define("SCALES", std::max<std::int64_t>(0, layout_.scale_offset(Matrix::Qkv, 0)));
    define("SCALES_LM_HEAD", std::max<std::int64_t>(0, layout_.scale_offset(Matrix::LmHead, 0)));
    define("ACT_TYPE", type_number(plan_.format.activations));
    define("KV_TYPE", type_number(plan_.format.kv));
    define("HIDDEN", spec_.hidden);
    define("INTER", spec_.intermediate);
    define("HEADS", spec_.heads);
    define("KV_HEADS", spec_.kv_heads);
    define("HEAD_DIM", spec_.head_dim);
    define("VOCAB", spec_.vocab);
    define("MAX_SEQ", program_.max_seq);
    define("SLIDING_WINDOW", spec_.sliding_window.value_or(0));
    define("QK_NORM", spec_.qk_norm ? 1 : 0);
    std::array<char, 48> eps{};
    std::snprintf(eps.data(), eps.size(), "-DAMK_RMS_EPS=%.9ef", spec_.rms_eps);
    r.options.emplace_back(eps.data());
    define("CONSUMER_WARPS", consumer_warps_);
    define("RING_SLOTS", slots_);
    define("SLOT_BYTES", slot_bytes_);
    define("WINDOW", window_);
    define("DEPTH", program_.ring.depth);
    define("BOOST", boost_);
    define("KV_BLOCK", program_.attention.kv_block);
    define("SPLITS", program_.attention.splits);
    define("SPLIT_STEP", program_.attention.split_step);
    define("ATTENTION_MMA", matrix_attention(spec_) ? 1 : 0);
    define("CACHE_GROUP", cache_group_);
    // Up to a tile a warp, the warps' own loads come as early.
    define("CACHE_RING_FROM", cache_group_ == 0 ? 0 : options_.cache_ring_from > 0 ? options_.cache_ring_from : (consumer_warps_ + 1) * kTile);
    define("BATCH", program_.batch);
    define("PERSISTENT", persistent_ ? 1 : 0);
    define("LAYERS", spec_.layers);
    define("ARGMAX_PARTIALS", argmax_partials());
    define("ACT_STRIDE", act_stride_);
    define("WIDE_SLOTS", wide_slots_);
    define("WIDE_STRIDE", wide_stride_);
    define("DOWN_SEGS", down_segs_);
    define("O_SEGS", o_segs_);
    define("MERGES_IN_O", config_.fusion.combine_o && program_.attention.splits > 1 ? 1 : 0);
    define("CONSUMER_REGISTERS", finishers_ ? kFinisherRegisters : direct() ? kConsumerRegisters : 0);
    define("FINISHERS", finishers_ ? 1 : 0);
    define("NORM_DIRECT", norm_direct() ? 1 : 0);
    define("MMA", config_.kernel.gemv_path != GemvPath::Fma ? 1 : 0);
    define("SLICES", slices_ ? 1 : 0);
    define("ATTENTION_O", attention_in_o(config_.fusion) ? 1 : 0);
    define("STAGED_ROWS", staged_rows_);
    define("HEAD_UNITS", head_units_);
    define("PACKED", packed_ ? 1 : 0);
    define("PUBLISH", config_.kernel.publish == Publish::Confirmed ? 1 : config_.kernel.publish == Publish::Flagged ? 2 : 0);
    define("KV_NOW", kv_now_);
    define("HOIST", hoist_ && packed_ ? 1 : 0);
    define("BULK", bulk_ ? 1 : 0);
    define("SLOT_ARRIVALS", slot_arrivals_);
    define("PARTIAL_FLOATS", partial_floats_);
    define("ACT_BYTES", act_bytes_);
    // A second set of sums and vectors needs the registers of half a group; two halves in turn make the same sums in the same order.
    define("GROUP_BLOCKS", program_.batch > kSequencesAtOnce && group_ == 4 ? 2 : group_);
    define("SEG_HIDDEN", hidden_.seg);
    define("SEG_Q", q_.seg);
    define("SEG_INTER", inter_.seg);
    define("FULL_BARRIERS", options_.full_barriers ? 1 : 0);
    if (options_.full_barriers) r.options.emplace_back("-lineinfo");  // racecheck then names lines
    define("TRACE", options_.trace ? 1 : 0);
    define("TRACE_TASKS", options_.trace ? longest_queue_ : 1);
  }

  // Of one sequence. One sequence alone needs no such number: its kernel is the same for every placement.
  std::int64_t argmax_partials() const {
    if (program_.batch == 1) return 0;
    const BufferId id = program_.find_buffer("argmax_partials");
    return id == kNone ? 0 : program_.buffers[static_cast<std::size_t>(id)].bytes / program_.batch / (kArgmaxWords * dtype_bytes(DType::I32));
  }

  const Program& program_;
  const ModelSpec& spec_;
  const ScheduleConfig& config_;
  const DeviceLimits& limits_;
  const PlanOptions& options_;
  GpuLayout layout_;
  DevicePlan plan_;
  const bool persistent_ = program_.step_sync == StepSync::Persistent;
  const bool int8_ = spec_.weight_format == WeightFormat::Int8;
  const int element_ = dtype_bytes(spec_.matrix_dtype());
  const bool slices_ = config_.kernel.gemv_path == GemvPath::Slices;
  bool bulk_ = true, packed_ = true;
  int consumer_warps_ = 0;
  std::int64_t slots_ = 0, slot_bytes_ = 0;
  int window_ = 1, group_ = 1, cache_group_ = 0;
  std::int64_t boost_ = 0, kv_now_ = 0;
  bool hoist_ = false;
  Shape hidden_, q_, inter_;
  int slot_arrivals_ = 1, partial_floats_ = 0;
  std::int64_t act_bytes_ = 0, act_stride_ = 0, wide_slots_ = 0, wide_stride_ = 0, table_bytes_ = 0, limbs_at_ = 0, staged_rows_ = 0;
  int down_segs_ = 0, o_segs_ = 0, head_units_ = 0;
  bool finishers_ = false;
  int launch_threads() const { return config_.threads_per_block + (direct() ? 96 : 0); }  // the producer's four warps share an instruction
  bool direct() const { return down_segs_ > 0 || o_segs_ > 0; }
  std::uint32_t longest_queue_ = 1;
};

}  // namespace

Result<DevicePlan> plan_device(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits, const PlanOptions& options) {
  return Planner(program, config, limits, options).plan();
}

Status check_device_fit(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits) {
  const PlanOptions options;
  return Planner(program, config, limits, options).fit();
}

}  // namespace amk
