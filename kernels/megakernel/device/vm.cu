// The megakernel: one block a multiprocessor, resident for a whole decode step, or several, walking its own list of tasks. docs/megakernel-vm.md.
#include "attention_mma.cuh"
#include "elementwise.cuh"
#include "finishers.cuh"
#include "gemv.cuh"
#if AMK_SLICES
#include "slices.cuh"
#endif

namespace amk_vm {

// The rows of the RoPE table of a later step, on their way to the place that the step before it does not use.
__device__ __forceinline__ void prefetch_rope(const Params& p, u32 step) {
  constexpr u32 kPieces = kHeadDim / 4;  // of 16 bytes
  const u32 to = shared_address(shared_base) + kShared.rope + step % 2 * kBatch * kHeadDim * 4;
#pragma unroll 1
  for (u32 i = thread_index(); i < kBatch * kPieces; i += kConsumers)
    async_copy16(to + i * 16, p.rope + static_cast<u64>(position_at(p, i / kPieces, step)) * kHeadDim + i % kPieces * 4);
}

// Several steps a launch, consumer warps, behind a step's tasks: begins the next when this one is over on every SM, whose cache rows a task may then
// load before its own waits. False: there is none, or the block leaves.
__device__ __forceinline__ bool next_step(const Block& block, const Params& p) {
  const u32 next = step_now() + 1;
  if (next == static_cast<u32>(p.steps)) return false;
  asm volatile("cp.async.wait_all;" ::: "memory");  // its RoPE rows
  if (thread_index() < 32) {
    const QueueDesc& queue = p.queues[block.sm()];
    const WaitDesc* waits = block.waits() + __ldg(&queue.step_first);
    const u32 count = __ldg(&queue.step_count);
#pragma unroll 1
    for (u32 i = thread_index(); i < count; i += 32)
      wait_counter<!kConfirmed>(block, p, {waits[i].counter, waits[i].fan_in, waits[i].fan_in, 0}, 0);  // this step's
    __syncwarp();
    if (thread_index() == 0) block.leave_step() = block.aborted();
  }
  consumer_barrier();  // every warp is through with this step
  if (block.leave_step() != 0) return false;
  if (thread_index() == 0) {
    enter_step(p, next);
    block.step_deadline_ns(false) = global_time_ns() + p.budget_ns;
  }
  consumer_barrier();
  if (next + 1 < static_cast<u32>(p.steps)) prefetch_rope(p, next + 1);
  return true;
}

__device__ __forceinline__ void consume(const Block& block, const Params& p, u32 task_count) {
#if AMK_SLICES
  if constexpr (kAttentionO) {
    if (threadIdx.x == 0) stage_ahead(block, p, 0, task_count);
  }
  consume_slices(block, p, task_count);
#else
  Consumer consumer;
  if (kPersistent && p.steps > 1) prefetch_rope(p, 1);
#pragma unroll 1
  for (u32 i = 0; i < task_count;) {
    const TaskDesc& task = block.task(i);
    const bool stays = task.op == kOpGemv            ? gemv(block, p, task, i, consumer)
                       : task.op == kOpAttentionTile ? attention(block, p, task, i, consumer)
                                                     : elementwise(block, p, task, i);
    if (!stays) break;
    ++i;
    if (kPersistent && i == task_count && next_step(block, p)) i = 0;
  }
#endif
  if (threadIdx.x == 0 && block.aborted() != 0) report_abort(block, p);
}

constexpr u32 kTableThreads = kBlockThreads + (kFinishers ? kFinishThreads : 0);  // who waits for the tables, and the producer, which does not

extern "C" __global__ void __launch_bounds__(kLaunchThreads, 1) amk_megakernel(const __grid_constant__ Params p) {
  const Block block;
  const QueueDesc queue = p.queues[block.sm()];

  if (threadIdx.x == kConsumers) {  // the producer's first lane, so that it can start as soon as its own barriers are there
    for (u32 s = 0; s < kSlots; ++s) {
      mbarrier_init(block.full(s), kBulk ? 1 : 32);
      mbarrier_init(block.empty(s), kSlotArrivals * kArrivingLanes);
    }
    for (u32 b = 0; kBatch > 1 && b < 2; ++b) {
      mbarrier_init(block.sums_full(b), kConsumerWarps * kArrivingLanes);
      mbarrier_init(block.sums_empty(b), (kFinishers ? 2 : kBatch) * kArrivingLanes);
    }
    if constexpr (kFinishers) mbarrier_init(block.rows_stored(), 2 * kArrivingLanes);
#if AMK_SLICES
    if constexpr (kAttentionO) mbarrier_init(Stage(block).barrier, 1);
#endif
    block.aborted() = 0;
    block.leave() = 0;
    block.finished_tasks() = 0;
    block.deadline_ns() = global_time_ns() + p.budget_ns;
    if constexpr (kPersistent) {
      enter_step(p, 0);
      block.step_deadline_ns(false) = block.step_deadline_ns(true) = block.deadline_ns();
    }
    block.waits_offset() = kShared.tables + queue.task_count * static_cast<u32>(sizeof(TaskDesc));
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
    __threadfence_block();
#endif
  }
  if (threadIdx.x >= kConsumers) {
    give_registers();
    if (kLaunchThreads > kBlockThreads && threadIdx.x >= kBlockThreads) {
      if (kFinishers && threadIdx.x < kBlockThreads + kFinishThreads) {
        asm volatile("bar.sync 2, %0;" ::"n"(kTableThreads) : "memory");
        finish_tasks(block, p, queue.task_count);
      }
      return;
    }
    __syncwarp();
    // Arrives without waiting: it needs none of the tables that the others load.
    asm volatile("bar.arrive 2, %0;" ::"n"(kTableThreads) : "memory");
    produce(block, p, queue);
    return;
  }
  take_registers();
  uint4* tables = reinterpret_cast<uint4*>(shared_base + kShared.tables);
  const uint4* tasks = reinterpret_cast<const uint4*>(p.tasks + queue.task_first);
  const uint4* waits = reinterpret_cast<const uint4*>(p.waits + queue.wait_first);
  const u32 task_pieces = queue.task_count * (sizeof(TaskDesc) / 16);
  for (u32 i = threadIdx.x; i < task_pieces; i += kConsumers) tables[i] = __ldg(tasks + i);
  for (u32 i = threadIdx.x; i < queue.wait_count; i += kConsumers) tables[task_pieces + i] = __ldg(waits + i);
  float* rope = reinterpret_cast<float*>(shared_base + kShared.rope);
  for (u32 s = 0; s < kBatch; ++s)
    for (u32 i = threadIdx.x; i < kHeadDim; i += kConsumers)
      rope[s * kHeadDim + i] = __ldg(p.rope + static_cast<u64>(position_at(p, s, 0)) * kHeadDim + i);
  asm volatile("bar.sync 2, %0;" ::"n"(kTableThreads) : "memory");
  consume(block, p, queue.task_count);
}

}  // namespace amk_vm
