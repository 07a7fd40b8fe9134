// DG_LOW_N: the chunked class in two parts of the columns.
#pragma once

#include "hopper_consume.cuh"

#if DG_LOW_N
// All chunks of a tile, in two parts of its columns, so that while one part of the sums is added to the total the matrix units work on the other: the
// low part is added while the chunk's last block is computed for the high part, the high part while the next chunk's first block is for the low.
// The parts stay apart in all blocks: ptxas serialises matrix instructions that see the same accumulators now whole, now in parts.
template <bool kHigh>
__device__ __forceinline__ void add_part(float (&total)[kFragments][kRegs], float (&d)[kFragments][kRegs]) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#pragma unroll
    for (int i = kHigh ? DG_LOW_REGS : 0; i < (kHigh ? kRegs : DG_LOW_REGS); ++i) {
      asm volatile("" : "+f"(d[f][i])::"memory");
      total[f][i] += d[f][i];
    }
  }
}

__device__ __forceinline__ void consume_chunks(Consumer& c, float (&total)[kFragments][kRegs]) {
  float d[kFragments][kRegs];
  u32 previous = 0;
  const u32 blocks = c.p.k_blocks;
  c.wait_full();
  for (u32 at = 0; at < blocks; at += DG_CHUNK_BLOCKS) {
    const u32 end = blocks - at < DG_CHUNK_BLOCKS ? blocks : at + DG_CHUNK_BLOCKS;
    for (u32 block = at; block < end; ++block) {
      Ring next = c.ring;
      next.advance();
      bool ready = true;
      const bool first = block == at, last = block + 1 == end;
      c.issue_part<false>(d, !first);
      if (block > 0) {
        wgmma_wait<1>();
        if (first) add_part<true>(total, d);
        release(c.place, c.smem, previous, c.warp, c.lane);
      }
      if (block + 1 < blocks) ready = barrier_try(full_barrier(c.smem, next.slot), next.parity);
      c.issue_part<true>(d, !first);
      if (last) {
        wgmma_wait<1>();
        add_part<false>(total, d);
      }
      previous = c.ring.slot;
      c.ring = next;
      if (!ready) c.wait_full();
    }
  }
  wgmma_wait<0>();
  add_part<true>(total, d);
  release(c.place, c.smem, previous, c.warp, c.lane);
}
#endif
