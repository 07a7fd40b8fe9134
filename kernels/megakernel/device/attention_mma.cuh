// Attention with matrix instructions: bf16 cache, head_dim a multiple of 32 up to 128, at most 8 query heads a kv head. Warps take tiles of 16
// positions in turn, from the newest back. Both products use the cache rows as they lie in memory, 16 bytes a lane; which dimension or position an
// index of the product means is free, as long as both operands agree:
//   scores^T = Q K^T: column n of tile h is position 4 (n / 2) + n % 2 + 2 h; lane 4g + t brings dimensions 8t … 8t+7 of every 32.
//   out = P V: index 2t, 2t+1, 2t+8, 2t+9 are positions 4t … 4t+3, which is where the scores of lane t already are; column n of tile j is
//   dimension 8n + j (of every 64), so that lane 4g + t brings dimensions 8g … 8g+7 of positions 4t … 4t+3.
#pragma once

#include "attention.cuh"
#include "ring.cuh"
#include "segment.cuh"

namespace amk_vm {

constexpr bool kTwoTiles = kCacheGroup > 0 && kHeadDim <= 64;  // by registers
constexpr u32 kGroupTilesOrOne = kGroupTiles > 0 ? kGroupTiles : 1;
constexpr int kKeyPieces = kHeadDim / 32, kValuePieces = (kHeadDim + 63) / 64;

struct TileRows {
  uint4 k[2][kKeyPieces > 0 ? kKeyPieces : 1], v[4][kValuePieces];
};

__device__ __forceinline__ u32 permute(u32 a, u32 b, u32 selector) {
  u32 out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
  return out;
}

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

__device__ __forceinline__ bool attention_mma(const Block& block, const Params& p, const TaskDesc& task, u32 index, Consumer& consumer) {
  const u32 warp = thread_index() / 32, lane = thread_index() % 32, g = lane / 4, t = lane % 4;
  const u32 seq = sequence_of(task);
  const int position = position_of(p, seq), limit = kCacheGroup > 0 ? position_at(p, seq, 0) : 0;
  const bool active = position >= task.pos_lo;
  u32 split = task.split;
  SplitRange range = Ranges::range(position, split);
  if (!active) range.count = 0;
  RingGroups groups = Ranges::ring(range, limit);
  u32 tiles = Ranges::tiles(range);
  const TilePlaces places(g, t);
  const u8* keys = p.kv + cache_row(seq, task.layer, 0, task.head, 0) * 2;
  const u8* values = p.kv + cache_row(seq, task.layer, 1, task.head, 0) * 2;

  // Whether tile i comes through the ring: then, and only then, its chunk is in the SM's stream.
  const auto in_ring = [&](u32 i) { return kCacheGroup > 0 && i - groups.begin * kGroupTiles < groups.count() * kGroupTiles; };
  // Rows [range.low, end) of tile i; the rest of it is zero, never what memory holds.
  const auto load = [&](TileRows& rows, u32 i, int end) {
    const int base = Ranges::at(range, i * kTile);  // a tile lies within one block: kv_block is a multiple of 16
    const auto wanted = [&](int at) { return at >= range.low && at < end; };
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
  };
  // A warp's tiles are tiles - 1 - warp, and every kConsumerWarps-th before it: the newest first, whose rows the ring does not bring.
  const auto load_first = [&](TileRows& rows) {
    const u32 i = tiles - 1 - warp;
    load(rows, i, warp < tiles && !in_ring(i) ? position : 0);
  };

  // This step's own row is written during it: before the wait only what is older.
  // A long context's loads fill the multiprocessor's way to memory, so that the task before is published first.
  if (groups.count() == 0 && tiles > kConsumerWarps) consumer_barrier();
  TileRows rows;
  load_first(rows);
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
  const auto add_current = [&](TileRows& rows, u32 i, int tile) {
    if constexpr (!kFlagged) {
      load(rows, i, position + 1);
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

    // A tile's steps. No product is joined with a sum but where it says so: a tile's sums are the same, bit for bit, wherever its rows come from and
    // whatever tile its steps are interleaved with.
    const auto products = [&](const TileRows& rows, float(&score)[4]) {  // lane t: head g at positions 4t … 4t+3
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
#pragma unroll
      for (int e = 0; e < 4; ++e) score[e] = __fmul_rn(s[e / 2][e % 2], scale);
    };
    const auto largest = [&](const float(&score)[4]) {
      float most = fmaxf(fmaxf(score[0], score[1]), fmaxf(score[2], score[3]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      return fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    };
    // The weights of a tile whose largest score is `most`, as the next product takes them; what all sums before it keep.
    const auto weigh = [&](const float(&score)[4], float most, u32& a0, u32& a2) {
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
    };
    const auto add = [&](const TileRows& rows, float keep, u32 a0, u32 a2) {
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
    };

    RingCursor cursor = consumer.ring;
    u32 chunk = 0;  // of the split, at the cursor
    // Tile i, whose chunk has landed when this returns; `leave` when its loads are issued.
    struct Place {
      u32 at, empty, arrivals;
    };
    const auto open = [&](u32 i) {
      const u32 next = groups.end - 1 - i / kGroupTilesOrOne, in_chunk = i % kGroupTilesOrOne;
      cursor.advance(next - chunk, kSlots);
      chunk = next;
      const u64 begin = trace_wait_begin();
      wait_barrier(block, block.full(cursor.slot), cursor.phase());
      trace_wait_end(begin);
      return Place{block.base() + kShared.ring + cursor.slot * kSlotBytes + in_chunk * kTile * kCacheRowBytes, block.empty(cursor.slot),
                   in_chunk == 0 ? kSlotArrivals - (kGroupTiles - 1) : 1};
    };
    const auto take_keys = [&](TileRows& rows, u32 at) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int c = 0; c < kKeyPieces; ++c) rows.k[h][c] = load_shared16(at + places.key(h, c));
      }
    };
    const auto take_values = [&](TileRows& rows, u32 at) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int d = 0; d < kValuePieces; ++d) {
          rows.v[e][d] = make_uint4(0, 0, 0, 0);
          if (kHeadDim % 64 == 0 || d * 64 + g * 8 < kHeadDim) rows.v[e][d] = load_shared16(at + kCacheGroup * kCacheRowBytes + places.value(e, d));
        }
      }
    };
    const auto leave = [&](const Place& place) { mbarrier_arrive_many(place.empty, place.arrivals, lane); };

    trace_starved_reset();
    trace_mark(p, index, kMarkStaged, thread_index() == 0);
#pragma unroll 1
    for (u32 turn = warp; turn < tiles; turn += kConsumerWarps) {
      const u32 i = tiles - 1 - turn;
      const bool ring = in_ring(i);
      float score[4];
      u32 a0, a2;
      if constexpr (kTwoTiles) {
        // Two tiles of the ring go through their steps side by side: each alone is a chain of latencies.
        const u32 j = i - kConsumerWarps;
        if (ring && i >= kConsumerWarps && in_ring(j)) {
          TileRows other;
          const Place here = open(i);
          take_keys(rows, here.at);
          const Place there = open(j);
          take_keys(other, there.at);
          take_values(rows, here.at);
          take_values(other, there.at);
          __syncwarp();
          leave(here);
          leave(there);
          float other_score[4];
          u32 b0, b2;
          products(rows, score);
          products(other, other_score);
          const float most = largest(score), other_most = largest(other_score);
          const float keep = weigh(score, most, a0, a2), other_keep = weigh(other_score, other_most, b0, b2);
          add(rows, keep, a0, a2);
          add(other, other_keep, b0, b2);
          turn += kConsumerWarps;
          continue;
        }
      }
      if constexpr (kCacheGroup > 0) {
        if (ring) {
          const Place here = open(i);
          take_keys(rows, here.at);
          take_values(rows, here.at);
          __syncwarp();
          leave(here);
        }
      }
      const int tile = Ranges::at(range, i * kTile);
      if (!ring && turn >= kConsumerWarps) load(rows, i, position);
      if (tile <= position && position < tile + static_cast<int>(kTile)) add_current(rows, i, tile);
      products(rows, score);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = tile + static_cast<int>(4 * t) + e;
        score[e] = at >= range.low && at <= range.position ? score[e] : -kInfinity;
      }
      const float keep = weigh(score, largest(score), a0, a2);
      add(rows, keep, a0, a2);
    }
    trace_starved(p, index);
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
    if constexpr (kCacheGroup > 0) consumer.ring.pass(groups.count(), kSlots);
    const u32 done = split;
    last = !Ranges::next(split, position);
    merge_warps(block, p, task, index, done, active, last);  // begins with a barrier
    if (kCacheGroup > 0 && last && thread_index() == 0) atomicAdd(&block.finished_tasks(), 1);
    if (last) break;
    range = Ranges::range(position, split);
    groups = Ranges::ring(range, limit);
    tiles = Ranges::tiles(range);
    load_first(rows);
  }
  return true;
}

__device__ __forceinline__ bool attention(const Block& block, const Params& p, const TaskDesc& task, u32 index, Consumer& consumer) {
  if constexpr (kAttentionMma) {
    return attention_mma(block, p, task, index, consumer);
  } else {
    return attention_scalar(block, p, task, index);
  }
}

}  // namespace amk_vm
