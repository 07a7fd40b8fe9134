// Attention where no warp waits for another before its scores (gemv_path "slices"): as attention_mma.cuh, but every warp looks for the queries, and
// the one whose tile has this step's position for its row of keys and values, all at once; then one barrier, and the merge of the warps is published
// as it is made.
#pragma once

#include "attention_tile.cuh"

namespace amk_vm {

// Packets as one lane looks for them: a word, or two neighbours.
struct PacketOne {
  static __device__ __forceinline__ void load(u64& p, const u8* from) { asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(p) : "l"(from)); }
};
struct PacketPair {
  u64 p[2];
  __device__ __forceinline__ void clear() { p[0] = p[1] = 0; }
  __device__ __forceinline__ void load(const u8* from) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(p[0]), "=l"(p[1]) : "l"(from));
  }
  __device__ __forceinline__ bool right(u32 tag) const { return static_cast<u32>(p[0] >> 32) == tag && static_cast<u32>(p[1] >> 32) == tag; }
  __device__ __forceinline__ u32 low() const { return static_cast<u32>(p[0]); }
  __device__ __forceinline__ u32 high() const { return static_cast<u32>(p[1]); }
};

// The warp is together again at the end.
template <int N, class Packet, class From, class Wanted>
__device__ __forceinline__ void look_for(const Block& block, const Params& p, u32 index, u32 tag, Packet (&packets)[N], From from, Wanted wanted) {
  ask_for_packets(packets, from, wanted);
  await_packets(block, p, index, tag, packets, from, wanted);
  __syncwarp();
}

// A select each: a conditional assignment makes the compiler choose an address, and with it local memory.
__device__ __forceinline__ void put_if(uint4& v, uint4 other, bool yes) {
  v.x = yes ? other.x : v.x;
  v.y = yes ? other.y : v.y;
  v.z = yes ? other.z : v.z;
  v.w = yes ? other.w : v.w;
}

// Barriers of all consumer warps, one a group of units or an attention tile, in turn with two of everything that lies between warps: sums, records,
// and whether the block leaves, which one thread says before a barrier and all read behind it.
constexpr u32 kSumStride =
    (kConsumerWarps + 3) / 4 % 2 == 1 ? (kConsumerWarps + 3) / 4 * 4 : (kConsumerWarps + 3) / 4 * 4 + 4;  // rows on different banks
struct Turn {
  u32 n = 0;
  u32 staged = 0;  // phases of attention_o's barrier
  __device__ __forceinline__ float* buffer(const Block& block, u32 which) const { return block.partials(which); }
  // Behind the sums of 32 rows and the squares.
  __device__ __forceinline__ volatile int& leave(const Block& block, u32 which) const {
    return *reinterpret_cast<volatile int*>(block.partials(which) + 33 * kSumStride);
  }
  // Between two meetings, early: a poll's way from its data to the barrier is short.
  __device__ __forceinline__ void say(const Block& block) const { say(block, thread_index() == 0); }
  __device__ __forceinline__ void say(const Block& block, bool who) const {  // one thread
    if (who) leave(block, n % 2) = block.aborted();
  }
  __device__ __forceinline__ void meet() {
    consumer_barrier();
    ++n;
  }
  // Of the last meeting.
  __device__ __forceinline__ bool stays(const Block& block) const { return leave(block, (n + 1) % 2) == 0; }
};
static_assert(!kSlices || kPartialFloats >= 33 * kSumStride + 4, "32 rows, the squares, a word");
struct SliceSums {
  float* base;
  __device__ __forceinline__ SliceSums(const Block& block, const Turn& turn) : base(block.partials(turn.n % 2)) {}
  __device__ __forceinline__ float* row(u32 i) const { return base + i * kSumStride; }
  __device__ __forceinline__ float* squares() const { return row(32); }
};

// The cache's rows of this warp's first tile into L2: a hint.
__device__ __forceinline__ void prefetch_attention(const Params& p, const TaskDesc& task, u32 warp, u32 lane) {
  const int position = position_of(p, 0);
  const SplitRange range = Ranges::range(position, task.split);
  const u32 i = warp * kTile + lane % kTile;
  if (i >= range.count) return;
  const int at = Ranges::at(range, i);
  if (at < range.low || at >= position) return;
  const u8* row = p.kv + cache_row(0, task.layer, lane / kTile, task.head, static_cast<u32>(at)) * 2;
#pragma unroll
  for (u32 line = 0; line < kHeadDim * 2; line += 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(row + line));
}

__device__ __forceinline__ bool attention_slices(const Block& block, const Params& p, const TaskDesc& task, u32 index, Turn& turn) {
  const u32 warp = thread_index() / 32, lane = thread_index() % 32, g = lane / 4, t = lane % 4;
  const int position = position_of(p, 0);
  const bool active = position >= task.pos_lo;
  const SplitRange range = Ranges::range(position, task.split);
  const u32 count = active ? range.count : 0;
  const u8* keys = p.kv + cache_row(0, task.layer, 0, task.head, 0) * 2;
  const u8* values = p.kv + cache_row(0, task.layer, 1, task.head, 0) * 2;
  turn.say(block);
  trace_starved_reset();
  trace_mark(p, index, kMarkStart, thread_index() == 0);

  const TilePlaces places(g, t);
  const auto load = [&](TileRows& rows, u32 first) {  // a tile lies within one block
    load_tile(rows, keys, values, places, g, t, first < count ? Ranges::at(range, first) : position, range.low, position);
  };
  TileRows rows;
  load(rows, warp * kTile);

  // Which tile of the split, if any, has this step's position, and which lanes of its warp.
  const u32 block_now = static_cast<u32>(position) / kKvBlock;
  const u32 now_at = (block_now / kSplits - range.first_block) * kKvBlock + static_cast<u32>(position) % kKvBlock;
  const u32 tile_now = now_at / kTile, in_tile = now_at % kTile;
  const bool now_here = active && block_now % kSplits == task.split && tile_now % kConsumerWarps == warp;
  const u32 key_half = in_tile / 2 % 2;  // h of the lane whose 4 (g / 2) + g % 2 + 2 h is in_tile
  const bool key_mine = now_here && g == in_tile / 4 * 2 + in_tile % 2;
  const bool value_mine = now_here && t == in_tile / 4;

  // Queries, and the row: looked for at once. Warps without a tile look for the queries too: what is published must depend on them, or it could come
  // while others still read what its storage held before.
  constexpr int kPieces = kQueryPieces;
  Packets packets[2 * kPieces + kValuePieces];  // queries, keys, values
  const u8* queries = p.activations + task.input + ((static_cast<u64>(task.head) * kGqa + g) * kHeadDim + t * 8) * 4;
  const u8* now = p.activations + kKvNow + static_cast<u64>(task.head) * kHeadDim * 4;
  look_for(
      block, p, index, tag_base(p) + task.input_tag, packets,
      [&](int i) {
        if (i < kPieces) return queries + i * 128;
        if (i < 2 * kPieces) return now + ((i - kPieces) * 32 + t * 8) * 4;
        return now + (kKvRows + (i - 2 * kPieces) * 64 + g * 8) * 4;
      },
      [&](int i) {
        if (i < kPieces) return active && g < kGqa;
        if (i < 2 * kPieces) return key_mine;
        return value_mine && (kHeadDim % 64 == 0 || (i - 2 * kPieces) * 64 + g * 8 < kHeadDim);
      });
  trace_mark(p, index, kMarkReady, thread_index() == 0);
  uint4 q[kPieces];
#pragma unroll
  for (int c = 0; c < kPieces; ++c) q[c] = packets[c].words();

  const float scale = 1.4426950408889634f * rsqrtf(static_cast<float>(kHeadDim));
  TileSums sums;
  sums.clear();
#pragma unroll 1
  for (u32 first = warp * kTile; first < count; first += kConsumerWarps * kTile) {
    const int tile = Ranges::at(range, first);
    if (first >= kConsumerWarps * kTile) load(rows, first);
    if (tile > position) break;
    if (now_here && first == tile_now * kTile) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int c = 0; c < kKeyPieces; ++c) put_if(rows.k[h][c], packets[kPieces + c].words(), key_mine && key_half == static_cast<u32>(h));
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int d = 0; d < kValuePieces; ++d)
          put_if(rows.v[e][d], packets[2 * kPieces + d].words(), value_mine && in_tile % 4 == static_cast<u32>(e));
      }
    }
    float score[4];
    TileSums::products(rows, q, scale, score);
    TileSums::mask(score, tile, t, range.low, position);
    u32 a0, a2;
    const float keep = sums.weigh(score, TileSums::largest(score), a0, a2);
    sums.add(rows, keep, a0, a2);
  }
  sums.close();
  trace_mark(p, index, kMarkComputed, thread_index() == 0);

  // Records of two attention tiles in turn.
  float* records = reinterpret_cast<float*>(block.act()) + turn.n % 2 * (kConsumerWarps * kGqa * kPartialRecord);
  sums.store(records, warp, g, t);
  turn.meet();

  if (active) {
    Publisher publish;
    publish.tag = tag_base(p) + task.tag;
    // Warps with a tile that has keys; the others' records weigh nothing.
    const u32 last = static_cast<u32>(position - Ranges::at(range, 0)) / kTile + 1;
    const u32 tiles = count == kKvBlock && last < kKvBlock / kTile ? last : count / kTile;
    const u32 warps = tiles < kConsumerWarps ? tiles : kConsumerWarps;
    u8* buffer = p.activations + task.output;
#pragma unroll 1
    for (u32 i = thread_index(); i < kGqa * kHeadDim / 2; i += kConsumers) {
      const u32 g = i / (kHeadDim / 2), e = i % (kHeadDim / 2) * 2;
      MergedPair merged;
      merged.merge<4>(records, warps, g, e);
      merged.publish(publish, buffer, task, task.split, g, e);
    }
  }
  trace_mark(p, index, kMarkPublished, thread_index() == 0);
  return turn.stays(block);
}

}  // namespace amk_vm
