// GEMV tasks, consumer side. Warp w takes segments w, w + W, w + 2W, … of the task's rows; each segment's sums go to their own place in shared memory
// and are added in column order by the last warp: the result does not depend on who was fast. Rows go in batches of at most 16 units with two
// buffers, so that warps work on the next batch while the last one finishes the previous.
// Several sequences: warp s finishes sequence s, a batch of rows behind the products, when the others' sums are there.
// One body for every matrix, its width a run-time value: code that is not in the instruction cache when a task begins costs more than it saves.
#pragma once

#include "epilogue.cuh"
#include "ring.cuh"
#include "segment.cuh"
#include "segment_int8.cuh"
#include "stage_batch.cuh"

namespace amk_vm {

template <bool Yes, class A, class B>
struct Choice {
  using Type = A;
};
template <class A, class B>
struct Choice<false, A, B> {
  using Type = B;
};
template <class A, class B>
struct Same {
  static constexpr bool value = false;
};
template <class A>
struct Same<A, A> {
  static constexpr bool value = true;
};
using WeightGroup = Choice<kInt8, Int8Group, Group>::Type;
using VectorGroup = Choice<kInt8, Int8Vector, GroupVector>::Type;
using RowSums = Choice<kInt8, Int8Sums, Sums>::Type;
// Several sequences: of every unit that is not multiplied directly (direct_products) a warp has one segment, always of the same columns.
constexpr bool kUnitsOfOneSegment = kDownSegs > 0 && kHiddenShape.segs == kConsumerWarps&& kQShape.segs == kConsumerWarps &&
                                    (kOneGroup || kPairGroups);
// What of a step is left for the next one's latencies: where its unit's sums go when it is complete. A unit that goes on has its sums carried on.
struct FloatPending {
  u32 at = 0;  // 0: the unit goes on
  __device__ __forceinline__ explicit FloatPending(u32) {}
  __device__ __forceinline__ void begin(Sums& mine, const Sums& before) const {
    if (!kUnitsOfOneSegment && at == 0) {
      mine = before;
    } else {
      mine.clear();
    }
  }
  __device__ __forceinline__ void settle(const Sums& before, u32 lane) {
    if (at == 0) return;
    if constexpr (kBatch > 1) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) store_shared_if(at + set * 4 * kPartialFloats * 4, before.row(set), set * 4 + lane % 4 < kBatch);
    } else {
      store_shared_if(at, before.row(), lane % 4 == 0);
    }
  }
};
using PendingSums = Choice<kInt8, Int8Pending, FloatPending>::Type;

// int8: a step's sums are read during the next one, whose products, in registers of their own, do not wait for them (docs/lab/megakernel.md).
constexpr bool kDeferred = kBatch == 1 || (kPackedLayout && kConsumerRegisters > 0 && !kFullBarriers);
constexpr bool kPairSteps = kDeferred && kPairGroups;  // both halves of a segment go into the same sums

template <bool Second>
struct Half {
  static constexpr bool value = Second;
};

// How segments lie in chunks: constants where the three widths agree.
struct ChunkShape {
  u32 segs, skip_chunks, skip_in_chunk, seg_bytes;
  __device__ __forceinline__ void begin(const Shape& shape) {
    if constexpr (kOneChunkShape) {
      segs = kHiddenShape.segs_per_chunk;
      skip_chunks = kHiddenShape.skip_chunks;
      skip_in_chunk = kHiddenShape.skip_in_chunk;
      seg_bytes = kHiddenShape.seg_bytes;
    } else {
      segs = keep(shape.segs_per_chunk);
      skip_chunks = keep(shape.skip_chunks);
      skip_in_chunk = keep(shape.skip_in_chunk);
      seg_bytes = keep(shape.seg_bytes);
    }
  }
};

// A warp's way through the segments of one task. What it needs of the shape is held in registers: the loop runs once for every 4 KB of weights, and a
// load of a constant by a run-time index is a wait.
struct Walk {
  u32 seg, unit, column;  // unit: row in the row layout; column: segment within it
  RingCursor cursor;
  u32 in_chunk;  // segment within its chunk
  u32 segs, unit_segs, skip_unit, skip_column, base, slots;
  ChunkShape chunk;
  const u8* direct;

  __device__ __forceinline__ void begin(const Block& block, const Shape& shape, u32 warp, u32 lane, u32 all_segs, RingCursor ring, u32 ring_slots,
                                        const u8* weights) {
    seg = warp;
    unit = shape.first_unit[warp];
    column = shape.first_column[warp];
    segs = all_segs;
    unit_segs = keep(shape.segs);
    skip_unit = keep(shape.skip_units);
    skip_column = keep(shape.skip_segs);
    chunk.begin(shape);
    if constexpr (kSlots > 0) {
      cursor = ring;
      slots = ring_slots;
      in_chunk = shape.first_in_chunk[warp];
      cursor.advance(shape.first_chunk[warp], slots);
      base = keep(block.base());
    } else {
      direct = weights + lane * 16;
    }
  }
  __device__ __forceinline__ void next() {
    seg += kConsumerWarps;
    unit += skip_unit;
    column += skip_column;
    if (column >= unit_segs) {
      column -= unit_segs;
      ++unit;
    }
    if constexpr (kSlots > 0) {
      u32 chunks = chunk.skip_chunks;
      in_chunk += chunk.skip_in_chunk;
      if (in_chunk >= chunk.segs) {
        in_chunk -= chunk.segs;
        ++chunks;
      }
      cursor.advance(chunks, slots);
    }
  }
  __device__ __forceinline__ bool there() const { return seg < segs; }

  // This lane's weights of the segment, when they have landed.
  __device__ __forceinline__ auto open(u32 lane) const {
    if constexpr (kSlots > 0) {
      const u64 begin = trace_wait_begin();
      // Until it is full, or somebody gave up.
      while (!mbarrier_test(base + kShared.barriers + cursor.slot * 8, cursor.phase())) {
        if (load_shared_now(base + kShared.control) != 0) break;
      }
      trace_wait_end(begin);
      return RingSource{base + kShared.ring + lane * 16 + cursor.slot * kSlotBytes + in_chunk * chunk.seg_bytes};
    } else {
      return MemorySource{direct + static_cast<u64>(seg) * chunk.seg_bytes};
    }
  }
  // After the segment's last load was issued: loads and arrival go through shared memory in order. A full slot is free after kSlotArrivals arrivals;
  // who has a chunk's last segment arrives for those that it lacks.
  __device__ __forceinline__ void close(u32 lane) const {
    if constexpr (kSlots > 0) {
      __syncwarp();
      const bool last = in_chunk + 1 == chunk.segs || seg + 1 == segs;
      mbarrier_arrive_many(base + kShared.barriers + (kSlots + cursor.slot) * 8, last ? kSlotArrivals - in_chunk : 1, lane);
    }
  }
};

// This lane's pieces of O's vectors: of a sequence's vector, or of attention's records.
struct OPieces {
  static constexpr u32 kSlice = kMergesInO ? slice_bytes<kF32>(kSplits * kHeads * kPartialRecord) : slice_bytes<kActType>(kQRows);
  const u8* base;
  __device__ __forceinline__ OPieces(const Params& p, const TaskDesc& task, u32 lane)
      : base(p.activations + task.input + batch_lane_offset(lane, kSlice) - (kMergesInO ? lane % 4 * 32 : 0)) {}
  __device__ __forceinline__ const u8* at(int set, u32 block, u32 lane) const {
    const u32 column = block * 64 + (kMergesInO ? lane % 4 * 16 : 0);
    return base + set * 4 * kSlice + (kMergesInO ? Partials::values(column / kHeadDim) * 4 + column % kHeadDim * 2 : column * 2);
  }
  // The maximum and total of the partial that a piece is of.
  __device__ __forceinline__ const u8* tail(int set, u32 block, u32 lane) const {
    const u32 column = block * 64 + lane % 4 * 16;
    return base - lane / 4 % 2 * 16 + set * 4 * kSlice + Partials::tail(column / kHeadDim) * 4;
  }
};
// A group's pieces, merged over the splits in their order as stage_combine does; all of a split's loads are on their way at once.
template <class Vector>
__device__ __forceinline__ void merge_pieces(Vector& to, const Params& p, const OPieces& pieces, u32 first_block, u32 lane) {
  constexpr int kPlaces = kSets * kGroupBlocks;
  u32 active[kSets], most = 0;
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    const u32 seq = set * 4 + lane / 8;
    active[set] = seq < kBatch ? active_splits(position_of(p, seq)) : 0;
    most = most < active[set] ? active[set] : most;
  }
  const auto set_of = [](int i) { return i / kGroupBlocks; };
  const auto block_of = [&](int i) { return first_block + i % kGroupBlocks; };
  Merge merge[kPlaces];
#pragma unroll 1
  for (u32 split = 0; split < most; ++split) {
    uint2 tail[kPlaces];
    uint4 piece[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const bool there = split < active[set_of(i)];
      tail[i] = load_l2_8_if(pieces.tail(set_of(i), block_of(i), lane) + split * kSplitBytes, there);
      piece[i] = load_l2_16_if(pieces.at(set_of(i), block_of(i), lane) + split * kSplitBytes, there);
    }
#pragma unroll
    for (int i = 0; i < kPlaces; ++i)
      if (split < active[set_of(i)]) merge[i].add(tail[i], piece[i]);
  }
#pragma unroll
  for (int i = 0; i < kPlaces; ++i) {
    const Elements v = merge[i].result();
    const auto pair = [&](int e) { return active[set_of(i)] > 0 ? pack_pair<kWeightType>(v.e[e], v.e[e + 1]) : 0u; };
    to.x[i] = make_uint4(pair(0), pair(2), pair(4), pair(6));
  }
}

struct DownPieces {
  static constexpr u32 kSlice = slice_bytes<kActType>(kInter);
  const u8* base;
  __device__ __forceinline__ DownPieces(const Params& p, const TaskDesc& task, u32 lane)
      : base(p.activations + task.input + batch_lane_offset(lane, kSlice)) {}
  __device__ __forceinline__ const u8* at(int set, u32 block, u32) const { return base + set * 4 * kSlice + block * 128; }
};

// Several sequences, O and down: all of this warp's part of the vectors in registers, then unit after unit; one batch of rows (the host sees to it).
// Returns the residual of this lane's rows, loaded meanwhile.
template <int Segs, class Pieces, class Source>
__device__ __forceinline__ float4 direct_products(const Block& block, const Params& p, const TaskDesc& task, const Shape& shape, u32 index,
                                                  Walk& walk, Source& source, WeightGroup& here, WeightGroup& there, Consumer& consumer, u32 units) {
  constexpr int kHalves = kPairGroups ? 2 : 1;
  constexpr u32 kBlocks = kHalves * kGroupBlocks;  // of a segment
  const u32 warp = thread_index() / 32, lane = thread_index() % 32;
  const Pieces pieces(p, task, lane);
  VectorGroup held[Segs][kHalves];
  const auto first_block = [&](int i) { return (warp + i * kConsumerWarps) * kBlocks; };
  bool merges = false;
  if constexpr (kMergesDirect && kSplits > 1 && Same<Pieces, OPieces>::value) merges = !one_split(p);
  if (merges) {
    if constexpr (Same<Pieces, OPieces>::value) {
#pragma unroll
      for (int i = 0; i < Segs; ++i) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) merge_pieces(held[i][h], p, pieces, first_block(i) + h * kGroupBlocks, lane);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < Segs; ++i) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h)
        load_vector(held[i][h], lane, [&](int set, int j) { return pieces.at(set, first_block(i) + h * kGroupBlocks + j, lane); });
    }
  }
  Epilogue epilogue(block, p, task, shape, warp, lane);
  if (warp < kBatch) epilogue.prefetch(0, index);
  trace_mark(p, index, kMarkFirstData, thread_index() == 0);
  const u32 buffer = consumer.batches % 2;
  if constexpr (kFullBarriers) consumer_barrier();
  if (consumer.batches >= 2) wait_barrier(block, block.sums_empty(buffer), consumer.batches / 2 % 2 ^ 1);
  u32 sum_at = shared_address(block.partials(buffer)) + lane % 4 * kPartialFloats * 4 + (lane / 4 + warp * kUnit) * 4;
  const u32 unit_stride = keep(shape.unit_stride * 4);
  RowSums sums;
  sums.clear();
  const auto part = [&](WeightGroup& now, WeightGroup& following, const VectorGroup& own, bool half) {
    if (kHalves == 2 && !half) {
      source = source.moved(kGroupBlocks * kBlockBytes);
      following.load(source);
      walk.close(lane);
    } else {
      walk.next();
      if (walk.there()) {
        source = walk.open(lane);
        following.load(source);
        if (kHalves == 1) walk.close(lane);
      }
    }
    sums.add(now, own);
  };
#pragma unroll 1
  for (u32 unit = 0; unit < units; ++unit) {
#pragma unroll
    for (int i = 0; i < Segs; ++i) {
      if constexpr (kHalves == 2) {
        part(here, there, held[i][0], false);
        part(there, here, held[i][kHalves - 1], true);
      } else {
        part(i % 2 == 0 ? here : there, i % 2 == 0 ? there : here, held[i][0], false);
      }
    }
    if constexpr (kHalves == 1 && Segs % 2 != 0) here = there;
#pragma unroll
    for (int set = 0; set < kSets; ++set) store_shared_if(sum_at + set * 4 * kPartialFloats * 4, sums.row(set), set * 4 + lane % 4 < kBatch);
    sums.clear();
    sum_at += unit_stride;
  }
  trace_mark(p, index, kMarkComputed, thread_index() == 0);
  trace_starved(p, index);
  if (kFinishers && warp < kBatch) epilogue.hand_over(block.partials(buffer, warp));
  __syncwarp();
  mbarrier_arrive_many(block.sums_full(buffer), 1, lane);
  if constexpr (kFullBarriers) consumer_barrier();
  if constexpr (kFullBarriers && kFinishers) {
    finish_handover();
    finish_handover();
  }
  ++consumer.batches;
  return epilogue.residual;
}

__device__ __forceinline__ bool gemv(const Block& block, const Params& p, const TaskDesc& task, u32 index, Consumer& consumer) {
  const Shape& shape = shape_for(task.matrix);
  const u32 warp = thread_index() / 32, lane = keep(thread_index() % 32);
  const u32 rows = task.row_end - task.row_begin;
  const u32 units = kPackedLayout ? (rows + kUnit - 1) / kUnit : rows;
  const bool wide = kWideSlots > 0 && task.matrix == kDown;
  const Vectors vectors = block.vectors(wide);
  const u32 slots = slots_of(wide), stride = kWideSlots > 0 ? keep(vectors.stride) : kActStride;
  // Several sequences, packed: this lane's piece.
  const u32 act = keep(shared_address(vectors.base) + kLimbsAt + (kBatch > 1 && kPackedLayout ? batch_lane_offset(lane, stride) : 0));
  const bool direct = kConsumerRegisters > 0 && takes_directly(task.matrix);
  const u32 batch_units = shape.batch_units * (kPackedLayout ? 1 : kUnit);
  const u32 groups = kOneGroup ? 1 : kPairGroups ? 2 : shape.groups;

  consumer.ring.enter(wide);
  Walk walk;
  walk.begin(block, shape, warp, lane, units * shape.segs, consumer.ring, slots, p.weights + static_cast<u64>(task.weight) * 16);
  // Weights of the group at hand and of the one after it, in turn: loads are issued before the products of the group before.
  WeightGroup here, there;
  here.clear();
  auto source = decltype(walk.open(lane)){};
  u32 group = 0;  // of the segment
  const auto open_first = [&] {
    if (!walk.there()) return;
    source = walk.open(lane);
    here.load(source);
    if (groups == 1) walk.close(lane);
  };
  // Weights do not depend on the wait: they are in registers when it ends.
  // Not beside a task of fewer slots: a warp could be a turn ahead of them.
  // Several sequences merged from partials: their loads need the registers.
  const bool hoist = kPackedLayout && kHoist && !wide && !consumer.after_wide && !(kBatch > 1 && !direct && (task.fused & kFusedCombine) != 0);
  if constexpr (kPackedLayout && kHoist) {
    trace_starved_reset();
    if (hoist) open_first();
  }
  // Without a ring nobody else fetches ahead: the warp's second segment comes into L2 while it waits.
  if constexpr (kSlots == 0) {
    if (walk.seg + kConsumerWarps < walk.segs)
      prefetch_segment(walk.direct + static_cast<u64>(walk.seg + kConsumerWarps) * walk.chunk.seg_bytes, walk.chunk.seg_bytes, lane);
  }
  VectorGroup vector, second;  // second: of two groups a segment, the second's
  const auto clear_vectors = [&] {
    vector.clear();
    if constexpr (kPairGroups) second.clear();
  };
  const bool normed = kNormDirect && (task.fused & kFusedNorm) != 0;
  if constexpr (kNormDirect) {
    clear_vectors();
    if (!(normed ? stage_norms_direct(block, p, task, index, vector, second) : stage(block, p, task, shape, vectors, index))) return false;
  } else {
    if (!stage(block, p, task, shape, vectors, index)) return false;
  }
  trace_mark(p, index, kMarkStaged, thread_index() == 0);
  if (kPackedLayout && !hoist) open_first();
  trace_mark(p, index, kMarkFirstData, thread_index() == 0);
  if constexpr (!(kPackedLayout && kHoist)) trace_starved_reset();
  there.clear();
  const auto leave = [&] {
    if constexpr (kSlots > 0) {
      const u32 per_chunk = kBatch > 1 ? walk.chunk.segs : shape.segs_per_chunk;
      consumer.ring.pass((walk.segs + per_chunk - 1) / per_chunk, slots);
      consumer.after_wide = wide;
    }
    return true;
  };
  float4 residual = make_float4(0, 0, 0, 0);
  if constexpr (kConsumerRegisters > 0) {
    if constexpr (kDownSegs > 0) {
      if (direct && task.matrix == kDown) {
        residual = direct_products<at_least_one(kDownSegs), DownPieces>(block, p, task, shape, index, walk, source, here, there, consumer, units);
        if constexpr (kFinishers) return leave();
      }
    }
    if constexpr (kOSegs > 0) {
      if (direct && task.matrix == kO) {
        residual = direct_products<at_least_one(kOSegs), OPieces>(block, p, task, shape, index, walk, source, here, there, consumer, units);
        if constexpr (kFinishers) return leave();
      }
    }
  }
  if constexpr (!kNormDirect) clear_vectors();
  // Held: the compiler would load them anew in every step, by a run-time index, and wait.
  const u32 seg_vector_bytes = keep(shape.seg_vector_bytes), unit_stride = keep(shape.unit_stride * 4),
            column_stride = keep(shape.unit_sums == walk.unit_segs ? kUnit * 4 : 0);
  // All of this warp's segments: their piece of the vector stays in registers.
  const bool same_columns = kUnitsOfOneSegment || keep((groups == 1 || kPairGroups) && shape.skip_segs == 0) != 0;
  if (kPackedLayout && (same_columns || kInt8) && !normed) vector.load(act + walk.column * seg_vector_bytes, lane, stride);
  if (kPairGroups && same_columns && !normed) second.load(act + walk.column * seg_vector_bytes + kGroupBlocks * 128, lane, stride);
  RowSums sums, sums2;  // sums2: of every other step, where they are deferred
  sums.clear();
  sums2.clear();
  PendingSums pending(lane);
  Epilogue epilogue(block, p, task, shape, warp, lane);
  if constexpr (kConsumerRegisters > 0) {
    if (direct) epilogue.resume(residual);
  }
  const bool finishes = kFinishers ? false : kBatch > 1 ? warp < kBatch : warp == kConsumerWarps - 1;
  // Several sequences: the n-th batch of rows, from `first` on, when all its sums are there.
  const bool one_batch = units <= batch_units;
  const auto finish_batch = [&](u32 first, u32 n) {
    if (!one_batch) epilogue.prefetch(first * kSegRows, index);
    wait_barrier(block, block.sums_full(n % 2), n / 2 % 2);
    epilogue.reduce(block.partials(n % 2, warp));
    mbarrier_arrive_many(block.sums_empty(n % 2), 1, lane);  // reduce() ends in a __syncwarp
    epilogue.write();
  };
#pragma unroll 1
  for (u32 first = direct ? units : 0; first < units; first += batch_units) {
    const u32 end = first + batch_units < units ? first + batch_units : units;
    const u32 buffer = consumer.batches % 2;
    if constexpr (kBatch > 1 && kFullBarriers) consumer_barrier();
    if (kBatch > 1 && consumer.batches >= 2) wait_barrier(block, block.sums_empty(buffer), consumer.batches / 2 % 2 ^ 1);
    if (kBatch == 1 && !kFullBarriers && consumer.batches >= 2 && warp != kConsumerWarps - 1) barrier_wait(kPartialsEmpty + buffer);
    if (kFinishers ? warp < kBatch : kBatch == 1 ? warp == kConsumerWarps - 1 : finishes && one_batch) epilogue.prefetch(first * kSegRows, index);
    float* partials = block.partials(buffer);
    if constexpr (kPackedLayout) {
      const u32 sums_at = keep(shared_address(partials) + (kBatch > 1 ? lane % 4 * kPartialFloats * 4 : 0)) +
                          (lane / 4 + (column_stride != 0 ? 0 : warp * kUnit)) * 4;
      const auto step = [&](WeightGroup& now, WeightGroup& following, RowSums& mine, RowSums& before, auto half) {
        constexpr bool kSecond = kPairGroups && decltype(half)::value;
        VectorGroup& own = kSecond ? second : vector;
        if (!kInt8 && !same_columns)
          own.load(act + walk.column * seg_vector_bytes + (kPairGroups ? kSecond : group) * kGroupBlocks * kBlockVectorBytes, lane, stride);
        const u32 unit = walk.unit, sum_at = sums_at + (unit - first) * unit_stride + walk.column * column_stride;
        if (kPairGroups ? !kSecond : !kOneGroup && group + 1 < groups) {
          source = source.moved(kGroupBlocks * kBlockBytes);
          following.load(source);
          if (kPairGroups || ++group + 1 == groups) walk.close(lane);
        } else {
          group = 0;
          walk.next();
          if (walk.there()) {
            source = walk.open(lane);
            following.load(source);
            if (groups == 1) walk.close(lane);
          }
        }
        if constexpr (kDeferred) {
          constexpr bool kFirst = !kPairGroups || !kSecond, kLast = !kPairGroups || kSecond;  // of the segment
          if (kFirst) pending.begin(mine, before);
          mine.add(now, own);
          if (kInt8 && !same_columns) own.load(act + walk.column * seg_vector_bytes + group * kGroupBlocks * kBlockVectorBytes, lane, stride);
          if (kFirst) pending.settle(before, lane);
          if (kLast) pending.at = walk.unit != unit ? sum_at : 0;
        } else {
          sums.add(now, own);
          // A row's sum over all of this warp's segments of the unit.
          if (walk.unit != unit) {
            if constexpr (kBatch > 1) {
#pragma unroll
              for (int set = 0; set < kSets; ++set)
                store_shared_if(sum_at + set * 4 * kPartialFloats * 4, sums.row(set), set * 4 + lane % 4 < kBatch);
            } else {
              store_shared_if(sum_at, sums.row(), lane % 4 == 0);
            }
            sums.clear();
          }
        }
      };
#pragma unroll 1
      while (walk.unit < end) {
        step(here, there, sums, sums2, Half<false>());
        if constexpr (kPairSteps) step(there, here, sums, sums2, Half<true>());
        if (walk.unit >= end) {
          if constexpr (!kPairSteps) here = there;
          if constexpr (kDeferred) {
            pending.settle(sums, lane);
            pending.at = 0;
          }
          sums2.clear();
          break;
        }
        if constexpr (kPairSteps) step(here, there, sums2, sums, Half<false>());
        step(there, here, sums2, sums, Half<true>());
      }
      if constexpr (kDeferred) {
        pending.settle(sums2, lane);
        pending.at = 0;
        sums2.clear();
      }
    } else {
      while (walk.unit < end) {
        const u32 row = walk.unit - first;
        float* sum_at = partials + row / kUnit * shape.unit_stride + walk.column * kUnit + row % kUnit;
        if constexpr (kBatch > 1) {
          float each[kBatch];
          segment_rows(walk.open(lane), act + walk.column * seg_vector_bytes, stride, seg_vector_bytes, each);
          walk.close(lane);
#pragma unroll
          for (u32 s = 0; s < kBatch; ++s)
            if (lane == 0) sum_at[s * kPartialFloats] = each[s];
        } else {
          const float sum = segment_row(walk.open(lane), act + walk.column * seg_vector_bytes, seg_vector_bytes);
          walk.close(lane);
          if (lane == 0) *sum_at = sum;
        }
        walk.next();
      }
    }
    trace_mark(p, index, kMarkComputed, thread_index() == 0);
    trace_starved(p, index);
    if constexpr (kBatch > 1) {
#if __CUDA_ARCH__ >= 900
      // Copies come next where the vectors lay.
      if (wide && end == units) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
      if (kFinishers && warp < kBatch) epilogue.hand_over(block.partials(buffer, warp));
      __syncwarp();
      mbarrier_arrive_many(block.sums_full(buffer), 1, lane);
      if constexpr (kFullBarriers) consumer_barrier();
      if constexpr (kFullBarriers && kFinishers) {
        finish_handover();
        finish_handover();
      }
      if (finishes && first > 0) finish_batch(first - batch_units, consumer.batches - 1);
    } else if (warp != kConsumerWarps - 1) {
      barrier_arrive(kPartialsFull + buffer);
      if constexpr (kFullBarriers) barrier_wait(kPartialsEmpty + buffer);
    } else {
      barrier_wait(kPartialsFull + buffer);
      trace_mark(p, index, kMarkReduced, lane == 0);
      epilogue.reduce(partials);
      barrier_arrive(kPartialsEmpty + buffer);
      if (lane == 0 && end == units && kSlots > 0) atomicAdd(&block.finished_tasks(), 1);
      epilogue.write();
    }
    ++consumer.batches;
  }
  if constexpr (kFinishers) {
    // finish_tasks() does what is left.
  } else if constexpr (kBatch > 1) {
    const auto signal = [&] {
      if (thread_index() == 0 && task.signal != kNoOffset)
        signal_counter(p.counters + task.signal * kCounterStride, (task.fused & kSignalsStep) != 0);
      trace_mark(p, index, kMarkPublished, thread_index() == 0);
    };
    if (finishes) {
      if (warp == 0) {
        wait_barrier(block, block.sums_full((consumer.batches - 1) % 2), (consumer.batches - 1) / 2 % 2);
        trace_mark(p, index, kMarkReduced, lane == 0);
        if (lane == 0 && kSlots > 0) atomicAdd(&block.finished_tasks(), 1);
      }
      finish_batch((units - 1) / batch_units * batch_units, consumer.batches - 1);
      epilogue.finish(index);
      epilogue.out.settle(block.sink());
      if constexpr (!kFullBarriers) {
        finishers_barrier<kBatch>(warp == 0);
        signal();
      }
    }
    if constexpr (kFullBarriers) {
      consumer_barrier();
      signal();
    }
  } else {
    if (warp == kConsumerWarps - 1) epilogue.finish(index);
  }
  return leave();
}

}  // namespace amk_vm
