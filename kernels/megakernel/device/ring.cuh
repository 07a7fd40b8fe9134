// The producer warp: walks this SM's weight stream and keeps the ring filled, with at most kWindow copies in flight: more would delay every
// other memory request of the SM and move no more bytes (docs/megakernel-vm.md).
#pragma once

#include "block.cuh"

namespace amk_vm {

// A place in the ring: slot and the phase parity of its current turn.
struct RingCursor {
  u32 slot = 0, parity = 0;
  __device__ __forceinline__ void advance(u32 by) {  // by <= kSlots
    slot += by;
    if (slot >= kSlots) {
      slot -= kSlots;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void copy_chunk(const Block& block, const u8* from, u32 slot, u32 bytes, u64 policy) {
  const u32 to = block.base() + kShared.ring + slot * kSlotBytes;
#if __CUDA_ARCH__ >= 900
  if constexpr (kBulk) {
    if (threadIdx.x % 32 == 0) bulk_copy(to, from, bytes, block.full(slot), policy);
    return;
  }
#endif
  (void)policy;
  for (u32 at = threadIdx.x % 32 * 16; at < bytes; at += 512) async_copy16(to + at, from + at);
  async_copy_arrive(block.full(slot));
}

// With bulk copies lane 0 works alone; with cp.async the whole warp copies and waits together.
__device__ void produce(const Block& block, const Params& p, const QueueDesc& queue) {
  if constexpr (kSlots > 0) {
    if (kBulk && threadIdx.x % 32 != 0) return;
    u64 policy = 0;
#if __CUDA_ARCH__ >= 900
    policy = evict_first_policy();
#endif
    RingCursor fill, landed;  // landed: the oldest copy that may still be in flight
    u32 turn = 0, filled = 0, in_flight = 0;
    for (u32 i = 0; i < queue.stream_count; ++i) {
      const StreamDesc stream = p.streams[queue.stream_first + i];
      // Started once at most kDepth earlier ring tasks are unfinished.
      for (u32 polls = 1; block.finished_so_far() + kDepth < static_cast<int>(i); ++polls) {
        if (polls % 1024 == 0 && out_of_time(block, p, kAbortRing, i)) break;
      }
      const u8* from = p.weights + static_cast<u64>(stream.weight) * 16;
      for (u32 at = 0; at < stream.bytes; at += stream.chunk_bytes) {
        if (turn > 0) wait_barrier_timed(block, p, block.empty(fill.slot), fill.parity ^ 1, i);
        // Consumers that are in this very task wait for its bytes and for nothing else: then more may be in flight.
        const u32 window = kWindow + (kBoost > 0 && block.finished_so_far() == static_cast<int>(i) ? kBoost : 0);
        while (in_flight >= window) {
          wait_barrier_timed(block, p, block.full(landed.slot), landed.parity, i);
          landed.advance(1);
          --in_flight;
        }
        if (block.aborted()) break;
        const u32 left = stream.bytes - at;
        copy_chunk(block, from + at, fill.slot, left < stream.chunk_bytes ? left : stream.chunk_bytes, policy);
        ++in_flight;
        fill.advance(1);
        if (++filled == kSlots) turn = 1;
      }
      if (block.aborted()) break;
    }
    // No block ends with copies in flight into its shared memory.
    for (; in_flight > 0; --in_flight) {
      while (!mbarrier_test(block.full(landed.slot), landed.parity)) {
      }
      landed.advance(1);
    }
  }
}

}  // namespace amk_vm
