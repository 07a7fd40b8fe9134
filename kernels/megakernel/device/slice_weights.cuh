// Weights of slices (slices.cuh): the next group in registers, from the ring or from memory, and what later tasks will read on its way into L2.
#pragma once

#include "attention.cuh"
#include "segment.cuh"
#include "slice_task.cuh"

namespace amk_vm {

constexpr u32 kAheadTasks = 5;   // how far L2 is ahead of the registers: about a layer
constexpr u32 kAheadGroups = 3;  // likewise within a task of many groups

struct Weights {
  uint4 piece[kGroupPieces];
  RingCursor ring;  // the next chunk
};

__device__ __forceinline__ void load_weight16_if(uint4& v, const u8* p, bool yes) {
  v = make_uint4(0, 0, 0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(p), "r"(static_cast<u32>(yes)));
}
__device__ __forceinline__ void load_piece_if(uint4& v, u32 address, bool yes) {
  v = make_uint4(0, 0, 0, 0);
  load_shared16_over(v, address, yes);
}

// Units first, first + 1, … of the task over this warp's blocks. What is not there is zero. With a ring the group is the ring's next chunk, given
// back once it is in registers.
template <int Blocks, u32 Units>
__device__ __forceinline__ void load_group(const Block& block, const Params& p, u32 weight, u32 units, u32 blocks, u32 first, u32 warp, u32 lane,
                                           Weights& w) {
  const u32 offset = warp * 1024 + lane * 16;
  const u8* direct = nullptr;
  u32 chunk = 0;
  if constexpr (kSlots > 0) {
    const u64 begin = trace_wait_begin();
    wait_barrier(block, block.full(w.ring.slot), w.ring.phase());
    trace_wait_end(begin);
    chunk = block.base() + kShared.ring + w.ring.slot * kSlotBytes + offset;
  } else {
    direct = p.weights + static_cast<u64>(weight) * 16 + static_cast<u64>(first) * blocks * 1024 + offset;
  }
#pragma unroll
  for (u32 u = 0; u < Units; ++u) {
#pragma unroll
    for (int j = 0; j < Blocks; ++j) {
      const bool there = first + u < units && warp + j * kConsumerWarps < blocks;
      const u32 at = (u * blocks + j * kConsumerWarps) * 1024;
      if constexpr (kSlots > 0) {
        load_piece_if(w.piece[(u * Blocks + j) * 2], chunk + at, there);
        load_piece_if(w.piece[(u * Blocks + j) * 2 + 1], chunk + at + 512, there);
      } else {
        load_weight16_if(w.piece[(u * Blocks + j) * 2], direct + at, there);
        load_weight16_if(w.piece[(u * Blocks + j) * 2 + 1], direct + at + 512, there);
      }
    }
  }
#pragma unroll
  for (int i = Units * Blocks * 2; i < kGroupPieces; ++i) w.piece[i] = make_uint4(0, 0, 0, 0);
  if constexpr (kSlots > 0) {
    __syncwarp();
    mbarrier_arrive_many(block.empty(w.ring.slot), 1, lane);
    w.ring.advance(1, kSlots);
  }
}
__device__ __forceinline__ void load_weights(const Block& block, const Params& p, u32 matrix, u32 weight, u32 units, u32 first, u32 warp, u32 lane,
                                             Weights& w) {
  if (kInterBlocks != kHiddenBlocks && matrix == kDown) {
    load_group<kInterSlice, kInterUnits>(block, p, weight, units, kInterBlocks, first, warp, lane, w);
  } else if (kQBlocks != kHiddenBlocks && matrix == kO) {
    load_group<kQSlice, kQUnits>(block, p, weight, units, kQBlocks, first, warp, lane, w);
  } else {
    load_group<kHiddenSlice, kHiddenUnits>(block, p, weight, units, kHiddenBlocks, first, warp, lane, w);
  }
}
// A group of task i, if it is a GEMV in groups. Weights are held across no other task: attention has no registers for them.
__device__ __forceinline__ void load_next(const Block& block, const Params& p, u32 i, u32 first, u32 count, u32 warp, u32 lane, Weights& w) {
  const uint4 a = i < count ? load_shared16(shared_address(&block.task(i))) : make_uint4(0, 0, 0, 0);
  const u32 matrix = a.x >> 8 & 0xff;
  if ((a.x & 0xff) == kOpGemv && matrix != kLmHead) {
    load_weights(block, p, matrix, a.y, (a.w - a.z + kUnit - 1) / kUnit, first, warp, lane, w);
  } else {
#pragma unroll
    for (uint4& piece : w.piece) piece = make_uint4(0, 0, 0, 0);
  }
}

__device__ __forceinline__ void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
// Without a ring: the lines of a group into L2, a hint.
template <u32 Slice, u32 Units>
__device__ __forceinline__ void prefetch_group(const Params& p, u32 weight, u32 units, u32 blocks, u32 first, u32 warp, u32 lane) {
  static_assert(Units * Slice <= 4, "a line a lane");
  const u32 unit = first + lane / (Slice * 8), at = warp + lane / 8 % Slice * kConsumerWarps;
  if (lane >= Units * Slice * 8 || unit >= units || at >= blocks) return;
  prefetch_line(p.weights + static_cast<u64>(weight) * 16 + (static_cast<u64>(unit) * blocks + at) * 1024 + lane % 8 * 128);
}
__device__ __forceinline__ void prefetch_group(const Params& p, u32 matrix, u32 weight, u32 units, u32 first, u32 warp, u32 lane) {
  if (matrix == kDown) return prefetch_group<kInterSlice, kInterUnits>(p, weight, units, kInterBlocks, first, warp, lane);
  if (matrix == kO) return prefetch_group<kQSlice, kQUnits>(p, weight, units, kQBlocks, first, warp, lane);
  prefetch_group<kHiddenSlice, kHiddenUnits>(p, weight, units, kHiddenBlocks, first, warp, lane);
}
__device__ __forceinline__ void prefetch_later_group(const Block& block, const Params& p, u32 i, u32 first, u32 warp, u32 lane) {
  const TaskDesc& task = block.task(i);
  const u32 units = (task.row_end - task.row_begin + kUnit - 1) / kUnit;
  prefetch_group(p, task.matrix, task.weight, units, first + (kAheadGroups - 1) * units_at_once_of(task.matrix), warp, lane);
}
// The weights of an attention_o task; of the cache's rows, which many tasks of a head read, each asks for its share.
__device__ __forceinline__ void prefetch_attention_o(const Params& p, const TaskDesc& task, u32 warp, u32 lane) {
  const u32 rows = task.row_end - task.row_begin, unit = warp;
  constexpr u32 kLines = kGqa * kHeadDim / 64 * 8;  // of a unit: 1024 bytes a block of 64
  const u8* weights = p.weights + static_cast<u64>(task.weight) * 16;
#pragma unroll 1
  for (u32 i = lane; unit < rows / kUnit && i < kLines; i += 32) prefetch_line(weights + unit * (kQBlocks * 1024) + i * 128);
  if (warp != kConsumerWarps - 1) return;
  const int position = position_of(p, 0);
#pragma unroll 1
  for (u32 i = task.row_begin / rows * kTile + lane % kTile; i < static_cast<u32>(position); i += kHidden / rows * kTile) {
    const u8* row = p.kv + cache_row(0, task.layer, lane / kTile, task.head, i) * 2;
#pragma unroll
    for (u32 line = 0; line < kHeadDim * 2; line += 128) prefetch_line(row + line);
  }
}
// What a task some way ahead will read: the cache's rows, the norm's weights, without a ring also the matrix. With attention_o and a ring nothing:
// its context is a short one, whose rows are in L2 from the step before, as norms are, and the asking took a block longer than it could save.
__device__ __forceinline__ void prefetch_task(const Block& block, const Params& p, u32 i, u32 count, u32 warp, u32 lane) {
  if (i >= count || (kAttentionO && kSlots > 0)) return;
  const TaskDesc& task = block.task(i);
  if (task.op == kOpAttentionTile) return prefetch_attention(p, task, warp, lane);
  if constexpr (kAttentionO) {
    if (task.op == kOpAttentionO) return prefetch_attention_o(p, task, warp, lane);
  }
  if (task.op != kOpGemv) return;
  if (lane == 0 && task.norm != kNoOffset && warp * 64 < kHidden) prefetch_line(p.vectors + task.norm + warp * 128);
  if constexpr (kSlots == 0) {
    const u32 units = (task.row_end - task.row_begin + kUnit - 1) / kUnit, step = units_at_once_of(task.matrix);
#pragma unroll 1
    for (u32 g = 0; g < kAheadGroups && g * step < units; ++g) prefetch_group(p, task.matrix, task.weight, units, g * step, warp, lane);
  }
}

}  // namespace amk_vm
