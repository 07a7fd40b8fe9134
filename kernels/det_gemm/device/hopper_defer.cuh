// DG_DEFER: a tile's outputs are stored beside the next tile's first blocks.
#pragma once

#include "hopper_consume.cuh"

#if DG_DEFER
// Outputs on their way: the last DG_DEFER parts of a tile are packed to half the registers as soon as its chain ends, so that the next one starts
// early, and stored a part a block beside that one's first blocks.
struct Deferred {
  static constexpr int kFirst = kStoreParts - DG_DEFER;  // a part is 64 columns: 16 pairs
  OutputView out;
  u32 staging;
  int lane;
  int row0 = 0x7FFFFFFF, col0 = 0, buffer = 0;
  u32 packed[DG_DEFER * 16];

  template <int kPart = 0>
  __device__ __forceinline__ void store_first(const float (&d)[kRegs]) {
    if constexpr (kPart < kFirst) {
      store_part<kPart>(out, d, row0, col0, staging, lane, buffer);
      store_first<kPart + 1>(d);
    }
  }
  __device__ __forceinline__ void take(const float (&d)[kRegs], int row, int col) {
    row0 = row, col0 = col;
#pragma unroll
    for (int i = 0; i < DG_DEFER * 16; ++i) {
      packed[i] = packed_pair(d, kFirst * 16 + i);
      asm volatile("" : "+r"(packed[i]));  // here, not where it is stored: the accumulators are about to be used again
    }
    store_first(d);
  }
  template <int kPart>
  __device__ __forceinline__ void store() {
    store_part<kPart>(out, packed, row0, col0 + kFirst * 64, staging, lane, buffer);
  }
  template <int kPart = 0>
  __device__ __forceinline__ void store_all() {
    if constexpr (kPart < DG_DEFER) {
      store<kPart>();
      store_all<kPart + 1>();
    }
  }
  // A chain's first blocks, each with a part beside it.
  template <int kPart = 0>
  __device__ __forceinline__ void first_blocks(Consumer& c, u32& previous, float (&d)[kFragments][kRegs]) {
    if constexpr (kPart < DG_DEFER) {
      consume_block(c, kPart == 0, previous, d);
      store<kPart>();
      first_blocks<kPart + 1>(c, previous, d);
    }
  }
};

__device__ __forceinline__ void consume_beside(Consumer& c, float (&d)[kFragments][kRegs], Deferred& stores) {
  u32 previous = 0;
  stores.first_blocks(c, previous, d);
  for (u32 block = DG_DEFER; block < c.p.k_blocks; ++block) consume_block(c, false, previous, d);
  end_chain(c, previous, d);
}
#endif
