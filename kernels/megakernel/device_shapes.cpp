#include "kernels/megakernel/device_shapes.h"

#include <algorithm>

#include "core/schedule/rules.h"
#include "kernels/megakernel/device_rules.h"

namespace amk {
namespace {

class Cutter {
 public:
  Cutter(const PlanInput& in, DeviceShapes& shapes) : spec_(in.spec()), config_(in.config), program_(in.program), s_(shapes) {}

  Status cut() {
    const Ring& ring = program_.ring;
    if (ring.ring_bytes > 0) {
      s_.slot_bytes = ring.chunk_bytes;
      s_.window = ring.inflight_chunks;
      if (!s_.bulk) {  // a cp.async group: cpa_cols columns of a unit, cpa_stages groups in flight
        s_.slot_bytes = std::min<std::int64_t>(s_.slot_bytes, std::int64_t{config_.kernel.cpa_cols} * kRowUnit * s_.element);
        s_.window = config_.kernel.cpa_stages;
      }
      s_.slots = ring.ring_bytes / s_.slot_bytes;
    }
    s_.group = choose_group();
    s_.hidden = rows_of(spec_.hidden);
    s_.q = rows_of(spec_.q_rows());
    s_.inter = rows_of(spec_.intermediate);
    s_.hoist = s_.slots == 0;
    if (s_.slots == 0) return {};
    return s_.slices ? ring_of_units() : ring_of_segments();
  }

 private:
  // Blocks that a warp loads at once, the same for every matrix: as many as registers allow (two groups are held), a divisor of every width.
  int choose_group() const {
    const int most = (s_.consumer_warps <= 8 ? 4 : s_.consumer_warps <= 16 ? 2 : 1) * (s_.int8 ? 2 : 1);  // the same registers
    for (int g = most; g > 1; --g) {
      bool divides = true;
      for (const int columns : {spec_.hidden, spec_.q_rows(), spec_.intermediate})
        divides = divides && padded_columns(columns) / kBlockColumns % g == 0;
      const std::int64_t bytes = g * block_bytes();
      if (divides && g * kBlockColumns <= config_.kernel.cols_per_warp && (s_.slot_bytes == 0 || bytes <= s_.slot_bytes)) return g;
    }
    return 1;
  }
  std::int64_t block_bytes() const { return std::int64_t{kBlockColumns} * (s_.packed ? kRowUnit : 1) * s_.element; }

  // Segments: the widest whole fraction of the row that cols_per_warp and the chunk allow, in whole groups.
  RowShape rows_of(int columns) const {
    const int blocks = static_cast<int>(padded_columns(columns) / kBlockColumns), group = s_.group;
    RowShape r;
    r.seg = group;
    for (int d = group; d <= blocks; d += group) {
      if (blocks % d == 0 &&
          (d == group || (d * kBlockColumns <= config_.kernel.cols_per_warp && (s_.slot_bytes == 0 || d * block_bytes() <= s_.slot_bytes))))
        r.seg = d;
    }
    r.segs_per_unit = blocks / r.seg;
    r.unit_sums = s_.packed ? std::min(r.segs_per_unit, s_.consumer_warps) : r.segs_per_unit;
    r.seg_bytes = r.seg * block_bytes();
    r.segs_per_chunk = s_.slot_bytes == 0 ? 1 : static_cast<int>(s_.slot_bytes / r.seg_bytes);
    // Slices: a group of units is a chunk, read by all warps in the ring's order, each giving back what it has read: none can be a turn ahead.
    r.unit_bytes = std::int64_t{blocks} * kBlockColumns * kRowUnit * s_.element;
    const int slice = (blocks + s_.consumer_warps - 1) / s_.consumer_warps;
    const std::int64_t held = std::min(std::max(1, kSliceBlocks / slice), s_.consumer_warps);
    r.group_units = static_cast<int>(s_.slots == 0 ? held : std::min(held, s_.slot_bytes / r.unit_bytes));
    return r;
  }

  Status ring_of_units() {
    for (const RowShape* r : {&s_.hidden, &s_.q, &s_.inter}) {
      if (r->unit_bytes > s_.slot_bytes)
        return reject_plan("slices-needs-whole-units",
                           "kernel_knobs.gemv_path \"slices\" reads the ring in whole units of 8 rows, " + std::to_string(r->unit_bytes) +
                               " bytes for this model's widest matrix; a slot of its ring has " + std::to_string(s_.slot_bytes) +
                               ": a larger kernel_knobs.chunk_bytes, or smem_bytes_per_block 0",
                           {{"unit", r->unit_bytes}, {"slot", s_.slot_bytes}});
    }
    s_.boost = std::clamp<std::int64_t>(s_.slots - s_.window, 0, kBoostChunks);
    return {};
  }

  // A warp must never be a whole turn of the ring ahead of the copies, or it would take one turn's barrier phase for another's: between two of its
  // segments lie at most ceil(warps / segments per chunk) chunks, and copies land at most `window` out of order (docs/megakernel-vm.md).
  Status ring_of_segments() {
    AMK_CHECK(chunks_of_the_cache());
    int fewest = std::min({s_.hidden.segs_per_chunk, s_.q.segs_per_chunk, s_.inter.segs_per_chunk});
    if (s_.cache_group > 0) fewest = std::min(fewest, s_.cache_group / kTile);
    const std::int64_t ahead = (s_.consumer_warps + fewest - 1) / fewest, needed = ahead + s_.window;
    if (s_.slots < needed)
      return reject_plan("ring-turn",
                         "the ring has " + std::to_string(s_.slots) + " slots; " + std::to_string(s_.consumer_warps) + " consumer warps with " +
                             std::to_string(fewest) + " segments a chunk and " + std::to_string(s_.window) + " copies in flight need " +
                             std::to_string(needed) + ": a larger ring, smaller chunks or fewer columns per warp",
                         {{"slots", s_.slots}, {"needed", needed}});
    s_.boost = std::min<std::int64_t>(kBoostChunks, s_.slots - needed);
    // Opening a task's first segment before its wait puts up to two tasks' chunks between a warp's segments.
    s_.hoist = s_.slots >= needed + s_.boost + ahead + 1;
    return {};
  }

  // kv_path ring: a chunk of the cache is as many rows of keys and of values as a slot holds, of one KV block.
  Status chunks_of_the_cache() {
    if (config_.kernel.kv_path == KvPath::Direct) return {};
    if (!matrix_attention(spec_))
      return reject_plan("kv-ring-needs-mma-attention",
                         "kernel_knobs.kv_path \"ring\" needs a bf16 model, head_dim 32, 64, 96 or 128 and at most 8 query heads a kv head",
                         {{"kv_path", "ring"}, {"head_dim", spec_.head_dim}});
    const std::int64_t row = std::int64_t{2} * spec_.head_dim * dtype_bytes(s_.format.kv);
    int group = program_.attention.kv_block;
    while (group >= kTile && group * row > s_.slot_bytes) group /= 2;
    if (group < kTile)
      return reject_plan("kv-ring-chunk",
                         "a chunk of the cache is at least " + std::to_string(kTile) + " positions, " + std::to_string(kTile * row) +
                             " bytes; a slot of the ring has " + std::to_string(s_.slot_bytes),
                         {{"slot_bytes", s_.slot_bytes}, {"needed", kTile * row}});
    s_.cache_group = group;
    return {};
  }

  const ModelSpec& spec_;
  const ScheduleConfig& config_;
  const Program& program_;
  DeviceShapes& s_;
};

}  // namespace

Status shape_rows_and_ring(const PlanInput& in, DeviceShapes& shapes) { return Cutter(in, shapes).cut(); }

Result<DeviceShapes> shape_device(const PlanInput& in) {
  AMK_CHECK(check_device_rules(in.program, in.config, in.limits));
  const ModelSpec& spec = in.spec();
  DeviceShapes s;
  s.format = gpu_format(spec.dtype);
  s.bulk = in.limits.sm_major >= 9 && !in.config.kernel.cpasync;
  s.packed = in.config.kernel.weight_layout == WeightLayout::Packed;
  s.persistent = in.program.step_sync == StepSync::Persistent;
  s.int8 = spec.weight_format == WeightFormat::Int8;
  s.slices = in.config.kernel.gemv_path == GemvPath::Slices;
  s.element = dtype_bytes(spec.matrix_dtype());
  s.consumer_warps = in.config.threads_per_block / 32 - 1;
  AMK_CHECK(shape_rows_and_ring(in, s));
  AMK_CHECK(shape_shared_memory(in, s));
  return s;
}

}  // namespace amk
