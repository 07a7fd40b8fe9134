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

// This warp's part of a task's vector: asked for, and taken when it is there. What lies between costs nothing while it is on its way.
//
// Two elements a lane and block: of a vector of bf16 pairs a word, of RMSNorm's input two fp32 words, and as many more as the residual behind
// attention is the sum of. One register array for all kinds.
struct Fetch {
  static constexpr int kNormPairs = kHiddenSlice * kSums, kMost = kNormPairs > SliceVector::kMost ? kNormPairs : SliceVector::kMost;
  PacketPair pairs[kMost];   // of a word: p[0]
  u32 weight[kHiddenSlice];  // the norm's

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& pair : pairs) pair.clear();
#pragma unroll
    for (u32& pair : weight) pair = 0;
  }

  static __device__ __forceinline__ u32 column(int j, u32 warp, u32 lane) { return (warp + j * kConsumerWarps) * 64 + lane * 2; }
  static __device__ __forceinline__ bool norm_wanted(const GemvTask& task, u32 warp, u32 lane, int i) {
    return column(i / kSums, warp, lane) < kHidden && (kSums == 1 || i % kSums == 0 || task.matrix == kGateUp);
  }
  static __device__ __forceinline__ const u8* norm_from(const Params& p, const GemvTask& task, u32 warp, u32 lane, int i) {
    return p.activations + task.input + (i % kSums * kHidden + column(i / kSums, warp, lane)) * 8;
  }
  __device__ __forceinline__ void ask_norm(const Params& p, const GemvTask& task, u32 warp, u32 lane) {
#pragma unroll
    for (int j = 0; j < kHiddenSlice; ++j) {
      const u32 at = column(j, warp, lane);
      if (at < kHidden) weight[j] = __ldg(reinterpret_cast<const u32*>(p.vectors + task.norm + at * 2));
    }
#pragma unroll
    for (int i = 0; i < kNormPairs; ++i)
      if (norm_wanted(task, warp, lane, i)) pairs[i].load(norm_from(p, task, warp, lane, i));
  }
  // To `put(j, pair)`; the norm's scale is applied to the sums. Returns this lane's sum of squares, before the norm's weights.
  template <class Put>
  __device__ __forceinline__ float take_norm(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane, Put put) {
    await_loads<kNormPairs>(
        block, p, index, [&](int i) { pairs[i].load(norm_from(p, task, warp, lane, i)); }, [&](int i) { return pairs[i].right(task.input_tag); },
        [&](int i) { return norm_wanted(task, warp, lane, i); });
    __syncwarp();
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

  static __device__ __forceinline__ const u8* word_from(const Params& p, const GemvTask& task, u32 warp, u32 lane, int j) {
    return p.activations + task.input + column(j, warp, lane) * 4;
  }
  template <int Blocks, u32 Columns>
  __device__ __forceinline__ void ask_words(const Params& p, const GemvTask& task, u32 warp, u32 lane) {
#pragma unroll
    for (int j = 0; j < Blocks; ++j)
      if (column(j, warp, lane) < Columns) PacketOne::load(pairs[j].p[0], word_from(p, task, warp, lane, j));
  }
  template <int Blocks, u32 Columns>
  __device__ __forceinline__ void take_words(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane,
                                             SliceVector& out) {
    await_loads<Blocks>(
        block, p, index, [&](int j) { PacketOne::load(pairs[j].p[0], word_from(p, task, warp, lane, j)); },
        [&](int j) { return static_cast<u32>(pairs[j].p[0] >> 32) == task.input_tag; }, [&](int j) { return column(j, warp, lane) < Columns; });
    __syncwarp();
#pragma unroll
    for (int j = 0; j < Blocks; ++j) out.put(j, pairs[j].low(), lane);
  }
};

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

__device__ __forceinline__ void ask(Fetch& fetch, const Params& p, const GemvTask& task, u32 warp, u32 lane) {
  if (task.matrix == kDown) {
    fetch.ask_words<kInterSlice, kInter>(p, task, warp, lane);
  } else if (kAttentionO || task.matrix != kO) {
    fetch.ask_norm(p, task, warp, lane);
  } else if (kSplits == 1) {
    fetch.ask_words<kQSlice, kQRows>(p, task, warp, lane);
  }
}
// Returns this lane's sum of squares where the task norms its vector.
__device__ __forceinline__ float take(Fetch& fetch, const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane,
                                      SliceVector& vector) {
  if (task.matrix == kDown) {
    fetch.take_words<kInterSlice, kInter>(block, p, task, index, warp, lane, vector);
  } else if (kAttentionO || task.matrix != kO) {
    return fetch.take_norm(block, p, task, index, warp, lane, [&](int j, u32 pair) { vector.put(j, pair, lane); });
  } else if constexpr (kSplits == 1) {
    fetch.take_words<kQSlice, kQRows>(block, p, task, index, warp, lane, vector);
  } else {
    fetch_combine(block, p, task, index, warp, lane, vector);
  }
  return 0.0f;
}

}  // namespace amk_vm
