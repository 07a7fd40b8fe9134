// The producer warp: walks this SM's weight stream and keeps the ring filled, with at most kWindow copies in flight: more would delay every
// other memory request of the SM and move no more bytes (docs/megakernel-vm.md).
#pragma once

#include "block.cuh"

namespace amk_vm {

__device__ __forceinline__ u32 slots_of(bool wide) { return kWideSlots > 0 && wide ? kWideSlots : kSlots; }

// A place in the ring: slot and the phase parity of its current turn. Where wide tasks use only some of the slots, turns differ: a bit for each slot.
struct RingCursor {
  u32 slot = 0, parity = 0;
  __device__ __forceinline__ static u32 bits(u32 from, u32 to) { return (1u << to) - (1u << from); }
  __device__ __forceinline__ void enter(bool wide) {
    if (kWideSlots > 0 && wide && slot >= kWideSlots) slot = 0;
  }
  __device__ __forceinline__ u32 phase() const { return kWideSlots > 0 ? parity >> slot & 1 : parity; }
  __device__ __forceinline__ void advance(u32 by, u32 slots) {  // by <= slots
    if constexpr (kWideSlots > 0) {
      const u32 end = slot + by, over = end >= slots ? end - slots : 0;
      parity ^= bits(slot, end >= slots ? slots : end) ^ bits(0, over);
      slot = end >= slots ? over : end;
      return;
    }
    slot += by;
    if (slot >= kSlots) {
      slot -= kSlots;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void turn(u32 slots) { parity ^= kWideSlots > 0 ? bits(0, slots) : 1; }  // once round
};

// Copies in flight, in their order: where the oldest lands. Only where slots differ by task; else a cursor follows.
struct Landing {
  u64 places = 0;  // a byte each: slot, and its phase in the top bit
  RingCursor cursor;
  __device__ __forceinline__ void push(const RingCursor& fill, u32 in_flight) {
    if constexpr (kWideSlots > 0) places |= static_cast<u64>(fill.slot | fill.phase() << 7) << (8 * in_flight);
  }
  __device__ __forceinline__ u32 slot() const { return kWideSlots > 0 ? static_cast<u32>(places) & 0x7f : cursor.slot; }
  __device__ __forceinline__ u32 phase() const { return kWideSlots > 0 ? static_cast<u32>(places) >> 7 & 1 : cursor.parity; }
  __device__ __forceinline__ void pop() {
    if constexpr (kWideSlots > 0) {
      places >>= 8;
    } else {
      cursor.advance(1, kSlots);
    }
  }
};
static_assert(kWideSlots == 0 || kWindow + kBoost <= 8, "a byte a copy in flight");

// The slot's barrier expects a chunk: before the copy that brings it, so that the copy itself is all that is left to do when its turn comes.
__device__ __forceinline__ void arm(const Block& block, u32 slot, u32 bytes) {
#if __CUDA_ARCH__ >= 900
  if (kBulk && threadIdx.x % 32 == 0) expect_bytes(block.full(slot), bytes);
#endif
}

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

// With bulk copies lane 0 works alone; with cp.async the whole warp copies and waits together. Steps of one launch follow one another without a
// break: the next step's first weights are on their way while this one's argmax is.
__device__ void produce(const Block& block, const Params& p, const QueueDesc& queue) {
  if constexpr (kSlots > 0) {
    if (kBulk && threadIdx.x % 32 != 0) return;
    u64 policy = 0;
#if __CUDA_ARCH__ >= 900
    policy = evict_first_policy();
#endif
    RingCursor fill;
    Landing landed;  // the oldest copy that may still be in flight
    u32 turn = 0, filled = 0, in_flight = 0;
    int last_wide = -1;
    const u32 tasks = kPersistent ? queue.stream_count * p.steps : queue.stream_count;
    u32 i = 0;                         // task of the step
    for (u32 n = 0; n < tasks; ++n) {  // of the launch
      if constexpr (kPersistent) {
        i = i + 1 < queue.stream_count && n > 0 ? i + 1 : 0;
        if (i == 0) {
          if constexpr (!kBulk) __syncwarp();
          if (kBulk || threadIdx.x % 32 == 0) block.step_deadline_ns(true) = global_time_ns() + p.budget_ns;
          if constexpr (!kBulk) __syncwarp();
        }
      } else {
        i = n;
      }
      const StreamDesc stream = p.streams[queue.stream_first + i];
      // Started once at most kDepth earlier ring tasks are unfinished.
      for (u32 polls = 1; block.finished_so_far() + kDepth < static_cast<int>(n); ++polls) {
        if (polls % 1024 == 0 && out_of_time(block, p, kAbortRing, i)) break;
      }
      const u8* from = p.weights + static_cast<u64>(stream.weight) * 16;
      const bool wide = kWideSlots > 0 && stream.wide != 0;
      const u32 slots = slots_of(wide);
      fill.enter(wide);
      for (u32 at = 0; at < stream.bytes; at += stream.chunk_bytes) {
        // A fresh barrier's phase before the first counts as complete.
        if (kWideSlots > 0 || turn > 0) wait_barrier_timed(block, p, block.empty(fill.slot), fill.phase() ^ 1, i);
        if (kWideSlots > 0 && fill.slot >= kWideSlots) {
          for (u32 polls = 1; block.finished_so_far() <= last_wide; ++polls) {  // its vectors lie there
            if (polls % 1024 == 0 && out_of_time(block, p, kAbortRing, i)) break;
          }
        }
        // Consumers that are in this very task wait for its bytes and for nothing else: then more may be in flight.
        const u32 window = kWindow + (kBoost > 0 && !wide && block.finished_so_far() == static_cast<int>(n) ? kBoost : 0);
        const u32 left = stream.bytes - at, bytes = left < stream.chunk_bytes ? left : stream.chunk_bytes;
        if (block.aborted()) break;
        arm(block, fill.slot, bytes);
        while (in_flight >= window && wait_barrier_timed(block, p, block.full(landed.slot()), landed.phase(), i)) {
          landed.pop();
          --in_flight;
        }
        if (in_flight >= window) break;  // out of time: what is in flight is waited for below
        copy_chunk(block, from + at, fill.slot, bytes, policy);
        landed.push(fill, in_flight);
        ++in_flight;
        fill.advance(1, slots);
        if (++filled == kSlots) turn = 1;
      }
      if (block.aborted()) break;
      if (wide) last_wide = static_cast<int>(n);
    }
    // No block ends with copies in flight into its shared memory.
    for (; in_flight > 0; --in_flight) {
      while (!mbarrier_test(block.full(landed.slot()), landed.phase())) {
      }
      landed.pop();
    }
  }
}

}  // namespace amk_vm
