// In-kernel timestamps, compiled in only for `amk trace`: 8 marks a task, in ticks of the global nanosecond clock.
#pragma once

#include "memory.cuh"

namespace amk_vm {

// Thread 0: task begun, waits met, vector staged, first segment there, own segments done. Last consumer warp: all sums there, signalled.
// kMarkStarved is no point in time but a duration: what thread 0 spent waiting for segments after its first, and for its first too where that is
// opened before the task's wait.
enum Mark : u32 { kMarkStart, kMarkReady, kMarkStaged, kMarkFirstData, kMarkComputed, kMarkReduced, kMarkPublished, kMarkStarved };

// By one thread, `who` says which: the marks of different warps differ, each is written once a task.
__device__ __forceinline__ void trace_mark(const Params& p, u32 task, u32 mark, bool who) {
#if AMK_TRACE
  if (who) p.trace[(static_cast<u64>(blockIdx.x) * AMK_TRACE_TASKS + task) * kTraceMarks + mark] = global_time_ns();
#else
  (void)p, (void)task, (void)mark, (void)who;
#endif
}

#if AMK_TRACE
__device__ __forceinline__ u64& starved_ns() {
  __shared__ u64 sum;  // thread 0's alone
  return sum;
}
#endif

// Around a wait for weights; thread 0 adds up.
__device__ __forceinline__ u64 trace_wait_begin() {
#if AMK_TRACE
  return threadIdx.x == 0 ? global_time_ns() : 0;
#else
  return 0;
#endif
}
__device__ __forceinline__ void trace_wait_end(u64 begin) {
#if AMK_TRACE
  if (threadIdx.x == 0) starved_ns() += global_time_ns() - begin;
#else
  (void)begin;
#endif
}
__device__ __forceinline__ void trace_starved_reset() {
#if AMK_TRACE
  if (threadIdx.x == 0) starved_ns() = 0;
#endif
}
__device__ __forceinline__ void trace_starved(const Params& p, u32 task) {
#if AMK_TRACE
  if (threadIdx.x == 0) p.trace[(static_cast<u64>(blockIdx.x) * AMK_TRACE_TASKS + task) * kTraceMarks + kMarkStarved] = starved_ns();
#else
  (void)p, (void)task;
#endif
}

}  // namespace amk_vm
