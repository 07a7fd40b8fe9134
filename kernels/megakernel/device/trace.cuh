// In-kernel timestamps, compiled in only for `amk trace`: 8 marks a task, in ticks of the global nanosecond clock.
#pragma once

#include "memory.cuh"

namespace amk_vm {

// Thread 0: task begun, waits met, vector staged, first segment there, own segments done. Last consumer warp: all sums there, signalled.
enum Mark : u32 { kMarkStart, kMarkReady, kMarkStaged, kMarkFirstData, kMarkComputed, kMarkReduced, kMarkPublished };

// By one thread, `who` says which: the marks of different warps differ, each is written once a task.
__device__ __forceinline__ void trace_mark(const Params& p, u32 task, u32 mark, bool who) {
#if AMK_TRACE
  if (who) p.trace[(static_cast<u64>(blockIdx.x) * AMK_TRACE_TASKS + task) * kTraceMarks + mark] = global_time_ns();
#else
  (void)p, (void)task, (void)mark, (void)who;
#endif
}

}  // namespace amk_vm
