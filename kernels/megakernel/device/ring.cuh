// The producer warp: walks this SM's weight stream and keeps the ring filled, with at most kWindow copies in flight: more would delay every
// other memory request of the SM and move no more bytes (docs/megakernel-vm.md).
#pragma once

#include "cache.cuh"

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
  __device__ __forceinline__ void pass(u32 chunks, u32 slots) {                                       // several times round, perhaps
    if (chunks / slots % 2 != 0) turn(slots);
    advance(chunks % slots, slots);
  }
};

// Per consumer warp, across tasks.
struct Consumer {
  RingCursor ring;  // first chunk of the task at hand
  bool after_wide = false;
  u32 batches = 0;  // partial buffers used so far: buffer = batches % 2, its phase = batches / 2 % 2
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

__device__ __forceinline__ u32 slot_at(const Block& block, u32 slot) { return block.base() + kShared.ring + slot * kSlotBytes; }

// A chunk of weights.
struct WeightChunk {
  const u8* from;
  u32 bytes;
  u64 policy;
  __device__ __forceinline__ void copy(const Block& block, u32 slot) const {
    const u32 to = slot_at(block, slot);
#if __CUDA_ARCH__ >= 900
    if constexpr (kBulk) {
      if (threadIdx.x % 32 == 0) bulk_copy(to, from, bytes, block.full(slot), policy);
      return;
    }
#endif
    for (u32 at = threadIdx.x % 32 * 16; at < bytes; at += 512) async_copy16(to + at, from + at);
    async_copy_arrive(block.full(slot));
  }
};

// A group of cache rows: keys, then values. A cache of moderate length stays in L2 from step to step, beside weights that are evicted first.
struct CacheChunk {
  static constexpr u32 kRows = kCacheGroup * kCacheRowBytes, bytes = 2 * kRows;
  const u8* from;  // of the keys
  __device__ __forceinline__ void copy(const Block& block, u32 slot) const {
    const u8* values = from + static_cast<u64>(kKvHeads) * kMaxSeq * kCacheRowBytes;
    const u32 to = slot_at(block, slot);
#if __CUDA_ARCH__ >= 900
    if constexpr (kBulk) {
      if (threadIdx.x % 32 == 0) {
        bulk_copy(to, from, kRows, block.full(slot));
        bulk_copy(to + kRows, values, kRows, block.full(slot));
      }
      return;
    }
#endif
    for (u32 at = threadIdx.x % 32 * 16; at < kRows; at += 512) {
      async_copy16(to + at, from + at);
      async_copy16(to + kRows + at, values + at);
    }
    async_copy_arrive(block.full(slot));
  }
};

// What the producer remembers from chunk to chunk.
struct Producer {
  RingCursor fill;
  Landing landed;  // the oldest copy that may still be in flight
  u32 turn = 0, filled = 0, in_flight = 0;
  int last_wide = -1;

  // The next chunk, of the `n`-th ring task of the launch, into its slot when that is free and the window allows. False: the launch is over.
  template <class Chunk>
  __device__ __forceinline__ bool bring(const Block& block, const Params& p, const Chunk& chunk, bool wide, u32 n, u32 index) {
    // A fresh barrier's phase before the first counts as complete.
    if (kWideSlots > 0 || turn > 0) wait_barrier_timed(block, p, block.empty(fill.slot), fill.phase() ^ 1, index);
    if (kWideSlots > 0 && fill.slot >= kWideSlots) {
      for (u32 polls = 1; block.finished_so_far() <= last_wide; ++polls) {  // its vectors lie there
        if (polls % 1024 == 0 && out_of_time(block, p, kAbortRing, index)) break;
      }
    }
    // Consumers that are in this very task wait for its bytes and for nothing else: then more may be in flight.
    const u32 window = kWindow + (kBoost > 0 && !wide && block.finished_so_far() == static_cast<int>(n) ? kBoost : 0);
    if (block.aborted()) return false;
    arm(block, fill.slot, chunk.bytes);
    while (in_flight >= window && wait_barrier_timed(block, p, block.full(landed.slot()), landed.phase(), index)) {
      landed.pop();
      --in_flight;
    }
    if (in_flight >= window) return false;  // out of time: what is in flight is waited for in the end
    chunk.copy(block, fill.slot);
    landed.push(fill, in_flight);
    ++in_flight;
    fill.advance(1, slots_of(wide));
    if (++filled == kSlots) turn = 1;
    return true;
  }
};

// The rows of an attention task that are older than the launch: what the ring brings of them (cache.cuh).
__device__ __forceinline__ bool produce_cache(const Block& block, const Params& p, Producer& producer, const StreamDesc& stream, u32 step, u32 n,
                                              u32 index) {
  const u32 seq = kBatch == 1 ? 0 : stream.kind / kStreamKinds;
  const int position = position_at(p, seq, step), limit = position_at(p, seq, 0);
  const u8* rows = p.kv + cache_row(seq, stream.weight, 0, stream.bytes, 0) * kBytesOf<kKvType>;
  u32 split = stream.chunk_bytes;
  do {
    const SplitRange range = Ranges::range(position, split);
    const RingGroups groups = Ranges::ring(range, limit);
    for (u32 g = groups.end; g-- > groups.begin;) {
      const CacheChunk chunk{rows + static_cast<u64>(Ranges::at(range, g * kCacheGroup)) * kCacheRowBytes};
      if (!producer.bring(block, p, chunk, false, n, index)) return false;
    }
  } while (Ranges::next(split, position));
  return true;
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
    Producer producer;
    const u32 tasks = kPersistent ? queue.stream_count * p.steps : queue.stream_count;
    u32 i = 0, step = 0;  // task of the step, step of the launch
    const StreamDesc* const streams = p.streams + queue.stream_first;
    uint4 ahead = make_uint4(0, 0, 0, 0);  // the next task's, on its way while this one's chunks are
    if (tasks > 0) ahead = load_read_only16(streams);
    for (u32 n = 0; n < tasks; ++n) {  // of the launch
      if constexpr (kPersistent) {
        i = i + 1 < queue.stream_count && n > 0 ? i + 1 : 0;
        if (i == 0) {
          if (n > 0) ++step;
          if constexpr (!kBulk) __syncwarp();
          if (kBulk || threadIdx.x % 32 == 0) block.step_deadline_ns(true) = global_time_ns() + p.budget_ns;
          if constexpr (!kBulk) __syncwarp();
        }
      } else {
        i = n;
      }
      const StreamDesc stream{ahead.x, ahead.y, ahead.z, ahead.w};
      if (n + 1 < tasks) ahead = load_read_only16(streams + (kPersistent && i + 1 == queue.stream_count ? 0 : i + 1));
      // Started once at most kDepth earlier ring tasks are unfinished.
      for (u32 polls = 1; block.finished_so_far() + kDepth < static_cast<int>(n); ++polls) {
        if (polls % 1024 == 0 && out_of_time(block, p, kAbortRing, i)) break;
      }
      if (kCacheGroup > 0 && stream.kind % kStreamKinds == kStreamCache) {
        producer.fill.enter(false);
        if (!produce_cache(block, p, producer, stream, step, n, i)) break;
        continue;
      }
      const u8* from = p.weights + static_cast<u64>(stream.weight) * 16;
      const bool wide = kWideSlots > 0 && stream.kind == kStreamWide;
      producer.fill.enter(wide);
      for (u32 at = 0; at < stream.bytes; at += stream.chunk_bytes) {
        const u32 left = stream.bytes - at;
        if (!producer.bring(block, p, WeightChunk{from + at, left < stream.chunk_bytes ? left : stream.chunk_bytes, policy}, wide, n, i)) break;
      }
      if (block.aborted()) break;
      if (wide) producer.last_wide = static_cast<int>(n);
    }
    // No block ends with copies in flight into its shared memory.
    for (; producer.in_flight > 0; --producer.in_flight) {
      while (!mbarrier_test(block.full(producer.landed.slot()), producer.landed.phase())) {
      }
      producer.landed.pop();
    }
    // The consumers keep no time at a slot. What a wrong plan makes them wait for, and nobody brings, is waited for here.
    u32 done = 0;
    for (u32 polls = 1; (done = static_cast<u32>(block.finished_so_far())) < tasks; ++polls) {
      if (polls % kPollsPerCheck == 0 && out_of_time(block, p, kAbortRing, done % queue.stream_count)) break;
      __nanosleep(200);
    }
  }
}

}  // namespace amk_vm
