// A tile of 16 positions by matrix instructions, and what a warp keeps over its tiles: bf16 cache, head_dim a multiple of 32 up to 128, at most 8
// query heads a kv head. Both products use the cache rows as they lie in memory, 16 bytes a lane; which dimension or position an index of the product
// means is free, as long as both operands agree:
//   scores^T = Q K^T: column n of tile h is position 4 (n / 2) + n % 2 + 2 h; lane 4g + t brings dimensions 8t … 8t+7 of every 32.
//   out = P V: index 2t, 2t+1, 2t+8, 2t+9 are positions 4t … 4t+3, which is where the scores of lane t already are; column n of tile j is
//   dimension 8n + j (of every 64), so that lane 4g + t brings dimensions 8g … 8g+7 of positions 4t … 4t+3.
#pragma once

#include "attention.cuh"
#include "segment.cuh"

namespace amk_vm {

constexpr int kKeyPieces = kHeadDim / 32, kValuePieces = (kHeadDim + 63) / 64, kQueryPieces = kKeyPieces > 0 ? kKeyPieces : 1;

__device__ __forceinline__ u32 permute(u32 a, u32 b, u32 selector) {
  u32 out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
  return out;
}

struct TileRows {
  uint4 k[2][kQueryPieces], v[4][kValuePieces];
  __device__ __forceinline__ void clear() {  // as in segment.cuh, Group
#pragma unroll
    for (auto& half : k) {
#pragma unroll
      for (uint4& piece : half) piece = make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (auto& row : v) {
#pragma unroll
      for (uint4& piece : row) piece = make_uint4(0, 0, 0, 0);
    }
  }
  // Both halves' products with the queries: `even` of the first two words of every piece, `odd` of the others. One array twice: one chain.
  __device__ __forceinline__ void multiply_keys(const uint4 (&q)[kQueryPieces], float (&even)[2][4], float (&odd)[2][4]) const {
#pragma unroll
    for (int c = 0; c < kKeyPieces; ++c) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 key = k[h][c];
        mma16816(even[h], q[c].x, 0, q[c].y, 0, key.x, key.y);
        mma16816(odd[h], q[c].z, 0, q[c].w, 0, key.z, key.w);
      }
    }
  }
  // Dimension 8g + e of piece d, of rows 4t + row and the one after it, as a product takes them.
  __device__ __forceinline__ u32 value_pair(int row, int d, int e) const {
    const auto word = [&](const uint4& from) { return e / 2 == 0 ? from.x : e / 2 == 1 ? from.y : e / 2 == 2 ? from.z : from.w; };
    return permute(word(v[row][d]), word(v[row + 1][d]), e % 2 == 0 ? 0x5410 : 0x7632);
  }
};

// Where this lane's pieces of a tile lie, in memory and in the ring alike: bytes from the tile's first row. A tile begins at a multiple of 16, so
// that the order of a row's pieces depends on its place in the tile alone.
struct TilePlaces {
  u32 k, v;  // of piece t of row 4 (g / 2) + g % 2, and of piece g of row 4t
  __device__ __forceinline__ TilePlaces(u32 g, u32 t) {
    const u32 row = 4 * (g / 2) + g % 2;
    k = row * kCacheRowBytes + (t ^ cache_swizzle(kHeadDim, row)) * 16;
    v = 4 * t * kCacheRowBytes + (g ^ cache_swizzle(kHeadDim, 4 * t)) * 16;
  }
  // Row + 2h, piece + 4c: the order of pieces is that of the row itself, in which h has no part.
  __device__ __forceinline__ u32 key(int h, int c) const {
    return (kHeadDim % 64 == 0 ? (k ^ c % 2 * 64) + c / 2 * 128 : k + c * 64) + h * 2 * kCacheRowBytes;
  }
  // Row + e, piece + 8d.
  __device__ __forceinline__ u32 value(int e, int d) const { return (kHeadDim % 64 == 0 ? v ^ e % 2 * 64 : v) + e * kCacheRowBytes + d * 128; }
};

// Rows [low, end) of the tile that begins at position `base`; the rest of it is zero, never what memory holds. keys, values: of position 0.
__device__ __forceinline__ void load_tile(TileRows& rows, const u8* keys, const u8* values, const TilePlaces& places, u32 g, u32 t, int base, int low,
                                          int end) {
  const auto wanted = [&](int at) { return at >= low && at < end; };
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool there = wanted(base + static_cast<int>(4 * (g / 2) + g % 2 + 2 * h));
#pragma unroll
    for (int c = 0; c < kKeyPieces; ++c) rows.k[h][c] = load_l2_16_if(keys + static_cast<u64>(base) * kCacheRowBytes + places.key(h, c), there);
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const bool there = wanted(base + static_cast<int>(4 * t + e));
#pragma unroll
    for (int d = 0; d < kValuePieces; ++d)
      rows.v[e][d] = load_l2_16_if(values + static_cast<u64>(base) * kCacheRowBytes + places.value(e, d),
                                   there && (kHeadDim % 64 == 0 || d * 64 + g * 8 < kHeadDim));
  }
}

// A tile from shared memory: its keys at `at`, its values at `at`.
__device__ __forceinline__ void take_keys(TileRows& rows, const TilePlaces& places, u32 at) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < kKeyPieces; ++c) rows.k[h][c] = load_shared16(at + places.key(h, c));
  }
}
__device__ __forceinline__ void take_values(TileRows& rows, const TilePlaces& places, u32 g, u32 at) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
#pragma unroll
    for (int d = 0; d < kValuePieces; ++d) {
      rows.v[e][d] = make_uint4(0, 0, 0, 0);
      if (kHeadDim % 64 == 0 || d * 64 + g * 8 < kHeadDim) rows.v[e][d] = load_shared16(at + places.value(e, d));
    }
  }
}

// Row `in_tile` of a tile alone; keys, values: of the tile's first row.
__device__ __forceinline__ void load_row(TileRows& rows, const u8* keys, const u8* values, const TilePlaces& places, u32 g, u32 t, u32 in_tile) {
#pragma unroll
  for (u32 h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < kKeyPieces; ++c) load_l2_16_over(rows.k[h][c], keys + places.key(h, c), 4 * (g / 2) + g % 2 + 2 * h == in_tile);
  }
#pragma unroll
  for (u32 e = 0; e < 4; ++e) {
#pragma unroll
    for (int d = 0; d < kValuePieces; ++d)
      load_l2_16_over(rows.v[e][d], values + places.value(e, d), 4 * t + e == in_tile && (kHeadDim % 64 == 0 || d * 64 + g * 8 < kHeadDim));
  }
}

// A running softmax over a warp's tiles. No product is joined with a sum but where it says so: a tile's sums are the same, bit for bit, wherever its
// rows come from and whatever tile its steps are interleaved with.
struct TileSums {
  float top, total;                // total: of this lane's positions
  float out[kValuePieces * 8][2];  // heads are rows 0–7 of the product; rows 8–15 are zero and not kept
  __device__ __forceinline__ void clear() {
    top = -kInfinity;
    total = 0.0f;
#pragma unroll
    for (int j = 0; j < kValuePieces * 8; ++j) out[j][0] = out[j][1] = 0.0f;
  }
  // The scale turns exp2 into the softmax's exponential. Lane t: head g at positions 4t … 4t+3.
  static __device__ __forceinline__ void products(const TileRows& rows, const uint4 (&q)[kQueryPieces], float scale, float (&score)[4]) {
    float s[2][4] = {};
    rows.multiply_keys(q, s, s);
#pragma unroll
    for (int e = 0; e < 4; ++e) score[e] = __fmul_rn(s[e / 2][e % 2], scale);
  }
  // Positions outside [low, last] of the tile at `base` count nothing.
  static __device__ __forceinline__ void mask(float (&score)[4], int base, u32 t, int low, int last) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int at = base + static_cast<int>(4 * t) + e;
      score[e] = at >= low && at <= last ? score[e] : -kInfinity;
    }
  }
  static __device__ __forceinline__ float largest(const float (&score)[4]) {
    float most = fmaxf(fmaxf(score[0], score[1]), fmaxf(score[2], score[3]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    return fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
  }
  // The weights of a tile whose largest score is `most`, as the next product takes them; what all sums before it keep.
  __device__ __forceinline__ float weigh(const float (&score)[4], float most, u32& a0, u32& a2) {
    const float next = fmaxf(top, most);
    const float keep = next == -kInfinity ? 0.0f : fast_exp2(top - next);
    top = next;
    float weight[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) weight[e] = next == -kInfinity ? 0.0f : fast_exp2(score[e] - next);
    total = __fadd_rn(__fadd_rn(__fadd_rn(fmaf(total, keep, weight[0]), weight[1]), weight[2]), weight[3]);
    a0 = pack_bf16(weight[0], weight[1]);
    a2 = pack_bf16(weight[2], weight[3]);
    return keep;
  }
  __device__ __forceinline__ void add(const TileRows& rows, float keep, u32 a0, u32 a2) {
#pragma unroll
    for (int d = 0; d < kValuePieces; ++d) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float c[4] = {out[d * 8 + j][0] * keep, out[d * 8 + j][1] * keep, 0.0f, 0.0f};
        mma16816(c, a0, 0, a2, 0, rows.value_pair(0, d, j), rows.value_pair(2, d, j));
        out[d * 8 + j][0] = c[0];
        out[d * 8 + j][1] = c[1];
      }
    }
  }
  // Behind the last tile: the lanes' totals.
  __device__ __forceinline__ void close() {
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
  }
  // To the block's records. Lane t of head g holds dimensions 16t … 16t+15 of every 64.
  __device__ __forceinline__ void store(float* records, u32 warp, u32 g, u32 t) const {
    if (g >= kGqa) return;
    float* record = records + (warp * kGqa + g) * kPartialRecord;
#pragma unroll
    for (int d = 0; d < kValuePieces; ++d) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (d * 64 + t * 16 + half * 8 >= kHeadDim) continue;
        float* at = record + d * 64 + t * 16 + half * 8;
        const float(*c)[2] = out + d * 8;
        *reinterpret_cast<float4*>(at) = make_float4(c[0][half], c[1][half], c[2][half], c[3][half]);
        *reinterpret_cast<float4*>(at + 4) = make_float4(c[4][half], c[5][half], c[6][half], c[7][half]);
      }
    }
    if (t == 0) *reinterpret_cast<float2*>(record + kHeadDim) = make_float2(top, total);
  }
};

}  // namespace amk_vm
