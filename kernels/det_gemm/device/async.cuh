// Hopper's asynchronous machinery in PTX: mbarriers, bulk tensor copies, clusters, register budgets. Semantics: PTX ISA 8.x.
#pragma once

#include "types.cuh"

// An opaque CUtensorMap: 128 bytes, 64-byte aligned, filled by the host with cuTensorMapEncodeTiled.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

#ifndef DG_SPIN_BUDGET_NS
#define DG_SPIN_BUDGET_NS 4000000000ull  // a wait longer than this can only be a bug: trap instead of hanging the GPU
#endif

__device__ __forceinline__ u64 global_timer_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ bool barrier_try(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Blocks until the phase with this parity has completed.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  if (barrier_try(barrier, parity)) return;
  const u64 start = global_timer_ns();
  while (!barrier_try(barrier, parity)) {
    if (global_timer_ns() - start > DG_SPIN_BUDGET_NS) asm volatile("trap;");
  }
}

// Arrives and announces `bytes` that copies will complete.
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }

// Arrives at the barrier with the same offset in another block of the cluster. Default semantics on purpose: an explicit .release.cluster
// makes each arrival wait for all earlier memory traffic of the thread (measured: 0.45 µs per block and stage). What it signals is that
// wgmma has finished reading, and that wait is wgmma's own.
__device__ __forceinline__ void barrier_arrive_remote(u32 barrier, u32 rank) {
  u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(barrier), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Programmatic dependent launch: lets the stream's next kernel be scheduled as blocks of this one leave; and waits until the previous
// kernel has ended and its writes are visible. Without the launch attribute both do nothing.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_previous_grid() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<u64>(map)) : "memory");
}

// One lane of a warp whose lanes are all here, and the same one every time. ptxas knows that it is one: under `lane == 0` each bulk copy stands in a
// loop over the lanes that might be active.
__device__ __forceinline__ bool elect_one() {
  u32 elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(elected));
  return elected != 0;
}

// 0: no hint; 1: first to leave L2; 2: last to leave.
template <int kHint>
__device__ __forceinline__ u64 cache_policy() {
  u64 policy = 0;
  if constexpr (kHint == 1) asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  if constexpr (kHint == 2) asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Copies the box at (inner, outer) into shared memory of this block.
template <int kHint>
__device__ __forceinline__ void copy_box(u32 to, const TensorMap* map, u32 barrier, int inner, int outer, u64 policy) {
  if constexpr (kHint == 0) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(reinterpret_cast<u64>(map)), "r"(barrier), "r"(inner), "r"(outer)
                 : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(reinterpret_cast<u64>(map)), "r"(barrier), "r"(inner), "r"(outer), "l"(policy)
        : "memory");
  }
}

// The same into every block of `mask`, at the same offset, signalling each block's own barrier.
template <int kHint>
__device__ __forceinline__ void copy_box_multicast(u32 to, const TensorMap* map, u32 barrier, int inner, int outer, u16 mask, u64 policy) {
  if constexpr (kHint == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(reinterpret_cast<u64>(map)), "r"(barrier), "r"(inner), "r"(outer), "h"(mask)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], "
        "%5, %6;" ::"r"(to),
        "l"(reinterpret_cast<u64>(map)), "r"(barrier), "r"(inner), "r"(outer), "h"(mask), "l"(policy)
        : "memory");
  }
}

__device__ __forceinline__ void store_box(const TensorMap* map, u32 from, int inner, int outer) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(reinterpret_cast<u64>(map)), "r"(from), "r"(inner),
               "r"(outer)
               : "memory");
}
__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void store_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

template <int kRegisters>
__device__ __forceinline__ void registers_shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void registers_grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
