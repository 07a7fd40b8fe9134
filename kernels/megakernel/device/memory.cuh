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

__device__ __forceinline__ uint4 load_shared16(u32 address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}
// Zero where `yes` is false; without a branch.
__device__ __forceinline__ uint4 load_shared16_if(u32 address, bool yes) {
  uint4 v = make_uint4(0, 0, 0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "r"(address), "r"(static_cast<u32>(yes)));
  return v;
}
// Weights without a ring: read once, so neither L1 nor a lasting place in L2.
__device__ __forceinline__ uint4 load_weight16(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
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
__device__ __forceinline__ void store32(void* p, u32 v, u32& reply) {
  if constexpr (kConfirmed) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    reply |= old;
  } else {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
  }
}
__device__ __forceinline__ void store_float(float* p, float v, u32& reply) { store32(p, __float_as_uint(v), reply); }

// Two neighbouring elements of type T at element index `at` (even).
template <int T>
__device__ __forceinline__ void store_pair(u8* base, u64 at, float low, float high, u32& reply) {
  if constexpr (T == kF32) {
    store_float(reinterpret_cast<float*>(base) + at, low, reply);
    store_float(reinterpret_cast<float*>(base) + at + 1, high, reply);
  } else {
    store32(base + at * 2, pack_pair<T>(low, high), reply);
  }
}

// Confirmed only: every writer calls it before synchronising with the thread that signals. A warp issues in order, and this store needs the
// replies: nothing after it is issued before they have come.
__device__ __forceinline__ void await_replies(u32 dummy_address, u32 reply) {
  if constexpr (kConfirmed) asm volatile("st.shared.u32 [%0], %1;" ::"r"(dummy_address), "r"(reply) : "memory");
}
__device__ __forceinline__ void signal_counter(int* counter) {
  if constexpr (kConfirmed) {
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
  } else {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
  }
}

// --- barriers ------------------------------------------------------------------------------------------------------------------------------

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

__device__ __forceinline__ void mbarrier_arrive(u32 bar) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(bar) : "memory");
}
// `count` arrivals at once; only the last may complete the phase.
__device__ __forceinline__ void mbarrier_arrive_many(u32 bar, int count) {
  if (count > 1) asm volatile("{ .reg .b64 s; mbarrier.arrive.noComplete.shared.b64 s, [%0], %1; }" ::"r"(bar), "r"(count - 1) : "memory");
  mbarrier_arrive(bar);
}

// --- copies into the ring ------------------------------------------------------------------------------------------------------------------

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ u64 evict_first_policy() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, u32 bytes, u32 bar, u64 policy) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from),
               "r"(bytes), "r"(bar), "l"(policy)
               : "memory");
}
#endif
__device__ __forceinline__ void async_copy16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The barrier gets this thread's arrival when its copies so far have landed.
__device__ __forceinline__ void async_copy_arrive(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory"); }

}  // namespace amk_vm
