// One warp's dot products over one segment: 8 rows (packed layout) or one row (row layout) by Seg * 64 columns, activations from shared memory.
//
// Packed layout: a unit of 8 rows is a row of blocks of 64 columns, 1 KB each: 32 lanes * 16 bytes, twice. Lane 4g + t holds row g, columns
// 16t … 16t+7 in the first half and 16t+8 … 16t+15 in the second. One m16n8k16 takes one half as it was loaded, four registers in their order
// (anything else costs a move a register): matrix rows 0–7 are the unit's rows over the lane's first and third pair of columns, rows 8–15 the same
// rows over its second and fourth. The vector's matching pairs are columns 0 and 1 of the right-hand side, so that C[g][0] + C[8+g][1] is the row's
// sum over all. For that the staged vector has the pairs of every 16 columns in the order 0 2 4 6, 1 3 5 7.
// Sequence s of a batch has columns 2s and 2s + 1, so that lane 4g + s holds row g's sum in the same two registers, by the same additions: four
// sequences cost no instruction more than one. Columns of no sequence are zero, or for one sequence mean nothing. Beyond four a second product of
// the same weights takes the rest.
#pragma once

#include "block.cuh"

namespace amk_vm {

__device__ __forceinline__ void mma16816(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  if constexpr (kWeightType == kBF16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Where a segment's weights come from: a slot of the ring, or memory.
struct RingSource {
  u32 address;
  __device__ __forceinline__ RingSource moved(u32 bytes) const { return {address + bytes}; }
  __device__ __forceinline__ uint4 load(u32 offset) const { return load_shared16(address + offset); }
};
struct MemorySource {
  const u8* pointer;
  __device__ __forceinline__ MemorySource moved(u32 bytes) const { return {pointer + bytes}; }
  __device__ __forceinline__ uint4 load(u32 offset) const { return load_weight16(pointer + offset); }
};

// Eight products of 2-byte elements, or four of fp32.
__device__ __forceinline__ float dot16(uint4 w, uint4 x, float sum) {
  if constexpr (kWeightType == kF32) {
    sum = fmaf(__uint_as_float(w.x), __uint_as_float(x.x), sum);
    sum = fmaf(__uint_as_float(w.y), __uint_as_float(x.y), sum);
    sum = fmaf(__uint_as_float(w.z), __uint_as_float(x.z), sum);
    return fmaf(__uint_as_float(w.w), __uint_as_float(x.w), sum);
  } else {
    const u32 ws[4] = {w.x, w.y, w.z, w.w}, xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float w0, w1, x0, x1;
      unpack_pair<kWeightType>(ws[i], w0, w1);
      unpack_pair<kWeightType>(xs[i], x0, x1);
      sum = fmaf(w0, x0, sum);
      sum = fmaf(w1, x1, sum);
    }
    return sum;
  }
}

// Packed layout, in groups of kGroupBlocks blocks. A group is loaded while the one before it is multiplied: a warp alone would leave shared memory
// idle during its products, and the other way round.
struct Group {
  uint4 a[kGroupBlocks], b[kGroupBlocks];
  // Before loads that depend on a condition: the assembler takes a register that is not always written for one that lives through the loop over
  // tasks.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kGroupBlocks; ++j) a[j] = b[j] = make_uint4(0, 0, 0, 0);
  }
  template <class Source>
  __device__ __forceinline__ void load(const Source& source) {  // source: of this lane
#pragma unroll
    for (int j = 0; j < kGroupBlocks; ++j) {
      a[j] = source.load(j * 1024);
      b[j] = source.load(j * 1024 + 512);
    }
  }
};

constexpr int kSets = (kBatch + 3) / 4;  // of four sequences

// Of a lane, in bytes: where its piece of a block of the staged vectors lies.
__device__ __forceinline__ u32 batch_lane_offset(u32 lane, u32 stride) { return lane % 4 * 32 + lane / 4 % 2 * 16 + lane / 8 * stride; }

// The vectors' pieces that go with a group.
struct GroupVector {
  uint4 x[kMma ? kSets * kGroupBlocks : 2 * kGroupBlocks];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (uint4& v : x) v = make_uint4(0, 0, 0, 0);
  }
  // act: of the group's first column. Matrix instructions: lanes 8 and up keep the zeros of clear().
  // Several sequences: act is of this lane's piece (batch_lane_offset).
  __device__ __forceinline__ void load(u32 act, u32 lane, u32 stride) {
    if constexpr (kBatch > 1) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
#pragma unroll
        for (int j = 0; j < kGroupBlocks; ++j) {
          const u32 at = act + j * 128 + set * 4 * stride;
          if (set * 4 + 4 <= static_cast<int>(kBatch)) {
            x[set * kGroupBlocks + j] = load_shared16(at);
          } else {
            load_shared16_over(x[set * kGroupBlocks + j], at, set * 4 + lane / 8 < kBatch);
          }
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < kGroupBlocks; ++j) {
        const u32 at = act + j * 128 + lane % 4 * 32;
        if constexpr (kMma) {
          load_shared16_over(x[j], at + lane / 4 * 16, lane < 8);
        } else {
          x[2 * j] = load_shared16(at);
          x[2 * j + 1] = load_shared16(at + 16);
        }
      }
    }
  }
};

// The same pieces from memory. `from(set, j)`: of this lane, of block j and the set's sequence.
template <class From>
__device__ __forceinline__ void load_vector(GroupVector& v, u32 lane, From from) {
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
#pragma unroll
    for (int j = 0; j < kGroupBlocks; ++j)
      v.x[set * kGroupBlocks + j] =
          set * 4 + 4 <= static_cast<int>(kBatch) ? load_l2_16(from(set, j)) : load_l2_16_if(from(set, j), set * 4 + lane / 8 < kBatch);
  }
}

// Running sums of a segment. Four chains of products, so that none waits long for the one before.
struct Sums {
  static constexpr int kChains = kMma ? 4 * kSets : 1;
  float c[kChains][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kChains; ++i) c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0.0f;
  }
  __device__ __forceinline__ void add(const Group& w, const GroupVector& v) {
#pragma unroll
    for (int j = 0; j < kGroupBlocks; ++j) {
      if constexpr (kMma) {
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          const uint4& x = v.x[set * kGroupBlocks + j];
          mma16816(c[set * 4 + j % 2 * 2], w.a[j].x, w.a[j].y, w.a[j].z, w.a[j].w, x.x, x.y);
          mma16816(c[set * 4 + j % 2 * 2 + 1], w.b[j].x, w.b[j].y, w.b[j].z, w.b[j].w, x.z, x.w);
        }
      } else {
        c[0][0] = dot16(w.a[j], v.x[2 * j], c[0][0]);
        c[0][1] = dot16(w.b[j], v.x[2 * j + 1], c[0][1]);
      }
    }
  }
  // Row g's sum: in lane 4g; of sequence 4 * set + s in lane 4g + s.
  __device__ __forceinline__ float row(int set = 0) const {
    if constexpr (kMma) {
      const float(*k)[4] = c + set * 4;
      return ((k[0][0] + k[1][0]) + (k[2][0] + k[3][0])) + ((k[0][3] + k[1][3]) + (k[2][3] + k[3][3]));
    }
    float sum = c[0][0] + c[0][1];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
  }
};

// Row layout: the sum ends in every lane. `bytes` of one row's segment; the source is this lane's.
template <class Source>
__device__ __forceinline__ float segment_row(const Source& source, u32 act, u32 bytes) {
  const u32 lane16 = thread_index() % 32 * 16;
  float sum = 0.0f;
#pragma unroll 4
  for (u32 at = 0; at + lane16 < bytes; at += 512) sum = dot16(source.load(at), load_shared16(act + lane16 + at), sum);
  return warp_sum(sum);
}

// The same for every sequence of a batch: weights are loaded once.
template <class Source>
__device__ __forceinline__ void segment_rows(const Source& source, u32 act, u32 stride, u32 bytes, float (&sums)[kBatch]) {
  const u32 lane16 = thread_index() % 32 * 16;
#pragma unroll
  for (u32 s = 0; s < kBatch; ++s) sums[s] = 0.0f;
#pragma unroll 2
  for (u32 at = 0; at + lane16 < bytes; at += 512) {
    const uint4 w = source.load(at);
#pragma unroll
    for (u32 s = 0; s < kBatch; ++s) sums[s] = dot16(w, load_shared16(act + s * stride + lane16 + at), sums[s]);
  }
#pragma unroll
  for (u32 s = 0; s < kBatch; ++s) sums[s] = warp_sum(sums[s]);
}

}  // namespace amk_vm
