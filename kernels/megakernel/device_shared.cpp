// What a block keeps in shared memory beside the ring: vectors, sums, tables, and what attention stages.
#include <algorithm>

#include "kernels/megakernel/device_rules.h"
#include "kernels/megakernel/device_shapes.h"
#include "kernels/megakernel/device_tables.h"

namespace amk {
namespace {

constexpr int kLimbs = 3, kHeldPieces = 8;  // device/fixed_point.cuh
constexpr int kPartialFloatsAim = 1152;     // 16 units of 8 segments
constexpr int kFinishThreads = 64;          // device/finishers.cuh
constexpr int kNormByPairs = 2048;          // device/stage.cuh
constexpr int kDirectWarps = 8, kDirectGroup = 4;
constexpr int kDirectRegisters = 128;  // of a consumer thread, for vectors, of the 224 or 232 that it has (device_compile.cpp)

class SharedMemory {
 public:
  SharedMemory(const PlanInput& in, DeviceShapes& shapes)
      : program_(in.program), spec_(in.spec()), config_(in.config), limits_(in.limits), options_(in.options), s_(shapes) {}

  Status shape() {
    shape_sums();
    shape_vectors();
    s_.threads = config_.threads_per_block + (s_.direct() ? 96 : 0);  // the producer's four warps share an instruction
    AMK_TRY(tables, measure_tables(program_, s_));
    s_.longest_queue = tables.longest_queue;
    s_.table_bytes = tables.bytes;
    AMK_CHECK(shape_heads());
    return check_size();
  }

 private:
  void shape_sums() {
    const int batch = program_.batch;
    const int aim = batch == 1 ? kPartialFloatsAim : 2 * kPartialFloatsAim / batch;
    s_.slot_arrivals = std::max(1, s_.cache_group / kTile);
    for (const RowShape* r : {&s_.hidden, &s_.q, &s_.inter}) {
      s_.slot_arrivals = std::max(s_.slot_arrivals, r->segs_per_chunk);
      const int heads = spec_.qk_norm && r == &s_.hidden ? spec_.head_dim / kRowUnit : 1;
      s_.partial_floats = std::max({s_.partial_floats, r->stride() * heads, std::min(r->stride() * kBatchUnitsMax, aim)});
    }
    if (s_.slices) {  // sums of all warps of a group's rows and of the squares, and a word; device/attention_slices.cuh
      s_.slot_arrivals = s_.consumer_warps;
      const int quads = (s_.consumer_warps + 3) / 4;
      s_.partial_floats = std::max(s_.partial_floats, (kSliceRows + 1) * (quads + (quads % 2 == 0 ? 1 : 0)) * 4 + 4);
    }
    s_.partial_floats = static_cast<int>(round_up(s_.partial_floats, 32));
    if (batch > 1) s_.partial_floats += kRowUnit;  // four sequences' sums of a unit, stored at once, on different banks
  }

  // The vectors of several sequences lie in shared memory, and down's are by far the longest. They may take the place of the ring's last slots, if
  // those that are left suffice for down (device/ring.cuh): the ring is long where the wait for down's successors is to be bridged.
  void shape_vectors() {
    const std::int64_t batch = program_.batch;
    const auto stride = [&](std::int64_t columns) { return round_up(padded_columns(columns) * dtype_bytes(spec_.dtype), 128); };
    const std::int64_t merge = std::int64_t{s_.consumer_warps} * spec_.gqa() * (spec_.head_dim + kPartialTail) * 4 * (s_.slices ? 2 : 1);
    s_.wide_stride = stride(spec_.intermediate);
    s_.act_stride = stride(std::max(spec_.hidden, spec_.q_rows()));
    s_.act_bytes = round_up(std::max(batch * s_.act_stride, merge), 128);
    s_.down_segs = direct_segs(Matrix::Down, s_.inter, spec_.intermediate);
    s_.o_segs = direct_segs(Matrix::O, s_.q, spec_.q_rows());
    s_.finishers = can_finish() && s_.direct();
    s_.norm_direct = can_norm_direct();
    if (s_.norm_direct) s_.act_bytes = round_up(merge, 128);  // nothing is staged
    if (s_.down_segs > 0) return;
    const std::int64_t over = batch * s_.wide_stride - s_.act_bytes;
    const std::int64_t left = s_.slots - (s_.slots == 0 ? 0 : (over + s_.slot_bytes - 1) / s_.slot_bytes);
    const std::int64_t needed = (s_.consumer_warps + s_.inter.segs_per_chunk - 1) / s_.inter.segs_per_chunk + s_.window;
    constexpr std::int64_t kMostSlots = 31, kMostCopies = 8;  // bits of a word, bytes of another
    if (batch > 1 && over > 0 && left >= needed && s_.slots <= kMostSlots && s_.window + kBoostChunks <= kMostCopies) {
      s_.wide_slots = left;
      return;
    }
    s_.act_stride = std::max(s_.act_stride, s_.wide_stride);
    std::int64_t vectors = batch * s_.act_stride;
    if (s_.int8) {
      // device/fixed_point.cuh: limbs are written at once where activations are as products take them and the threads can hold all of a vector.
      const std::int64_t threads = std::int64_t{s_.consumer_warps} * 32,
                         widest = padded_columns(std::max({spec_.hidden, spec_.q_rows(), spec_.intermediate}));
      const auto held = [threads](std::int64_t pieces) { return pieces <= kHeldPieces * threads; };
      const bool at_once = spec_.dtype == DType::BF16 && held(widest / 8) && held(spec_.hidden / 4) && held(spec_.q_rows() / 4 * 2);
      if (!at_once) s_.limbs_at = round_up(widest * dtype_bytes(spec_.dtype), 128);
      vectors = s_.limbs_at + widest * kLimbs;
    }
    s_.act_bytes = round_up(std::max(vectors, merge), 128);
  }

  // Several sequences on Hopper: the producer's spare warps finish rows (device/finishers.cuh), where there is only the one way to do it.
  bool can_finish() const {
    const Fusion& f = config_.fusion;
    bool whole = f.qkv_rope_append && f.o_add && f.gate_up_silu && f.down_add && f.lm_head_argmax && !spec_.qk_norm && spec_.head_dim % kRowUnit == 0;
    for (const RowShape* r : {&s_.hidden, &s_.q, &s_.inter}) whole = whole && r->unit_sums == s_.consumer_warps;
    return whole && program_.batch > 1 && s_.consumer_warps == kDirectWarps;
  }
  int most_units() const { return can_finish() ? kFinishThreads / (program_.batch <= 2 ? 2 : program_.batch <= 4 ? 4 : 8) / 2 : kBatchUnitsMax; }

  // Norms straight to the registers of products, which keep the residual in an order of their own: where nobody else reads or writes it.
  bool can_norm_direct() const {
    const Fusion& f = config_.fusion;
    bool own = s_.finishers && f.norm_qkv && f.norm_gate_up && f.norm_lm_head && s_.down_segs > 0 && s_.o_segs > 0 && spec_.hidden == kNormByPairs &&
               s_.hidden.segs_per_unit == s_.consumer_warps && s_.q.segs_per_unit == s_.consumer_warps;
    for (const Buffer& b : program_.buffers) own = own && !given_vector(b);
    return own;
  }

  // Several sequences' vectors of down, and of O, need not be staged where a warp's own part of them fits its registers, of which Hopper lets the
  // producer's warps give theirs away (device/gemv_direct.cuh). How many segments of a unit that is; 0: they are staged.
  int direct_segs(Matrix matrix, const RowShape& shape, std::int64_t columns) const {
    if (program_.batch == 1 || !s_.packed || config_.kernel.gemv_path != GemvPath::Mma || spec_.dtype != DType::BF16 || s_.int8 || s_.slots == 0)
      return 0;
    if (config_.kernel.publish == Publish::Flagged || limits_.architecture != "sm_90a" || s_.consumer_warps != kDirectWarps) return 0;
    const int sets = (program_.batch + kSequencesAtOnce - 1) / kSequencesAtOnce;
    const bool whole = columns % kBlockColumns == 0 && shape.segs_per_unit % s_.consumer_warps == 0 && s_.group == kDirectGroup &&
                       s_.hidden.seg == s_.group && s_.q.seg == s_.group && s_.inter.seg == s_.group;
    const int segs = shape.segs_per_unit / s_.consumer_warps;
    if (!whole || segs * sets * s_.group * 4 > kDirectRegisters) return 0;
    for (const Task& task : program_.tasks) {
      if (task.op != Opcode::Gemv || task.matrix != matrix) continue;
      if ((task.row_end - task.row_begin + kRowUnit - 1) / kRowUnit > std::min(most_units(), s_.partial_floats / shape.stride())) return 0;
      for (const Region& r : task.reads)  // filled by the host, in its own order
        if (program_.buffers[static_cast<std::size_t>(r.buffer)].space == Space::Input) return 0;
    }
    return segs;
  }

  std::int64_t shared_bytes() const {
    const amk_vm::SharedLayout layout = amk_vm::shared_layout(
        static_cast<std::uint32_t>(s_.slots), static_cast<std::uint32_t>(s_.slot_bytes), static_cast<std::uint32_t>(s_.act_bytes),
        static_cast<std::uint32_t>(program_.batch * s_.partial_floats), static_cast<std::uint32_t>(spec_.head_dim),
        static_cast<std::uint32_t>(config_.kernel.publish == Publish::Confirmed ? s_.finishers ? s_.threads : s_.consumer_warps * 32 : 0),
        static_cast<std::uint32_t>(program_.batch), s_.persistent);
    return layout.tables + s_.table_bytes;
  }

  // Attention and O in one instruction (device/attention_o.cuh): records, the head's vector, a barrier, queries, the units' weights, and of the
  // cache's rows as many as there is room for.
  Status shape_heads() {
    if (!attention_in_o(config_.fusion)) return {};
    constexpr std::int64_t kBarrier = 128, kFewRows = 64;
    for (const Task& task : program_.tasks)
      if (task.op == Opcode::AttentionO)
        s_.head_units = std::max(s_.head_units, std::min((task.row_end - task.row_begin) / kRowUnit, s_.consumer_warps));
    const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim, vector = group * dtype_bytes(s_.format.activations);
    const std::int64_t records = std::int64_t{s_.consumer_warps} * spec_.gqa() * (spec_.head_dim + kPartialTail) * 4;
    const std::int64_t row = std::int64_t{2} * spec_.head_dim * dtype_bytes(s_.format.kv);  // of keys and of values
    const std::int64_t before = s_.act_bytes;
    const std::int64_t fixed = round_up(records + vector, 128) + kBarrier + vector + s_.head_units * group * kRowUnit * s_.element;
    const std::int64_t all = round_up(program_.max_seq, kTile);
    s_.act_bytes = 0;
    std::int64_t rows = std::min((limits_.smem_optin_bytes - shared_bytes() - fixed - 128) / row / kTile * kTile, all);
    if (options_.staged_rows > 0) rows = std::min<std::int64_t>(rows, round_up(options_.staged_rows, kTile));
    if (rows < std::min<std::int64_t>(all, options_.staged_rows > 0 ? kTile : kFewRows))
      return reject_plan("attention-o-rows",
                         "attention and o_proj in one group read the cache from shared memory, at least " + std::to_string(std::min(all, kFewRows)) +
                             " positions at a time, " + std::to_string(row) + " bytes each; beside the ring there is room for " +
                             std::to_string(std::max<std::int64_t>(0, rows)) + ": a smaller smem_bytes_per_block",
                         {{"rows", rows}, {"row_bytes", row}});
    s_.staged_rows = rows;
    s_.act_bytes = round_up(std::max(before, fixed + s_.staged_rows * row), 128);
    return {};
  }

  Status check_size() {
    s_.shared_bytes = shared_bytes();
    if (s_.shared_bytes <= limits_.smem_optin_bytes) return {};
    const std::int64_t fixed = s_.shared_bytes - s_.slots * s_.slot_bytes, chunk = std::max<std::int64_t>(1, s_.slot_bytes);
    const std::int64_t largest = std::max<std::int64_t>(0, limits_.smem_optin_bytes - fixed) / chunk * chunk;
    const std::string staged =
        program_.batch == 1 ? ""
                            : ", " + std::to_string(s_.act_bytes) + " of them the input vectors of " + std::to_string(program_.batch) + " sequences";
    return reject_plan("shared-memory",
                       "a block needs " + std::to_string(s_.shared_bytes) + " bytes of shared memory (" + std::to_string(fixed) +
                           " besides the ring" + staged + "); the device allows " + std::to_string(limits_.smem_optin_bytes) +
                           ": smem_bytes_per_block at most " + std::to_string(largest),
                       {{"needed", s_.shared_bytes}, {"fixed", fixed}, {"allowed", limits_.smem_optin_bytes}, {"largest_ring", largest}});
  }

  const Program& program_;
  const ModelSpec& spec_;
  const ScheduleConfig& config_;
  const DeviceLimits& limits_;
  const PlanOptions& options_;
  DeviceShapes& s_;
};

}  // namespace

Status shape_shared_memory(const PlanInput& in, DeviceShapes& shapes) { return SharedMemory(in, shapes).shape(); }

}  // namespace amk
