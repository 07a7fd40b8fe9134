// Consumer warpgroups: matrix instructions over the ring's slots, and how a slot is given back. A tile's chain of blocks in one go.
#pragma once

#include "hopper_block.cuh"
#include "wgmma.cuh"

#if DG_LOW_N
DG_DEFINE_WGMMA(wgmma_k16_low, DG_LOW_N, DG_LOW_REGS, DG_LOW_REGS_PLUS_1, DG_LOW_REGS_PLUS_2, DG_LOW_REGS_PLUS_3, DG_LOW_REGS_PLUS_4)
DG_DEFINE_WGMMA(wgmma_k16_high, DG_HIGH_N, DG_HIGH_REGS, DG_HIGH_REGS_PLUS_1, DG_HIGH_REGS_PLUS_2, DG_HIGH_REGS_PLUS_3, DG_HIGH_REGS_PLUS_4)
#endif

// Tells every block that writes into this slot that this warpgroup has read it: one arrival per block, by one warp each. One warp may
// speak for four: wgmma is an operation of the warpgroup, and its four warps share the reads of the column tile. Remote arrivals cost about
// 25 cycles each at the receiver (measured), so there are no more of them than needed.
__device__ __forceinline__ void release(const Place& place, u32 smem, u32 slot, int warp, int lane) {
  const u32 barrier = empty_barrier(smem, slot);
  if constexpr (kClusterSize == 1) {
    if (warp == 0 && lane == 0) barrier_arrive(barrier);
  } else {
    const u32 self = place.rank_m + DG_CLUSTER_M * place.rank_n;
    const u32 rank = warp + 4 * lane;
    if (rank < kClusterSize && (rank % DG_CLUSTER_M == place.rank_m || rank / DG_CLUSTER_M == place.rank_n)) {
      if (rank == self)
        barrier_arrive(barrier);
      else
        barrier_arrive_remote(barrier, rank);
    }
  }
}

// A consumer warpgroup at its place in the ring.
struct Consumer {
  const HopperParams& p;
  const Place& place;
  u32 smem;
  int consumer, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  Ring ring;

  // Descriptors of what lies in this slot: this warpgroup's rows, and the columns.
  struct Tiles {
    u32 x, y;
  };
  __device__ __forceinline__ Tiles tiles() const {
    constexpr TileLayout kRows{DG_X_KMAJOR != 0, DG_TILE_M, DG_TILE_K, 64};
    const u32 at = smem + ring.slot * kStageBytes;
    return {XTile::descriptor(at + kRows.start(consumer * kFragments * 64, 0)), YTile::descriptor(at + kXBytes)};
  }

  // k16 steps [kFirst, kEnd) of the block in this slot, as one group.
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void issue(float (&d)[kFragments][kRegs], int accumulate) {
    const auto [x, y] = tiles();
    wgmma_fence();
#pragma unroll
    for (int step = kFirst; step < kEnd; ++step) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        wgmma_k16<!DG_X_KMAJOR, !DG_Y_KMAJOR>(d[f], XTile::descriptor(x, f * 64, step), YTile::descriptor(y, 0, step), accumulate);
      }
      accumulate = 1;
    }
    wgmma_commit();
  }
#if DG_LOW_N
  // The whole block in this slot for the low or the high part of the columns, as one group.
  template <bool kHigh>
  __device__ __forceinline__ void issue_part(float (&d)[kFragments][kRegs], int accumulate) {
    const auto [x, y] = tiles();
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < DG_TILE_K / 16; ++step) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        const u64 rows = XTile::descriptor(x, f * 64, step), columns = YTile::descriptor(y, kHigh ? DG_LOW_N : 0, step);
        if constexpr (kHigh)
          wgmma_k16_high<!DG_X_KMAJOR, !DG_Y_KMAJOR>(reinterpret_cast<float(&)[DG_HIGH_REGS]>(d[f][DG_LOW_REGS]), rows, columns, accumulate);
        else
          wgmma_k16_low<!DG_X_KMAJOR, !DG_Y_KMAJOR>(reinterpret_cast<float(&)[DG_LOW_REGS]>(d[f]), rows, columns, accumulate);
      }
      accumulate = 1;
    }
    wgmma_commit();
  }
#endif
  __device__ __forceinline__ void wait_full() const { barrier_wait(full_barrier(smem, ring.slot), ring.parity); }
};

// The block at c's place in the ring, into d; on return it may still be computed, the one before in this chain (in slot `previous`) is and has been
// given back.
__device__ __forceinline__ void consume_block(Consumer& c, bool first, u32& previous, float (&d)[kFragments][kRegs]) {
  c.wait_full();
  c.issue<0, DG_TILE_K / 16>(d, DG_RESUMED || !first);
  if (!first) {
    wgmma_wait<1>();
    release(c.place, c.smem, previous, c.warp, c.lane);
  }
  previous = c.ring.slot;
  c.ring.advance();
}

__device__ __forceinline__ void end_chain(Consumer& c, u32 previous, float (&d)[kFragments][kRegs]) {
  wgmma_wait<0>();
  release(c.place, c.smem, previous, c.warp, c.lane);
#pragma unroll
  for (int f = 0; f < kFragments; ++f) wgmma_pin(d[f]);
}

// The chain of blocks [at, end) into d, all of it computed on return. When the slot of the block before is given back, and the next one's data are
// waited for: with a producer warpgroup after a whole block has been issued; with a producer warp in the middle of one, so that nothing but the
// matrix units stands between two blocks. Measured: 64×32 tiles gain 2–3% from the second form, 128×128 tiles with a warpgroup lose 5%.
__device__ __forceinline__ void consume_chain(Consumer& c, u32 at, u32 end, float (&d)[kFragments][kRegs]) {
  u32 previous = 0;
#if DG_PRODUCER_WARP
  constexpr int kSteps = DG_TILE_K / 16;
  c.wait_full();
  for (u32 block = at; block < end; ++block) {
    c.issue<0, kSteps / 2>(d, DG_RESUMED || block != at);
    if (block != at) {
      wgmma_wait<1>();  // the block before
      release(c.place, c.smem, previous, c.warp, c.lane);
    }
    Ring next = c.ring;
    next.advance();
    const bool ready = block + 1 == end || barrier_try(full_barrier(c.smem, next.slot), next.parity);
    c.issue<kSteps / 2, kSteps>(d, 1);
    previous = c.ring.slot;
    c.ring = next;
    if (!ready) c.wait_full();
  }
#else
  for (u32 block = at; block < end; ++block) consume_block(c, block == at, previous, d);
#endif
  end_chain(c, previous, d);
}
