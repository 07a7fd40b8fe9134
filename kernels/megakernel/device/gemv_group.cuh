// What a warp multiplies in a step of a GEMV task, by the weights' format: a group of weights, its part of the vector, rows' sums, and what of them
// is left for the next step.
#pragma once

#include "segment.cuh"
#include "segment_int8.cuh"

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

}  // namespace amk_vm
