// Attention with matrix instructions (attention_tile.cuh). Warps take tiles of 16 positions in turn, from the newest back.
#pragma once

#include "attention_tile.cuh"
#include "ring.cuh"

namespace amk_vm {

constexpr bool kTwoTiles = kCacheGroup > 0 && kHeadDim <= 64;  // by registers
constexpr u32 kGroupTilesOrOne = kGroupTiles > 0 ? kGroupTiles : 1;

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
  // Of tile i, up to `end`. A tile lies within one block: kv_block is a multiple of 16.
  const auto load = [&](TileRows& rows, u32 i, int end) {
    load_tile(rows, keys, values, places, g, t, Ranges::at(range, i * kTile), range.low, end);
  };
  // A warp's tiles are tiles - 1 - warp, and every kConsumerWarps-th before it: the newest first, whose rows the ring does not bring.
  u32 in_first = 0;  // this step's position in the warp's first tile, if that is the newest of all
  const u8 *first_keys = keys, *first_values = values;
  const auto load_first = [&](TileRows& rows) {
    const u32 i = tiles - 1 - warp;
    const int base = Ranges::at(range, i * kTile);
    load_tile(rows, keys, values, places, g, t, base, range.low, warp < tiles && !in_ring(i) ? position : 0);
    in_first = warp == 0 && tiles > 0 ? static_cast<u32>(position - base) : kTile;
    first_keys = keep(keys + static_cast<u64>(base) * kCacheRowBytes);
    first_values = keep(values + static_cast<u64>(base) * kCacheRowBytes);
  };

  // This step's own row is written during it: before the wait only what is older.
  // A long context's loads fill the multiprocessor's way to memory, so that the task before is published first.
  if (groups.count() == 0 && tiles > kConsumerWarps) consumer_barrier();
  TileRows rows;
  load_first(rows);
  const u8* queries =
      keep(p.activations + task.input + seq * slice_bytes<kActType>(kQRows) + ((task.head * kGqa + g) * kHeadDim + t * 8) * (kFlagged ? 4 : 2));
  const bool stays = wait_dependencies(block, p, task, index, kFlagged ? kWaitPackets : kWaitCounters);  // looked at when the loads are on their way
  uint4 q[kQueryPieces];
  if constexpr (kFlagged) {
    Packets packets[kQueryPieces];
    load_packets(
        block, p, index, tag_base(p) + task.input_tag, packets, [&](int c) { return queries + c * 128; }, [&](int) { return active && g < kGqa; });
#pragma unroll
    for (int c = 0; c < kKeyPieces; ++c) q[c] = packets[c].words();
  } else {
#pragma unroll
    for (int c = 0; c < kKeyPieces; ++c) q[c] = load_l2_16_if(queries + c * 64, active && g < kGqa);
  }
  // This step's row into the tile that has it, the newest: from the cache, or (flagged) from where it is published.
  const auto add_current = [&](TileRows& rows) {
    if (in_first >= kTile) return;
    if constexpr (!kFlagged) {
      load_row(rows, first_keys, first_values, places, g, t, in_first);
    } else {
      const u8* now = p.activations + kKvNow + seq * slice_bytes<kKvType>(2 * kKvRows) + static_cast<u64>(task.head) * kHeadDim * 4;
      const u32 tag = tag_base(p) + task.input_tag;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const bool mine = 4 * (g / 2) + g % 2 + 2 * h == in_first;
        Packets packets[kQueryPieces];
        load_packets(
            block, p, index, tag, packets, [&](int c) { return now + (c * 32 + t * 8) * 4; }, [&](int) { return mine; });
#pragma unroll
        for (int c = 0; c < kKeyPieces; ++c)
          if (mine) rows.k[h][c] = packets[c].words();
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool mine = 4 * t + e == in_first;
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
  add_current(rows);
  if (!stays) return false;

  const float scale = 1.4426950408889634f * rsqrtf(static_cast<float>(kHeadDim));
  for (bool last = false; !last;) {
    TileSums sums;
    sums.clear();
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
          take_keys(rows, places, here.at);
          const Place there = open(j);
          take_keys(other, places, there.at);
          take_values(rows, places, g, here.at + kCacheGroup * kCacheRowBytes);
          take_values(other, places, g, there.at + kCacheGroup * kCacheRowBytes);
          __syncwarp();
          leave(here);
          leave(there);
          float other_score[4];
          u32 b0, b2;
          TileSums::products(rows, q, scale, score);
          TileSums::products(other, q, scale, other_score);
          const float most = TileSums::largest(score), other_most = TileSums::largest(other_score);
          const float keep = sums.weigh(score, most, a0, a2), other_keep = sums.weigh(other_score, other_most, b0, b2);
          sums.add(rows, keep, a0, a2);
          sums.add(other, other_keep, b0, b2);
          turn += kConsumerWarps;
          continue;
        }
      }
      if constexpr (kCacheGroup > 0) {
        if (ring) {
          const Place here = open(i);
          take_keys(rows, places, here.at);
          take_values(rows, places, g, here.at + kCacheGroup * kCacheRowBytes);
          __syncwarp();
          leave(here);
        }
      }
      const int tile = Ranges::at(range, i * kTile);
      if (!ring && turn >= kConsumerWarps) load(rows, i, position);
      TileSums::products(rows, q, scale, score);
      TileSums::mask(score, tile, t, range.low, range.position);
      const float keep = sums.weigh(score, TileSums::largest(score), a0, a2);
      sums.add(rows, keep, a0, a2);
    }
    trace_starved(p, index);
    sums.close();
    trace_mark(p, index, kMarkComputed, thread_index() == 0);
    sums.store(reinterpret_cast<float*>(block.act()), warp, g, t);
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
    add_current(rows);
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
