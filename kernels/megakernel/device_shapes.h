// The shapes of a plan: how rows of weights are cut for warps and chunks, the ring, and what a block keeps in shared memory beside it. Whatever of a
// plan may be refused, but for rules that know no shape (device_rules.h) and for offsets, is refused here. Pure. Internal to kernels/megakernel.
#pragma once

#include <cstdint>

#include "core/program/packing.h"
#include "core/program/program.h"
#include "core/schedule/config.h"
#include "kernels/megakernel/device/cache_ranges.cuh"
#include "kernels/megakernel/device_plan.h"
#include "kernels/megakernel/gpu_layout.h"

namespace amk {

// What a plan is made of. References: for as long as it is being made.
struct PlanInput {
  const Program& program;
  const ScheduleConfig& config;
  const DeviceLimits& limits;
  const PlanOptions& options;
  const ModelSpec& spec() const { return program.model; }
};

// How the rows of one width are cut.
struct RowShape {
  int seg = 1;            // blocks of 64 columns a segment
  int segs_per_unit = 1;  // per row in the row layout
  std::int64_t seg_bytes = 0;
  int segs_per_chunk = 1;
  int unit_sums = 1;  // partial sums of a row: a warp adds up its own segments of a unit
  // Slices: a unit of 8 rows whole, and as many as are a group, which is a chunk of the ring.
  std::int64_t unit_bytes = 0;
  int group_units = 1;
  int stride() const { return unit_sums * kRowUnit + kRowUnit; }
};

struct DeviceShapes {
  // The paths.
  NumericFormat format;
  bool bulk = true, packed = true, persistent = false, int8 = false, slices = false;
  int element = 2;  // bytes of a matrix's elements
  int consumer_warps = 0;
  // Rows and ring (device_shapes.cpp).
  std::int64_t slots = 0, slot_bytes = 0, boost = 0;
  int window = 1, group = 1, cache_group = 0;
  bool hoist = false;
  RowShape hidden, q, inter;
  // Shared memory (device_shared.cpp).
  int slot_arrivals = 1, partial_floats = 0;
  std::int64_t act_bytes = 0, act_stride = 0, wide_slots = 0, wide_stride = 0, limbs_at = 0, staged_rows = 0;
  int down_segs = 0, o_segs = 0, head_units = 0;
  bool finishers = false, norm_direct = false;
  int threads = 0;  // of the launch
  std::uint32_t longest_queue = 1;
  std::int64_t table_bytes = 0, shared_bytes = 0;

  bool direct() const { return down_segs > 0 || o_segs > 0; }
  const RowShape& rows_of(Matrix matrix) const { return matrix == Matrix::O ? q : matrix == Matrix::Down ? inter : hidden; }
  // Whether a task's weights, or the rows of the cache that it reads, come through the ring.
  bool takes_ring(const Task& task) const { return slots > 0 && (task.op == Opcode::Gemv || (task.op == Opcode::AttentionTile && cache_group > 0)); }
};

// The parts, in this order: each needs what is before it.
Status shape_rows_and_ring(const PlanInput& in, DeviceShapes& shapes);
Status shape_shared_memory(const PlanInput& in, DeviceShapes& shapes);

// All of it, the rules that know no shape first.
Result<DeviceShapes> shape_device(const PlanInput& in);

// Vectors that the host fills before a launch (core/program/lower_instruction.h); a given cache is the sequence's.
inline bool given_vector(const Buffer& b) { return b.space == Space::Input && b.dtype != DType::I32 && b.shape.size() == 1; }

constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

constexpr int kTile = amk_vm::kTile;      // positions that a warp takes at a time
constexpr std::int64_t kBoostChunks = 1;  // copies beyond the window while consumers are in the task being loaded (docs/lab/megakernel.md)
constexpr int kSequencesAtOnce = 4;       // of one matrix instruction: device/segment.cuh

}  // namespace amk
