// A tile's sums between registers and memory: outputs by the epilogue, and what a chain or a running total starts from.
#pragma once

#include "hopper_block.cuh"

__device__ __forceinline__ void store_tile(const HopperParams& p, float (&d)[kFragments][kRegs], const BlockTile& tile, u32 smem, int consumer,
                                           int warp, int lane, int& buffer) {
  const u32 staging = smem + DG_STAGES * kStageBytes + static_cast<u32>(consumer * 4 + warp) * kStagingBytes;
  const OutputView out{&p.out, p.out_pointer, p.out_stride, p.m, p.n, p.wide_stores != 0};
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
    store_fragment(out, d[f], tile.m + (consumer * kFragments + f) * 64 + warp * 16, tile.n, staging, lane, buffer);
  }
}

#if DG_CHUNK_BLOCKS || DG_RESUMED
__device__ __forceinline__ void load_total(const HopperParams& p, float (&total)[kFragments][kRegs], const BlockTile& tile, int consumer, int warp,
                                           int lane) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#if DG_SUM_PAIRS
    // Each load of a warp touches eight lines: two neighbours at once are half the loads. Which form it is must be known here: registers that two
    // branches define make ptxas wait for each matrix instruction, and predicated loads into the same registers wait for each other (both measured).
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 row = static_cast<u32>(tile.m + (consumer * kFragments + f) * 64 + warp * 16 + lane / 4 + half * 8);
      const float* from = p.total_in + static_cast<i64>(row) * p.n;
#pragma unroll
      for (int j = 0; j < kRegs / 4; ++j) {
        const u32 col = static_cast<u32>(tile.n + j * 8 + lane % 4 * 2);
        float2 pair = make_float2(0.0f, 0.0f);
        if (row < p.m && col < p.n) pair = *reinterpret_cast<const float2*>(from + col);
        total[f][j * 4 + half * 2] = pair.x;
        total[f][j * 4 + half * 2 + 1] = pair.y;
      }
    }
#else
#pragma unroll
    for (int i = 0; i < kRegs; ++i) {
      const u32 row = static_cast<u32>(tile.m + (consumer * kFragments + f) * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8);
      const u32 col = static_cast<u32>(tile.n + i / 4 * 8 + lane % 4 * 2 + i % 2);
      const i64 at = DG_TRANSPOSED ? static_cast<i64>(col) * p.m + row : static_cast<i64>(row) * p.n + col;
      total[f][i] = p.total_in != nullptr && row < p.m && col < p.n ? p.total_in[at] : 0.0f;
    }
#endif
  }
}
#endif
