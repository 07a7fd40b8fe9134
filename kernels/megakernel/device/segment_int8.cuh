// One warp's dot products over one segment of int8 weights: 8 rows by Seg * 64 columns, the vector in fixed point from shared memory
// (fixed_point.cuh).
//
// A unit of 8 rows is a row of blocks of 64 columns, 512 bytes each: lane 4g + t holds row g, columns 16t … 16t+15, 16 bytes. One m16n8k32 takes them
// as they were loaded: matrix rows 0–7 are the unit's rows over the lane's first and third four columns (half 0), rows 8–15 the same rows over its
// second and fourth (half 1). Columns 2l and 2l + 1 of the right-hand side are limb l of the vector at half 0 and half 1, so that row g's sum of limb
// l is C[g][2l] + C[8+g][2l+1], both in lane 4g + l; the other entries of C, columns 6 and 7 among them, mean nothing. Sums are exact: at most 2^17
// columns of 127 * 128 (core/program/packing.cpp).
#pragma once

#include "fixed_point.cuh"

namespace amk_vm {

__device__ __forceinline__ void mma16832(int (&c)[4], uint4 a, uint2 b) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

// As Group, GroupVector and Sums in segment.cuh.
struct Int8Group {
  uint4 a[kGroupBlocks];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kGroupBlocks; ++j) a[j] = make_uint4(0, 0, 0, 0);
  }
  template <class Source>
  __device__ __forceinline__ void load(const Source& source) {
#pragma unroll
    for (int j = 0; j < kGroupBlocks; ++j) a[j] = source.load(j * 512);
  }
};

struct Int8Vector {
  uint2 x[kGroupBlocks];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (uint2& v : x) v = make_uint2(0, 0);
  }
  // Lane 4n + t: column n of the right-hand side. Columns 6 and 7 repeat the last limb.
  __device__ __forceinline__ void load(u32 act, u32 lane, u32 = 0) {  // one sequence: no stride
    const u32 limb = lane / 8 < kLimbs ? lane / 8 : kLimbs - 1;
    const u32 at = act + limb * 64 + lane / 4 % 2 * 32 + lane % 4 * 8;
#pragma unroll
    for (int j = 0; j < kGroupBlocks; ++j) x[j] = load_shared8(at + j * kLimbBlockBytes);
  }
};

// What this lane's part of a row is worth: of its limb.
__device__ __forceinline__ float limb_worth(u32 lane) {
  const u32 t = lane % 4;
  return t == 0 ? 1.0f : t == 1 ? 256.0f : t == 2 ? 65536.0f : 0.0f;
}
// Row g's sum, in units of the vector's 2^-k, of all parts: in lane 4g.
__device__ __forceinline__ float int8_row(int part, float worth) {
  float sum = worth * static_cast<float>(part);
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

struct Int8Sums {
  int c[2][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 2; ++i) c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0;
  }
  __device__ __forceinline__ void add(const Int8Group& w, const Int8Vector& v) {
#pragma unroll
    for (int j = 0; j < kGroupBlocks; ++j) mma16832(c[j % 2], w.a[j], v.x[j]);
  }
  // This lane's part of row g's sum, exact: of one limb.
  __device__ __forceinline__ int part() const { return (c[0][0] + c[0][3]) + (c[1][0] + c[1][3]); }
  __device__ __forceinline__ float row(int = 0) const { return int8_row(part(), limb_worth(thread_index())); }
};

// What of a step is left for the next one's latencies: a step's products, added to those of its unit so far, and where the unit's sums go when it is
// complete. Integers: the order of additions is free.
struct Int8Pending {
  int part = 0;
  u32 at = 0;  // 0: the unit goes on
  float worth;
  __device__ __forceinline__ explicit Int8Pending(u32 lane) : worth(limb_worth(lane)) {}
  __device__ __forceinline__ void begin(Int8Sums& mine, const Int8Sums&) const { mine.clear(); }
  __device__ __forceinline__ void settle(const Int8Sums& before, u32 lane) {
    part += before.part();
    if (at == 0) return;
    store_shared_if(at, int8_row(part, worth), lane % 4 == 0);
    part = 0;
  }
};

}  // namespace amk_vm
