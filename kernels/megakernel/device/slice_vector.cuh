// A warp's slice of a task's vector (slices.cuh): looked for, packet by packet, and put in the order of the matrix instruction.
#pragma once

#include "attention_slices.cuh"
#include "slice_task.cuh"

namespace amk_vm {

// A warp's part of the vector as the right-hand side of its products.
struct SliceVector {
  static constexpr int kMost = kHiddenSlice > kQSlice ? (kHiddenSlice > kInterSlice ? kHiddenSlice : kInterSlice)
                                                      : (kQSlice > kInterSlice ? kQSlice : kInterSlice);
  u32 b[kMost][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kMost; ++j) b[j][0] = b[j][1] = b[j][2] = b[j][3] = 0;
  }
  // Lane l brings elements 2l and 2l + 1 of the block.
  __device__ __forceinline__ void put(int j, u32 word, u32 lane) {
    const u32 from = lane % 4 * 8 + lane / 4 % 2;
#pragma unroll
    for (u32 k = 0; k < 4; ++k) b[j][k] = __shfl_sync(0xffffffffu, word, from + 2 * k);
  }
};

// RMSNorm's input: fp32 words, two a lane and block, to `put(j, pair)`. The norm's scale is applied to the sums. Returns this lane's sum of squares,
// before the norm's weights.
template <class Put>
__device__ __forceinline__ float fetch_norm(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane, Put put) {
  const u8* norm = p.vectors + task.norm;
  const u8* input = p.activations + task.input;
  const auto column = [&](int j) { return (warp + j * kConsumerWarps) * 64 + lane * 2; };
  const auto wanted = [&](int j) { return column(j) < kHidden; };
  u32 weight[kHiddenSlice];
#pragma unroll
  for (int j = 0; j < kHiddenSlice; ++j) weight[j] = wanted(j) ? __ldg(reinterpret_cast<const u32*>(norm + column(j) * 2)) : 0;
  const int sums = task.matrix == kGateUp ? kSums : 1;
  PacketPair pairs[kHiddenSlice * kSums];
  look_for(
      block, p, index, task.input_tag, pairs, [&](int i) { return input + (i % kSums * kHidden + column(i / kSums)) * 8; },
      [&](int i) { return wanted(i / kSums) && i % kSums < sums; });
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kHiddenSlice; ++j) {
    float a = __uint_as_float(pairs[j * kSums].low()), b = __uint_as_float(pairs[j * kSums].high());
#pragma unroll
    for (int s = 1; s < kSums; ++s) {  // packets that nobody looked for are zero
      a += __uint_as_float(pairs[j * kSums + s].low());
      b += __uint_as_float(pairs[j * kSums + s].high());
    }
    float wa, wb;
    unpack_pair<kWeightType>(weight[j], wa, wb);
    squares = fmaf(b, b, fmaf(a, a, squares));
    put(j, pack_pair<kWeightType>(a * wa, b * wb));
  }
  return squares;
}

// A vector of bf16 pairs, one word a lane and block.
template <int Blocks>
__device__ __forceinline__ void fetch_pairs(const Block& block, const Params& p, const GemvTask& task, u32 columns, u32 index, u32 warp, u32 lane,
                                            SliceVector& out) {
  const u8* input = p.activations + task.input;
  const auto word = [&](int j) { return (warp + j * kConsumerWarps) * 32 + lane; };
  PacketOne words[Blocks];
  look_for(
      block, p, index, task.input_tag, words, [&](int j) { return input + word(j) * 8; }, [&](int j) { return word(j) * 2 < columns; });
#pragma unroll
  for (int j = 0; j < Blocks; ++j) out.put(j, words[j].word(), lane);
}

// Attention's partials, merged in split order: two elements a lane and block, and their head's maximum and sum.
__device__ __forceinline__ void fetch_combine(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane,
                                              SliceVector& out) {
  constexpr int kTrip = kQSlice == 1 ? 4 : 2;  // splits whose records are on their way at once
  const u8* partials = p.activations + task.input;
  const u32 splits = active_splits(position_of(p, 0));
#pragma unroll
  for (int j = 0; j < kQSlice; ++j) {
    const u32 column = (warp + j * kConsumerWarps) * 64 + lane * 2;
    const bool there = column < kQRows;
    Merge merge;
#pragma unroll 1
    for (u32 base = 0; base < splits; base += kTrip) {
      PacketPair pairs[2 * kTrip];  // tail, elements
      const auto wanted = [&](int k) { return there && base + k / 2 < splits; };
      look_for(
          block, p, index, task.input_tag, pairs,
          [&](int k) {
            return partials + (((base + k / 2) * kHeads + column / kHeadDim) * kPartialRecord + (k % 2 == 0 ? kHeadDim : column % kHeadDim)) * 8;
          },
          wanted);
#pragma unroll
      for (int k = 0; k < kTrip; ++k)
        if (wanted(2 * k))
          merge.add(make_uint2(pairs[2 * k].low(), pairs[2 * k].high()), make_uint4(pairs[2 * k + 1].low(), pairs[2 * k + 1].high(), 0, 0));
    }
    const Elements merged = merge.result();
    out.put(j, there ? pack_pair<kWeightType>(merged.e[0], merged.e[1]) : 0, lane);
  }
}

// This warp's part of a task's vector. Returns this lane's sum of squares where the task norms it.
__device__ __forceinline__ float fetch(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane,
                                       SliceVector& vector) {
  if (task.matrix == kDown) {
    fetch_pairs<kInterSlice>(block, p, task, kInter, index, warp, lane, vector);
    return 0.0f;
  }
  if (task.matrix == kO) {
    if constexpr (kSplits == 1) {
      fetch_pairs<kQSlice>(block, p, task, kQRows, index, warp, lane, vector);
    } else {
      fetch_combine(block, p, task, index, warp, lane, vector);
    }
    return 0.0f;
  }
  return fetch_norm(block, p, task, index, warp, lane, [&](int j, u32 pair) { vector.put(j, pair, lane); });
}

}  // namespace amk_vm
