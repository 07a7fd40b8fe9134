// The producer: fills the ring's slots by TMA, tile after tile.
#pragma once

#include "hopper_block.cuh"

// Fills ring slots with what one k block needs of both operands.
struct Copier {
  const HopperParams& p;
  const Place& place;
  u32 smem;
  u64 policy_x = cache_policy<DG_HINT_X>(), policy_y = cache_policy<DG_HINT_Y>();
  u16 mask_x = 0, mask_y = 0;  // blocks that read the same row tile, the same column tile

  __device__ __forceinline__ Copier(const HopperParams& params, const Place& at, u32 base) : p(params), place(at), smem(base) {
    for (u32 i = 0; i < DG_CLUSTER_N; ++i) mask_x |= 1u << (place.rank_m + DG_CLUSTER_M * i);
    for (u32 i = 0; i < DG_CLUSTER_M; ++i) mask_y |= 1u << (i + DG_CLUSTER_M * place.rank_n);
  }
  __device__ __forceinline__ void fill(u32 slot, const BlockTile& tile, u32 block) const {
    const u32 full = full_barrier(smem, slot), at = smem + slot * kStageBytes;
    barrier_expect(full, kCopiedBytes);
    const int k = static_cast<int>(block * DG_TILE_K);
    XTile::copy<DG_CLUSTER_N, DG_HINT_X>(at, &p.x, &p.x, full, tile.m, k, static_cast<int>(place.rank_n), mask_x, policy_x);
    YTile::copy<DG_CLUSTER_M, DG_HINT_Y>(at + kXBytes, &p.y, &p.y_tail, full, tile.n, k, static_cast<int>(place.rank_m), mask_y, policy_y);
  }
};

__device__ __forceinline__ void produce(const HopperParams& p, const Place& place, u32 smem) {
  const Copier copier(p, place, smem);
  const u32 tiles = p.tiles_m * p.tiles_n;
  u32 index = place.cluster, block = 0;
  BlockTile tile{0, 0};
  if (index < tiles) tile = block_tile(p, place, index);
  if constexpr (DG_OVERLAP) {
    wait_for_previous_grid();
    launch_dependents();  // only now: each grid begins after the one before it has ended, so that at most two are on an SM
  }
  if (index < tiles)  // the first round of the ring waits for nobody
    for (; block < DG_STAGES && block < p.k_blocks; ++block) copier.fill(block, tile, block);
  Ring ring;
  ring.slot = block == DG_STAGES ? 0 : block;
  ring.parity = block == DG_STAGES;
  while (index < tiles) {
    for (; block < p.k_blocks; ++block) {
      barrier_wait(empty_barrier(smem, ring.slot), ring.parity ^ 1);
      copier.fill(ring.slot, tile, block);
      ring.advance();
    }
    index += place.clusters;
    block = 0;
    if (index < tiles) tile = block_tile(p, place, index);
  }
}
