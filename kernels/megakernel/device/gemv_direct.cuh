// GEMV tasks of several sequences whose vectors, O's and down's, warps take straight into registers: nothing is staged.
#pragma once

#include "gemv_batch.cuh"
#include "gemv_group.cuh"
#include "gemv_walk.cuh"
#include "stage_batch.cuh"

namespace amk_vm {

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
  await_sums_place(block, consumer, buffer);
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
  tell_sums_full(block, epilogue, buffer, warp, lane);
  ++consumer.batches;
  return epilogue.residual;
}

}  // namespace amk_vm
