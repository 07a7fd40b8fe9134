// Loads, stores, barriers and copies as PTX. Loads are volatile without a memory clobber: they keep their place among barriers and waits, and the
// compiler may still gather several before the first use. What other SMs wrote in this launch is read through L2 (.cg): L1 is not coherent.
#pragma once

#include "base.cuh"

namespace amk_vm {

// threadIdx.x, read anew at each use: what follows from it is then computed inside an instruction's code, not before the loop over tasks for all
// instructions at once, where it would hold registers that none of them can spare.
__device__ __forceinline__ u32 thread_index() {
  u32 i;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
  return i;
}

__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// The same value, of which the compiler knows nothing: it stays in a register instead of being made anew at each use.
__device__ __forceinline__ u32 keep(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Likewise an address: worked out here, not behind the wait that comes next.
__device__ __forceinline__ const u8* keep(const u8* address) {
  asm volatile("" : "+l"(address));
  return address;
}

__device__ __forceinline__ uint4 load_shared16(u32 address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}
__device__ __forceinline__ uint2 load_shared8(u32 address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}
__device__ __forceinline__ void store_shared4(u32 address, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory"); }
// `v` stays where `yes` is false; without a branch.
__device__ __forceinline__ void load_shared16_over(uint4& v, u32 address, bool yes) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "r"(address), "r"(static_cast<u32>(yes)));
}
__device__ __forceinline__ u32 load_shared_now(u32 address) {
  u32 v;
  asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_shared_if(u32 address, float v, bool yes) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.shared.f32 [%0], %1; }" ::"r"(address), "f"(v), "r"(static_cast<u32>(yes)) : "memory");
}
// Weights without a ring: read once, so neither L1 nor a lasting place in L2.
__device__ __forceinline__ uint4 load_weight16(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// What nothing in the launch writes.
__device__ __forceinline__ uint4 load_read_only16(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// `bytes` from `lanes_piece` - 16 * lane on, by a warp, into L2: a hint.
__device__ __forceinline__ void prefetch_segment(const u8* lanes_piece, u32 bytes, u32 lane) {
  const u8* base = lanes_piece - lane * 16;
  for (u32 at = lane * 128; at < bytes; at += 32 * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(base + at));
}
__device__ __forceinline__ uint4 load_l2_16(const void* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ uint4 load_l2_16_if(const void* p, bool yes) {
  uint4 v = make_uint4(0, 0, 0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(p), "r"(static_cast<u32>(yes)));
  return v;
}
// `v` stays where `yes` is false.
__device__ __forceinline__ void load_l2_16_over(uint4& v, const void* p, bool yes) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(p), "r"(static_cast<u32>(yes)));
}
__device__ __forceinline__ uint2 load_l2_8_if(const void* p, bool yes) {
  uint2 v = make_uint2(0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.cg.v2.u32 {%0,%1}, [%2]; }"
               : "+r"(v.x), "+r"(v.y)
               : "l"(p), "r"(static_cast<u32>(yes)));
  return v;
}
__device__ __forceinline__ float load_l2(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ u32 load_l2(const u32* p) {
  u32 v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ u16 load_l2(const u16* p) {
  u16 v;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ int load_acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ int load_relaxed(const int* p) {
  int v;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u64 global_time_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// --- publishing: the stores of a task's output, then its signal --------------------------------------------------------------------------
//
// Release: plain stores; the signal is a gpu-scope release (PTX memory model: the writing threads synchronise with the signalling one by
// __syncwarp or a block barrier, its fence is cumulative).
// Confirmed: every store is an exchange whose reply is awaited, then a relaxed signal. It relies on L2 being the point of coherence, which
// the memory model does not promise; it is off by default (docs/megakernel-vm.md).
// Flagged: a word and its tag in one 8-byte store, whose reader looks for the tag; the signal is only a hint when to look. A packet is one relaxed
// scalar access on both sides, so a right tag comes with the right word; that storage may be used again follows from the same dependencies as before.
struct Publisher {
  u32 tag = 0;    // flagged
  u32 reply = 0;  // confirmed: the replies, ORed; using it is what makes a warp wait for them

  __device__ __forceinline__ void plain(void* p, u32 v) { asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
  __device__ __forceinline__ void exchange(void* p, u32 v) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    reply |= old;
  }
  // Word `index` of an activation buffer.
  __device__ __forceinline__ void word(u8* buffer, u64 index, u32 v) {
    if constexpr (kFlagged) {
      asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(buffer + index * 8), "l"(static_cast<u64>(tag) << 32 | v) : "memory");
    } else if constexpr (kConfirmed) {
      exchange(buffer + index * 4, v);
    } else {
      plain(buffer + index * 4, v);
    }
  }
  // Two neighbouring words, at a multiple of 8 bytes.
  __device__ __forceinline__ void two(void* p, u32 a, u32 b) {
    if constexpr (kConfirmed) {
      u64 old;
      asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(static_cast<u64>(b) << 32 | a) : "memory");
      reply |= static_cast<u32>(old);
    } else {
      asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(a), "r"(b) : "memory");
    }
  }
  // Two neighbouring floats each.
  __device__ __forceinline__ void pairs(void* p, void* q, float4 v) {
    if constexpr (kConfirmed) {
      u64 old[2];
      const u64 low = static_cast<u64>(__float_as_uint(v.y)) << 32 | __float_as_uint(v.x),
                high = static_cast<u64>(__float_as_uint(v.w)) << 32 | __float_as_uint(v.z);
      asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;" : "=l"(old[0]) : "l"(p), "l"(low) : "memory");
      asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;" : "=l"(old[1]) : "l"(q), "l"(high) : "memory");
      reply |= static_cast<u32>(old[0]) | static_cast<u32>(old[1]);
    } else {
      asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(v.x), "f"(v.y) : "memory");
      asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(q), "f"(v.z), "f"(v.w) : "memory");
    }
  }
  __device__ __forceinline__ void bf16_quad(void* p, float4 v) { two(p, pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)); }
  // Word of the KV cache or the logits: read in this launch only by tasks that wait for it, or (flagged) in later launches.
  __device__ __forceinline__ void outside(void* p, u32 v) {
    if constexpr (kConfirmed) {
      exchange(p, v);
    } else {
      plain(p, v);
    }
  }
  // Two neighbouring elements of type T, the first even.
  template <int T>
  __device__ __forceinline__ void pair(u8* buffer, u64 element, float low, float high) {
    if constexpr (T == kF32) {
      word(buffer, element, __float_as_uint(low));
      word(buffer, element + 1, __float_as_uint(high));
    } else {
      word(buffer, element / 2, pack_pair<T>(low, high));
    }
  }
  template <int T>
  __device__ __forceinline__ void cache_pair(u8* cache, u64 element, float low, float high) {
    if constexpr (T == kF32) {
      outside(cache + element * 4, __float_as_uint(low));
      outside(cache + element * 4 + 4, __float_as_uint(high));
    } else {
      outside(cache + element * 2, pack_pair<T>(low, high));
    }
  }
  // Every writer calls it before synchronising with the thread that signals. Confirmed: a warp issues in order, and this store needs the replies, so
  // nothing after it is issued before they have come.
  __device__ __forceinline__ void settle(u32 sink_address) const {
    if constexpr (kConfirmed) asm volatile("st.shared.u32 [%0], %1;" ::"r"(sink_address), "r"(reply) : "memory");
  }
};

// Called by one thread after the writers synchronised with it. `for_step`: what this SM stored in the step, the cache's rows above all, is for the
// next step of the launch to see; flagged data carries itself, but the cache has no tags (docs/megakernel-vm.md).
__device__ __forceinline__ void signal_counter(int* counter, bool for_step) {
  if (kConfirmed || (kFlagged && !(kPersistent && for_step))) {
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
  } else {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
  }
}

// Four words and their tags.
struct Packets {
  u64 p[4];
  __device__ __forceinline__ void clear() { p[0] = p[1] = p[2] = p[3] = 0; }  // as in segment.cuh, Group
  __device__ __forceinline__ void load(const u8* from) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(p[0]), "=l"(p[1]) : "l"(from));
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(p[2]), "=l"(p[3]) : "l"(from + 16));
  }
  __device__ __forceinline__ bool right(u32 tag) const {
    return static_cast<u32>(p[0] >> 32) == tag && static_cast<u32>(p[1] >> 32) == tag && static_cast<u32>(p[2] >> 32) == tag &&
           static_cast<u32>(p[3] >> 32) == tag;
  }
  __device__ __forceinline__ uint4 words() const {
    return make_uint4(static_cast<u32>(p[0]), static_cast<u32>(p[1]), static_cast<u32>(p[2]), static_cast<u32>(p[3]));
  }
};

// --- barriers ------------------------------------------------------------------------------------------------------------------------------

// Named barriers of all consumer warps: 1 for both to wait; 3 and 4, 5 and 6 (one a partial buffer): some arrive, the rest wait.
__device__ __forceinline__ void barrier_wait(u32 id) { asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kConsumers) : "memory"); }
__device__ __forceinline__ void barrier_arrive(u32 id) {
  if constexpr (kFullBarriers) return barrier_wait(id);
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kConsumers) : "memory");
}
constexpr u32 kPartialsFull = 3, kPartialsEmpty = 5;
// Of the warps that finish a sequence each: all but the first arrive, the first waits. In a build for racecheck all consumer warps meet instead.
template <u32 Sequences>
__device__ __forceinline__ void finishers_barrier(bool first) {
  if (first) {
    asm volatile("bar.sync 3, %0;" ::"n"(Sequences * 32) : "memory");
  } else {
    asm volatile("bar.arrive 3, %0;" ::"n"(Sequences * 32) : "memory");
  }
}
// In a build for racecheck: consumers and finishers meet where sums are handed over, and where they have been read.
__device__ __forceinline__ void finish_handover() { asm volatile("bar.sync 5, %0;" ::"n"(kConsumers + 64) : "memory"); }
__device__ __forceinline__ void consumer_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory"); }

__device__ __forceinline__ void mbarrier_init(u32 bar, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

__device__ __forceinline__ bool mbarrier_test(u32 bar, u32 parity) {
  u32 done;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(bar), "r"(parity)
               : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(bar), "r"(parity)
               : "memory");
#endif
  return done != 0;
}

// Lanes of a warp that arrive for it: all of them in a build for racecheck, which does not follow one lane's arrival for what the others read.
constexpr u32 kArrivingLanes = kFullBarriers ? 32 : 1;
// `count` arrivals at once by a warp's first lane, without a branch where the instruction can do it.
__device__ __forceinline__ void mbarrier_arrive_many(u32 bar, u32 count, u32 lane) {
  if constexpr (kFullBarriers) lane = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; .reg .b64 s; setp.eq.u32 p, %2, 0; @p mbarrier.arrive.shared.b64 s, [%0], %1; }" ::"r"(bar), "r"(count), "r"(lane)
               : "memory");
#else
  if (lane != 0) return;
  // Only the last may complete the phase.
  if (count > 1) asm volatile("{ .reg .b64 s; mbarrier.arrive.noComplete.shared.b64 s, [%0], %1; }" ::"r"(bar), "r"(count - 1) : "memory");
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(bar) : "memory");
#endif
}

// Where an even element lies in a vector that warps load themselves: in the order in which products take it (segment.cuh), of every 16 elements the
// pairs 0 2 4 6, 1 3 5 7.
__device__ __forceinline__ u32 pair_order(u32 element) { return element / 16 * 16 + element % 4 / 2 * 8 + element % 16 / 4 * 2; }

// Registers go from the producer's four warps, three of which only bring theirs, to the consumers'. An instruction of four warps together.
constexpr int kProducerRegisters = kFinishers ? 56 : 40;
__device__ __forceinline__ void give_registers() {
#if __CUDA_ARCH__ >= 900
  if constexpr (kConsumerRegisters > 0) {
    __syncwarp();
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
  }
#endif
}
__device__ __forceinline__ void take_registers() {
#if __CUDA_ARCH__ >= 900
  if constexpr (kConsumerRegisters > 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters > 0 ? kConsumerRegisters : 40));
#endif
}

// --- copies into shared memory ------------------------------------------------------------------------------------------------------------------

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ u64 evict_first_policy() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void expect_bytes(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, u32 bytes, u32 bar, u64 policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from),
               "r"(bytes), "r"(bar), "l"(policy)
               : "memory");
}
// The same, to be kept in L2 as long as anything is.
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, u32 bytes, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(bar)
               : "memory");
}
#endif
__device__ __forceinline__ void async_copy16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The barrier gets this thread's arrival when its copies so far have landed.
__device__ __forceinline__ void async_copy_arrive(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory"); }

}  // namespace amk_vm
