// The KV cache: how its rows lie, in memory and in the ring.
#pragma once

#include "block.cuh"
#include "cache_ranges.cuh"

namespace amk_vm {

constexpr u32 kCacheRowBytes = kHeadDim * kBytesOf<kKvType>;
constexpr u32 kGroupTiles = kCacheGroup / kTile;  // of a chunk: kCacheGroup rows of keys, then the same rows of values
static_assert(kCacheGroup == 0 || (kAttentionMma && kSlots > 0 && kKvBlock % kCacheGroup == 0 && 2 * kCacheGroup * kCacheRowBytes <= kSlotBytes),
              "the host sees to it");

// Element index of a cache row: [sequence][layer][k, v][kv head][position][dim].
__device__ __forceinline__ u64 cache_row(u32 seq, u32 layer, u32 which, u32 head, u32 position) {
  if constexpr (kBatch > 1) layer += seq * kLayers;
  return (((static_cast<u64>(layer) * 2 + which) * kKvHeads + head) * kMaxSeq + position) * kHeadDim;
}
// Element `dim` of it: rows that matrix instructions read have their pieces of 16 bytes in an order of their own (layout.cuh).
__device__ __forceinline__ u64 cache_element(u32 seq, u32 layer, u32 which, u32 head, u32 position, u32 dim) {
  if constexpr (kAttentionMma) dim ^= cache_swizzle(kHeadDim, position) * 8;
  return cache_row(seq, layer, which, head, position) + dim;
}

using Ranges = CacheRanges<kKvBlock, kSplits, kSplitStep, kSlidingWindow, kCacheGroup, kCacheRingFrom>;

}  // namespace amk_vm
