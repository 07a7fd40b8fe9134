// Attention of one kv head over all positions, in every multiprocessor that multiplies rows of O by it (slices.cuh): its result stays in the block.
// What is not needed for latency is left out: code that runs once a layer is paid for by its length.
//
// All rows are read from shared memory, where they come ahead of the task in chunks of kStagedRows positions, the newest chunk while the tasks before
// are done, older ones in turn. One warp looks for the queries and this step's row of keys and values and puts them there too: where a hundred
// multiprocessors compute attention, hundreds of warps that ask for the same lines wait for each other.
#pragma once

#include "attention_slices.cuh"
#include "slice_unit_end.cuh"
#include "slice_weights.cuh"

namespace amk_vm {

constexpr u32 kHeadBlocks = kGqa * kHeadDim / 64 > 0 ? kGqa* kHeadDim / 64 : 1;  // blocks of 64 columns of O that are a kv head's
// Within act: the warps' records, the head's vector, a barrier, queries, weights of O, rows.
constexpr u32 kHeadVectorAt = kConsumerWarps * kGqa * kPartialRecord * 4, kStageBarrierAt = align_up(kHeadVectorAt + kHeadBlocks * 128, 128),
              kQueriesAt = kStageBarrierAt + 128, kHeadWeightsAt = kQueriesAt + kHeadBlocks * 128,
              kStageAt = kHeadWeightsAt + kHeadUnits * kHeadBlocks * 1024;
static_assert(!kAttentionO || (kStageAt + 2 * kStagedRows * kCacheRowBytes <= kActBytes && kStagedRows >= kTile), "the host sees to it");

// Rows of the window at this step: tiles begin where its first block does.
struct HeadRange {
  int begin, low, position;
  __device__ __forceinline__ HeadRange(const Params& p) : position(position_of(p, 0)) {
    const SplitRange range = Ranges::range(position, 0);
    low = range.low;
    begin = Ranges::at(range, 0);
  }
  __device__ __forceinline__ u32 rows() const { return static_cast<u32>(position - begin) + 1; }
  __device__ __forceinline__ u32 last_chunk() const { return (rows() - 1) / kStagedRows; }
};

struct Stage {
  u32 keys, barrier;
  __device__ __forceinline__ explicit Stage(const Block& block) {
    const u32 act = shared_address(block.act());
    keys = act + kStageAt;
    barrier = act + kStageBarrierAt;
  }
  __device__ __forceinline__ u32 values() const { return keys + kStagedRows * kCacheRowBytes; }
  // Rows of a chunk that are older than the launch.
  static __device__ __forceinline__ u32 rows_of(const HeadRange& range, u32 chunk) {
    const u32 older = range.rows() - 1 - chunk * kStagedRows;
    return older < kStagedRows ? older : kStagedRows;
  }
  // Begins to bring a chunk: by one thread where the device has bulk copies, else by all consumer threads. Nobody reads what was there any more.
  __device__ __forceinline__ void bring(const Params& p, const TaskDesc& task, const HeadRange& range, u32 chunk) const {
    const u32 rows = rows_of(range, chunk), first = static_cast<u32>(range.begin) + chunk * kStagedRows;
    const u8* k = p.kv + cache_row(0, task.layer, 0, task.head, first) * 2;
    const u8* v = p.kv + cache_row(0, task.layer, 1, task.head, first) * 2;
    if (rows == 0) return;
#if __CUDA_ARCH__ >= 900
    if constexpr (kBulk) {
      expect_bytes(barrier, 2 * rows * kCacheRowBytes);
      bulk_copy(keys, k, rows * kCacheRowBytes, barrier);
      bulk_copy(values(), v, rows * kCacheRowBytes, barrier);
      return;
    }
#endif
#pragma unroll 1
    for (u32 at = thread_index() * 16; at < rows * kCacheRowBytes; at += kConsumers * 16) {
      async_copy16(keys + at, k + at);
      async_copy16(values() + at, v + at);
    }
  }
  // Until it is there; without bulk copies this thread's part of it.
  __device__ __forceinline__ void wait(const Block& block, const HeadRange& range, u32 chunk, u32& phase) const {
    if constexpr (!kBulk) {
      asm volatile("cp.async.wait_all;" ::: "memory");
    } else if (rows_of(range, chunk) > 0) {
      wait_barrier(block, barrier, phase++ % 2);
    }
  }
};
// The newest chunk of the next attention_o task from `i` on.
__device__ __forceinline__ void stage_ahead(const Block& block, const Params& p, u32 i, u32 count) {
  if constexpr (!kBulk) return;
  while (i < count && block.task(i).op != kOpAttentionO) ++i;
  if (i >= count) return;
  const HeadRange range(p);
  Stage(block).bring(p, block.task(i), range, range.last_chunk());
}

// Rows of the newest tile that are not there yet weigh nothing, but must be numbers. By a warp that does not look.
__device__ __forceinline__ void clear_values(const Block& block, const HeadRange& range, u32 lane) {
  constexpr u32 kPieces = kHeadDim / 8;
  const u32 row = (range.rows() - 1) % kStagedRows, values = Stage(block).values();
#pragma unroll 1
  for (u32 i = (row + 1) * kPieces + lane; i < align_up(row + 1, kTile) * kPieces; i += 32)
    asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(values + i * 16), "r"(0) : "memory");
}

// The warp that looks: queries, and this step's row, to shared memory; a piece of eight elements, four packets, a lane and turn.
// `meanwhile()`: what all warps do before that one waits.
template <class Meanwhile>
__device__ __forceinline__ void look_for_head(const Block& block, const Params& p, const TaskDesc& task, u32 index, const HeadRange& range,
                                              bool looks, u32 lane, Meanwhile meanwhile) {
  constexpr u32 kPieces = kHeadDim / 8, kAll = (kGqa + 2) * kPieces;  // queries, then the key, then the value
  constexpr int kTurns = (kAll + 31) / 32;
  const Stage stage(block);
  const u32 row = (range.rows() - 1) % kStagedRows;
  const u8* queries = p.activations + task.input + static_cast<u64>(task.head) * kGqa * kHeadDim * 4;
  const u8* now = p.activations + kKvNow + static_cast<u64>(task.head) * kHeadDim * 4;
  const auto from = [&](int i) {
    const u32 piece = i * 32 + lane;
    if (piece < kGqa * kPieces) return queries + piece * 32;
    return now + (piece < (kGqa + 1) * kPieces ? 0 : kKvRows * 4) + piece % kPieces * 32;
  };
  const auto wanted = [&](int i) { return looks && i * 32 + lane < kAll; };
  Packets packets[kTurns];
  ask_for_packets(packets, from, wanted);
  meanwhile();
  if (!looks) return;
  await_packets(block, p, index, tag_base(p) + task.input_tag, packets, from, wanted);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const u32 piece = i * 32 + lane, swizzled = piece % kPieces ^ cache_swizzle(kHeadDim, row);
    if (piece >= kAll) continue;
    const u32 to = piece < kGqa * kPieces ? shared_address(block.act()) + kQueriesAt + piece * 16
                                          : (piece < (kGqa + 1) * kPieces ? stage.keys : stage.values()) + row * kCacheRowBytes + swizzled * 16;
    const uint4 words = packets[i].words();
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w) : "memory");
  }
}

// Sums of values as TileSums, with heads as columns of the product: half the instructions, and no row of it is empty. Lane 4g + t: dimensions 8g …
// 8g+7 of every 64, of heads 2t and 2t+1.
struct HeadSums {
  float out[kValuePieces * 4][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& o : out) o[0] = o[1] = o[2] = o[3] = 0.0f;
  }
  // `keep`: of head g.
  __device__ __forceinline__ void scale(float keep, u32 t) {
    const float even = __shfl_sync(0xffffffffu, keep, 8 * t), odd = __shfl_sync(0xffffffffu, keep, 8 * t + 4);
#pragma unroll
    for (auto& o : out) o[0] *= even, o[1] *= odd, o[2] *= even, o[3] *= odd;
  }
  // Scores as TileSums::products, in chains of half the length.
  static __device__ __forceinline__ void products(const TileRows& rows, const uint4 (&q)[kQueryPieces], float scale, float (&score)[4]) {
    float s[2][4] = {}, more[2][4] = {};
    rows.multiply_keys(q, s, more);
#pragma unroll
    for (int e = 0; e < 4; ++e) score[e] = (s[e / 2][e % 2] + more[e / 2][e % 2]) * scale;
  }
  __device__ __forceinline__ void add(const TileRows& rows, u32 a0, u32 a2) {
#pragma unroll
    for (int d = 0; d < kValuePieces; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i)  // rows 0–7: dimension 8g + 2i, rows 8–15: the one after it
        mma16816(out[d * 4 + i], rows.value_pair(0, d, 2 * i), rows.value_pair(0, d, 2 * i + 1), rows.value_pair(2, d, 2 * i),
                 rows.value_pair(2, d, 2 * i + 1), a0, a2);
    }
  }
  __device__ __forceinline__ void store(float* records, u32 warp, u32 g, u32 t) const {
#pragma unroll
    for (u32 odd = 0; odd < 2; ++odd) {
      if (2 * t + odd >= kGqa) continue;
      float* record = records + (warp * kGqa + 2 * t + odd) * kPartialRecord + g * 8;
#pragma unroll
      for (int d = 0; d < kValuePieces; ++d) {
        if (kHeadDim % 64 != 0 && d * 64 + g * 8 >= kHeadDim) continue;
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const float(*o)[4] = out + d * 4 + i;
          *reinterpret_cast<float4*>(record + d * 64 + i * 2) = make_float4(o[0][odd], o[0][odd + 2], o[1][odd], o[1][odd + 2]);
        }
      }
    }
  }
};

// The head's vector, as products take it, in shared memory: behind the next barrier.
__device__ __forceinline__ u32* head_vector(const Block& block) { return reinterpret_cast<u32*>(block.act() + kHeadVectorAt); }
template <class Meanwhile>
__device__ __forceinline__ void attend_head(const Block& block, const Params& p, const TaskDesc& task, u32 index, Turn& turn, Meanwhile meanwhile) {
  const u32 warp = thread_index() / 32, lane = thread_index() % 32, g = lane / 4, t = lane % 4;
  trace_mark(p, index, kMarkStart, thread_index() == 0);
  const HeadRange range(p);
  const Stage stage(block);
  u32 chunk = range.last_chunk();
  if constexpr (!kBulk) stage.bring(p, task, range, chunk);
  TilePlaces places(g, t);
  places.k = keep(places.k), places.v = keep(places.v);
  TileRows tile;  // one set of registers for all turns of the loop
  tile.clear();
  const auto take_tile = [&](u32 i) {
    take_keys(tile, places, stage.keys + i * kTile * kCacheRowBytes);
    take_values(tile, places, g, stage.values() + i * kTile * kCacheRowBytes);
  };
  const auto tiles_of = [&](u32 which) {
    const u32 rows = range.rows() - which * kStagedRows;
    return ((rows < kStagedRows ? rows : kStagedRows) + kTile - 1) / kTile;
  };
  look_for_head(block, p, task, index, range, warp == 0, lane, meanwhile);
  if (warp == 1) clear_values(block, range, lane);
  stage.wait(block, range, chunk, turn.staged);
  trace_mark(p, index, kMarkReady, thread_index() == 0);
  const float scale = 1.4426950408889634f * rsqrtf(static_cast<float>(kHeadDim));
  const u32 queries = keep(shared_address(block.act()) + kQueriesAt + (g * kHeadDim + t * 8) * 2);
  consumer_barrier();

  uint4 q[kQueryPieces];
#pragma unroll
  for (int c = 0; c < kQueryPieces; ++c) {
    q[c] = make_uint4(0, 0, 0, 0);
    load_shared16_over(q[c], queries + c * 64, g < kGqa);
  }
  TileSums sums;  // of it the maximum and the total
  sums.top = -kInfinity;
  sums.total = 0.0f;
  HeadSums head;
  head.clear();
  bool begun = false;
  for (;;) {
    const int first = range.begin + static_cast<int>(chunk * kStagedRows);
    const u32 tiles = tiles_of(chunk);
    // The warp that looks has the newest tile, and of those that are left over, if any are, the last.
    u32 i = tiles - 1 - warp, back = 2 * (kConsumerWarps - warp) - 1;
#pragma unroll 1
    for (; i < tiles; i -= back, back = 2 * kConsumerWarps - back) {
      take_tile(i);
      const int base = first + static_cast<int>(i * kTile);
      float score[4];
      HeadSums::products(tile, q, scale, score);
      if (base < range.low || base + static_cast<int>(kTile) > range.position) TileSums::mask(score, base, t, range.low, range.position);
      u32 a0, a2;
      const float keep = sums.weigh(score, TileSums::largest(score), a0, a2);
      if (begun) head.scale(keep, t);
      begun = true;
      head.add(tile, a0, a2);
    }
    if (chunk == 0) break;
    --chunk;
    consumer_barrier();  // everybody has read the chunk after it
    if (!kBulk || thread_index() == 0) stage.bring(p, task, range, chunk);
    __syncwarp();
    stage.wait(block, range, chunk, turn.staged);
    if constexpr (!kBulk) consumer_barrier();
  }
  sums.close();
  trace_mark(p, index, kMarkComputed, thread_index() == 0);
  float* records = reinterpret_cast<float*>(block.act());
  head.store(records, warp, g, t);
  if (t == 0 && g < kGqa) *reinterpret_cast<float2*>(records + (warp * kGqa + g) * kPartialRecord + kHeadDim) = make_float2(sums.top, sums.total);
  turn.meet();

  // Word i of a block of 64 where its reader takes four at once (SliceVector::put). All warps have a record, those without a tile one of no weight.
  u32* vector = head_vector(block);
#pragma unroll 1
  for (u32 i = thread_index(); i < kGqa * kHeadDim / 2; i += kConsumers) {
    MergedPair merged;
    merged.merge<(kConsumerWarps <= 12 ? kConsumerWarps : 4)>(records, kConsumerWarps, i / (kHeadDim / 2), i % (kHeadDim / 2) * 2);
    const float inverse = __fdividef(1.0f, merged.total);
    vector[i / 8 * 8 + i % 2 * 4 + i % 8 / 2] = pack_pair<kWeightType>(merged.a * inverse, merged.b * inverse);
  }
}

// Attention of a kv head, over all positions, and the task's rows of the head's columns of O. The warps' records become the head's vector, in the
// order in which products take it; then a warp a unit, the last ones first, multiplies, and publishes. Two barriers a task: what lies between warps
// needs no second place.
struct HeadWeights {
  uint4 piece[kHeadBlocks * 2];
  __device__ __forceinline__ void clear() {  // as in segment.cuh, Group
#pragma unroll
    for (uint4& part : piece) part = make_uint4(0, 0, 0, 0);
  }
  static __device__ __forceinline__ const u8* of_unit(const Params& p, const TaskDesc& task, u32 unit, u32 lane) {
    return p.weights + static_cast<u64>(task.weight) * 16 + unit * (kQBlocks * 1024) + lane * 16;
  }
  // What a lane brings to shared memory is its own: nobody else waits for it.
  static __device__ __forceinline__ void bring(const u8* from, u32 to) {
#pragma unroll
    for (u32 i = 0; i < kHeadBlocks * 2; ++i) async_copy16(to + i * 512, from + i * 512);
  }
  __device__ __forceinline__ void take(u32 from) {
    asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
    for (u32 i = 0; i < kHeadBlocks * 2; ++i) piece[i] = load_shared16(from + i * 512);
  }
};
__device__ __forceinline__ bool attention_o(const Block& block, const Params& p, u32 index, u32 count, Turn& turn) {
  const TaskDesc& task = block.task(index);
  const u32 warp = thread_index() / 32, lane = thread_index() % 32;
  const u32 units = (task.row_end - task.row_begin) / kUnit;
  u32 unit = kConsumerWarps - 1 - warp;
  const u32 weights_at = shared_address(block.act()) + kHeadWeightsAt + unit * (kHeadBlocks * 1024) + lane * 16;
  const auto bring = [&] {
    if (unit < units) HeadWeights::bring(HeadWeights::of_unit(p, task, unit, lane), weights_at);
  };
  UnitEnd end;
  const auto prepare = [&] {
    if (unit >= units) return;
    GemvTask as_gemv(block, p, index);
    as_gemv.matrix = kO;
    end.prepare(block, p, as_gemv, unit, lane);
  };
  const auto settle = [&] {
    if (unit < units) end.settle(block, p, index);
  };
  // While queries are looked for. One warp does that, and all others wait for it: it has as little to do here as can be.
  const auto meanwhile = [&] {
    turn.say(block);
    settle();
    prefetch_task(block, p, index + kAheadTasks, count, warp, lane);
  };
  bring();
  prepare();
  attend_head(block, p, task, index, turn, meanwhile);
  turn.say(block);
  HeadWeights weights;
  weights.clear();
  turn.meet();
  trace_mark(p, index, kMarkReduced, thread_index() == 0);
#pragma unroll 1
  while (unit < units) {
    weights.take(weights_at);
    float c[2 * kHeadBlocks][4];
#pragma unroll
    for (u32 j = 0; j < kHeadBlocks; ++j) {
      const uint4 b = load_shared16(shared_address(head_vector(block) + j * 32 + lane % 4 * 8 + lane / 4 % 2 * 4));
      const uint4 low = weights.piece[j * 2], high = weights.piece[j * 2 + 1];
#pragma unroll
      for (int i = 0; i < 4; ++i) c[j * 2][i] = c[j * 2 + 1][i] = 0.0f;
      mma16816(c[j * 2], low.x, low.y, low.z, low.w, b.x, b.y);
      mma16816(c[j * 2 + 1], high.x, high.y, high.z, high.w, b.z, b.w);
    }
    float sum = 0.0f;
#pragma unroll
    for (u32 j = 0; j < kHeadBlocks; ++j) sum += (c[j * 2][0] + c[j * 2 + 1][0]) + (c[j * 2][3] + c[j * 2 + 1][3]);
    end.kind = UnitEnd::kResidual;
    end.finish(__shfl_sync(0xffffffffu, sum, lane % kUnit * 4));
    __syncwarp();
    unit += kConsumerWarps;
    bring();
    prepare();
    settle();
  }
  trace_mark(p, index, kMarkPublished, warp == kConsumerWarps - 1 && lane == 0);
  const bool stays = turn.stays(block);
  if (stays && thread_index() == 0) stage_ahead(block, p, index + 1, count);
  __syncwarp();
  return stays;
}

}  // namespace amk_vm
