// Attention with matrix instructions: bf16 cache, head_dim a multiple of 32 up to 128, at most 8 query heads a kv head. Warps take tiles of 16
// positions in turn. Both products use the cache rows as they lie in memory, 16 bytes a lane; which dimension or position an index of the product
// means is free, as long as both operands agree:
//   scores^T = Q K^T: column n of tile h is position 4 (n / 2) + n % 2 + 2 h; lane 4g + t brings dimensions 8t … 8t+7 of every 32.
//   out = P V: index 2t, 2t+1, 2t+8, 2t+9 are positions 4t … 4t+3, which is where the scores of lane t already are; column n of tile j is
//   dimension 8n + j (of every 64), so that lane 4g + t brings dimensions 8g … 8g+7 of positions 4t … 4t+3.
#pragma once

#include "attention.cuh"
#include "segment.cuh"

namespace amk_vm {

constexpr bool kAttentionMma = kKvType == kBF16 && kActType == kBF16 && kWeightType == kBF16 && kHeadDim % 32 == 0 && kHeadDim <= 128 && kGqa <= 8;
constexpr int kKeyPieces = kHeadDim / 32, kValuePieces = (kHeadDim + 63) / 64;
constexpr u32 kTile = 16, kTilesStride = kConsumerWarps * kTile;

struct TileRows {
  uint4 k[2][kKeyPieces > 0 ? kKeyPieces : 1], v[4][kValuePieces];
};

__device__ __forceinline__ u32 permute(u32 a, u32 b, u32 selector) {
  u32 out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
  return out;
}

__device__ __forceinline__ bool attention_mma(const Block& block, const Params& p, const TaskDesc& task, u32 index) {
  const u32 warp = thread_index() / 32, lane = thread_index() % 32, g = lane / 4, t = lane % 4;
  const u32 seq = sequence_of(task);
  const int position = position_of(p, seq);
  const bool active = position >= task.pos_lo;
  u32 split = task.split;
  SplitRange range = split_range(position, split);
  u32 count = active ? range.count : 0;
  const u8* keys = p.kv + cache_row(seq, task.layer, 0, task.head, 0) * 2;
  const u8* values = p.kv + cache_row(seq, task.layer, 1, task.head, 0) * 2;

  // Rows [range.low, limit) of a tile; the rest of it is zero, never what memory holds.
  const auto load = [&](TileRows& rows, u32 first, int limit) {
    const int base = first < count ? range.at(first) : limit;  // a tile lies within one block: kv_block is a multiple of 16
    const auto wanted = [&](int at) { return at >= range.low && at < limit; };
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = base + static_cast<int>(4 * (g / 2) + g % 2 + 2 * h);
      const u8* row = keys + (static_cast<u64>(at) * kHeadDim + t * 8) * 2;
#pragma unroll
      for (int c = 0; c < kKeyPieces; ++c) rows.k[h][c] = load_l2_16_if(row + c * 64, wanted(at));
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int at = base + static_cast<int>(4 * t + e);
      const u8* row = values + (static_cast<u64>(at) * kHeadDim + g * 8) * 2;
#pragma unroll
      for (int d = 0; d < kValuePieces; ++d)
        rows.v[e][d] = load_l2_16_if(row + d * 128, wanted(at) && (kHeadDim % 64 == 0 || d * 64 + g * 8 < kHeadDim));
    }
  };

  // This step's own row is written during it: before the wait only what is older.
  // A long context's loads fill the multiprocessor's way to memory, so that the task before is published first.
  if (count > kTilesStride) consumer_barrier();
  TileRows rows;
  load(rows, warp * kTile, position);
  if (!wait_dependencies(block, p, task, index, kFlagged ? kWaitPackets : kWaitCounters)) return false;
  uint4 q[kKeyPieces > 0 ? kKeyPieces : 1];
  const u8* queries = p.activations + task.input + seq * slice_bytes<kActType>(kQRows);
  const u64 q_element = (static_cast<u64>(task.head) * kGqa + g) * kHeadDim + t * 8;
  if constexpr (kFlagged) {
    Packets packets[kKeyPieces > 0 ? kKeyPieces : 1];
    load_packets(
        block, p, index, tag_base(p) + task.input_tag, packets, [&](int c) { return queries + (q_element + c * 32) * 4; },
        [&](int) { return active && g < kGqa; });
#pragma unroll
    for (int c = 0; c < kKeyPieces; ++c) q[c] = packets[c].words();
  } else {
#pragma unroll
    for (int c = 0; c < kKeyPieces; ++c) q[c] = load_l2_16_if(queries + (q_element + c * 32) * 2, active && g < kGqa);
  }
  // This step's row into the tile that has it: from the cache, or (flagged) from where it is published.
  const auto add_current = [&](TileRows& rows, u32 first, int tile) {
    if constexpr (!kFlagged) {
      load(rows, first, position + 1);
    } else {
      const u8* now = p.activations + kKvNow + seq * slice_bytes<kKvType>(2 * kKvRows) + static_cast<u64>(task.head) * kHeadDim * 4;
      const u32 tag = tag_base(p) + task.input_tag;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const bool mine = tile + static_cast<int>(4 * (g / 2) + g % 2 + 2 * h) == position;
        Packets packets[kKeyPieces > 0 ? kKeyPieces : 1];
        load_packets(
            block, p, index, tag, packets, [&](int c) { return now + (c * 32 + t * 8) * 4; }, [&](int) { return mine; });
#pragma unroll
        for (int c = 0; c < kKeyPieces; ++c)
          if (mine) rows.k[h][c] = packets[c].words();
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool mine = tile + static_cast<int>(4 * t + e) == position;
        Packets packets[kValuePieces];
        const auto inside = [&](int d) { return mine && (kHeadDim % 64 == 0 || d * 64 + g * 8 < kHeadDim); };
        load_packets(
            block, p, index, tag, packets, [&](int d) { return now + (kKvRows + d * 64 + g * 8) * 4; }, inside);
#pragma unroll
        for (int d = 0; d < kValuePieces; ++d)
          if (inside(d)) rows.v[e][d] = packets[d].words();
      }
    }
  };

  const float scale = 1.4426950408889634f * rsqrtf(static_cast<float>(kHeadDim));
  for (bool last = false; !last;) {
    float top = -kInfinity, total = 0.0f;
    float out[kValuePieces * 8][2];  // heads are rows 0–7 of the product; rows 8–15 are zero and not kept
#pragma unroll
    for (int j = 0; j < kValuePieces * 8; ++j) out[j][0] = out[j][1] = 0.0f;

#pragma unroll 1
    for (u32 first = warp * kTile; first < count; first += kTilesStride) {
      const int tile = range.at(first);
      if (first >= kTilesStride) load(rows, first, position);
      if (tile <= position && position < tile + static_cast<int>(kTile)) add_current(rows, first, tile);
      {
        float s[2][4] = {};
#pragma unroll
        for (int c = 0; c < kKeyPieces; ++c) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const uint4 k = rows.k[h][c];
            mma16816(s[h], q[c].x, 0, q[c].y, 0, k.x, k.y);
            mma16816(s[h], q[c].z, 0, q[c].w, 0, k.z, k.w);
          }
        }
        // Lane t: head g at positions 4t … 4t+3.
        const int base = tile + static_cast<int>(4 * t);
        float score[4];
        float next = top;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int at = base + e;
          score[e] = at >= range.low && at <= range.position ? s[e / 2][e % 2] * scale : -kInfinity;
          next = fmaxf(next, score[e]);
        }
        next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
        next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
        const float keep = next == -kInfinity ? 0.0f : fast_exp2(top - next);
        top = next;
        total *= keep;
        float weight[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          weight[e] = next == -kInfinity ? 0.0f : fast_exp2(score[e] - next);
          total += weight[e];
        }
        const u32 a0 = pack_bf16(weight[0], weight[1]), a2 = pack_bf16(weight[2], weight[3]);
#pragma unroll
        for (int d = 0; d < kValuePieces; ++d) {
          const uint4(&v)[4][kValuePieces] = rows.v;
          const u32 words[4][4] = {{v[0][d].x, v[1][d].x, v[2][d].x, v[3][d].x},
                                   {v[0][d].y, v[1][d].y, v[2][d].y, v[3][d].y},
                                   {v[0][d].z, v[1][d].z, v[2][d].z, v[3][d].z},
                                   {v[0][d].w, v[1][d].w, v[2][d].w, v[3][d].w}};
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            float c[4] = {out[d * 8 + j][0] * keep, out[d * 8 + j][1] * keep, 0.0f, 0.0f};
            const u32 selector = j % 2 == 0 ? 0x5410 : 0x7632;
            mma16816(c, a0, 0, a2, 0, permute(words[j / 2][0], words[j / 2][1], selector), permute(words[j / 2][2], words[j / 2][3], selector));
            out[d * 8 + j][0] = c[0];
            out[d * 8 + j][1] = c[1];
          }
        }
      }
    }
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    trace_mark(p, index, kMarkComputed, thread_index() == 0);

    // Lane t of head g holds dimensions 16t … 16t+15 of every 64.
    if (g < kGqa) {
      float* record = reinterpret_cast<float*>(block.act()) + (warp * kGqa + g) * kPartialRecord;
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
    const u32 done = split;
    last = !next_split(split, position);
    merge_warps(block, p, task, index, done, active, last);
    if (last) break;
    range = split_range(position, split);
    count = range.count;
    load(rows, warp * kTile, position);
  }
  return true;
}

__device__ __forceinline__ bool attention(const Block& block, const Params& p, const TaskDesc& task, u32 index) {
  if constexpr (kAttentionMma) {
    return attention_mma(block, p, task, index);
  } else {
    return attention_scalar(block, p, task, index);
  }
}

}  // namespace amk_vm
