// What a task of slices (slices.cuh) is to its warps: its descriptor in registers, blocks of columns a warp, units a group.
#pragma once

#include "block.cuh"

namespace amk_vm {

constexpr int slice_blocks(int columns) { return ((columns + 63) / 64 + kConsumerWarps - 1) / kConsumerWarps; }
constexpr int kHiddenSlice = slice_blocks(kHidden), kQSlice = slice_blocks(kQRows), kInterSlice = slice_blocks(kInter);
constexpr int kGroupPieces = 8;  // 16-byte registers of weights that a warp holds: a group of units over its blocks
template <int Blocks>
constexpr u32 kGroupUnits = kGroupPieces / (2 * Blocks);
static_assert(!kSlices || (kHiddenSlice <= 4 && kQSlice <= 4 && kInterSlice <= 4), "the host sees to it");

// A task's descriptor in registers: what stands behind a barrier must not wait for shared memory first.
struct GemvTask {
  u32 op, matrix, fused, weight, row_begin, row_end, input, norm, bias, residual, output, output2, layer, head;
  u32 input_tag, residual_tag, tag;  // of this step
  __device__ __forceinline__ GemvTask(const Block& block, const Params& p, u32 index) {
    const u32 at = shared_address(&block.task(index));
    const uint4 a = load_shared16(at), b = load_shared16(at + 16), c = load_shared16(at + 32), d = load_shared16(at + 48);
    op = a.x & 0xff, matrix = a.x >> 8 & 0xff, fused = a.x >> 16, weight = a.y, row_begin = a.z, row_end = a.w;
    input = b.x, norm = b.y, bias = b.z, residual = b.w, output = c.x, output2 = c.y;
    const u32 base = tag_base(p);
    input_tag = base + (d.y & 0xffff), residual_tag = base + (d.y >> 16), layer = d.z & 0xffff, head = d.z >> 16, tag = base + (d.w >> 16);
  }
  __device__ __forceinline__ u32 units() const { return (row_end - row_begin + kUnit - 1) / kUnit; }
  __device__ __forceinline__ bool in_groups() const { return op == kOpGemv && matrix != kLmHead; }
};

// Vectors that the residual behind attention is the sum of, [kSums][kHidden].
constexpr int kSums = kAttentionO ? kKvHeads : 1;

// Units of a group, by the matrix' width. With a ring a group is a chunk.
template <int Blocks>
constexpr u32 units_at_once(u32 blocks) {
  // A warp finishes at most one unit of a group.
  const u32 held = kGroupUnits<Blocks> < kConsumerWarps ? kGroupUnits<Blocks> : kConsumerWarps;
  const u32 chunk = kSlots > 0 ? kSlotBytes / (blocks * 1024) : held;
  return held < chunk ? held : chunk;
}
constexpr u32 kHiddenBlocks = (kHidden + 63) / 64, kQBlocks = (kQRows + 63) / 64, kInterBlocks = (kInter + 63) / 64;
constexpr u32 kHiddenUnits = units_at_once<kHiddenSlice>(kHiddenBlocks), kQUnits = units_at_once<kQSlice>(kQBlocks),
              kInterUnits = units_at_once<kInterSlice>(kInterBlocks);
static_assert(kHiddenUnits > 0 && kQUnits > 0 && kInterUnits > 0, "the host sees to it");
__device__ __forceinline__ u32 units_at_once_of(u32 matrix) { return matrix == kO ? kQUnits : matrix == kDown ? kInterUnits : kHiddenUnits; }

}  // namespace amk_vm
