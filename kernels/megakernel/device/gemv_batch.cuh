// Several sequences: what warps tell each other of a batch of rows' sums. Two buffers take turns.
#pragma once

#include "epilogue.cuh"

namespace amk_vm {

// Before this batch's sums are written: those of two batches before have been read.
__device__ __forceinline__ void await_sums_place(const Block& block, const Consumer& consumer, u32 buffer) {
  if constexpr (kFullBarriers) consumer_barrier();
  if (consumer.batches >= 2) wait_barrier(block, block.sums_empty(buffer), consumer.batches / 2 % 2 ^ 1);
}

// After this warp's sums of the batch are written.
__device__ __forceinline__ void tell_sums_full(const Block& block, Epilogue& epilogue, u32 buffer, u32 warp, u32 lane) {
  if (kFinishers && warp < kBatch) epilogue.hand_over(block.partials(buffer, warp));
  __syncwarp();
  mbarrier_arrive_many(block.sums_full(buffer), 1, lane);
  if constexpr (kFullBarriers) consumer_barrier();
  if constexpr (kFullBarriers && kFinishers) {
    finish_handover();
    finish_handover();
  }
}

}  // namespace amk_vm
