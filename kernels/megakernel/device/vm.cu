// The megakernel: one block a multiprocessor, resident for a whole decode step, or several, walking its own list of tasks. docs/megakernel-vm.md.
#include "attention_mma.cuh"
#include "elementwise.cuh"
#include "gemv.cuh"

namespace amk_vm {

// The rows of the RoPE table of the step after this warp's, on their way to the place that the step before used.
__device__ __forceinline__ void prefetch_rope(const Params& p, u32 step) {
  const u32 pieces = kBatch * kHeadDim / 4;  // of 16 bytes
  const u32 to = shared_address(shared_base) + kShared.rope + step % 2 * kBatch * kHeadDim * 4;
  for (u32 i = thread_index(); i < pieces; i += kConsumers) {
    const u32 seq = i / (kHeadDim / 4), piece = i % (kHeadDim / 4);
    async_copy16(to + i * 16, p.rope + static_cast<u64>(position_at(p, seq, step)) * kHeadDim + piece * 4);
  }
}

// Several steps a launch, consumer warps: begins `step` when the step before is over on every SM, whose cache rows a task may then load before its
// own waits. False: leave.
__device__ __forceinline__ bool begin_step(const Block& block, const Params& p, u32 step) {
  __syncwarp();
  if (thread_index() % 32 == 0) enter_step(p, step);
  asm volatile("cp.async.wait_all;" ::: "memory");  // this step's RoPE rows
  __syncwarp();
  if (thread_index() < 32) {
    const QueueDesc& queue = p.queues[block.sm()];
    const u32 waits = step > 0 ? __ldg(&queue.step_count) : 0, first = __ldg(&queue.step_first);
    for (u32 i = thread_index(); i < waits; i += 32) wait_counter(block, p, block.waits()[first + i], 0);
    __syncwarp();
    if (thread_index() == 0) block.leave_step() = block.aborted();
  }
  consumer_barrier();  // also: every warp is through with the step before
  if (block.leave_step() != 0) return false;
  if (step + 1 < static_cast<u32>(p.steps)) prefetch_rope(p, step + 1);
  return true;
}

__device__ __forceinline__ void consume(const Block& block, const Params& p, u32 task_count) {
  Consumer consumer;
  bool stays = !kPersistent || (task_count > 0 && begin_step(block, p, 0));
#pragma unroll 1
  for (u32 i = 0; stays && i < task_count;) {
    const TaskDesc& task = block.task(i);
    stays = task.op == kOpGemv            ? gemv(block, p, task, i, consumer)
            : task.op == kOpAttentionTile ? attention(block, p, task, i)
                                          : elementwise(block, p, task, i);
    if (!stays) break;
    ++i;
    if (kPersistent && i == task_count) {
      const u32 step = step_now() + 1;
      if (step == static_cast<u32>(p.steps)) break;
      stays = begin_step(block, p, step);
      i = 0;
    }
  }
  if (threadIdx.x == 0 && block.aborted() != 0) report_abort(block, p);
}

extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) amk_megakernel(const __grid_constant__ Params p) {
  const Block block;
  const QueueDesc queue = p.queues[block.sm()];

  if (threadIdx.x == kConsumers) {  // the producer's first lane, so that it can start as soon as its own barriers are there
    for (u32 s = 0; s < kSlots; ++s) {
      mbarrier_init(block.full(s), kBulk ? 1 : 32);
      mbarrier_init(block.empty(s), kSlotArrivals);
    }
    for (u32 b = 0; kBatch > 1 && b < 2; ++b) {
      mbarrier_init(block.sums_full(b), kConsumerWarps);
      mbarrier_init(block.sums_empty(b), kBatch);
    }
    block.aborted() = 0;
    block.finished_tasks() = 0;
    block.deadline_ns() = global_time_ns() + p.budget_ns;
    block.waits_offset() = kShared.tables + queue.task_count * static_cast<u32>(sizeof(TaskDesc));
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
    __threadfence_block();
#endif
  }
  if (threadIdx.x >= kConsumers) {
    __syncwarp();
    // Arrives without waiting: it needs none of the tables that the others load.
    asm volatile("bar.arrive 2, %0;" ::"n"(kBlockThreads) : "memory");
    produce(block, p, queue);
    return;
  }
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
  asm volatile("bar.sync 2, %0;" ::"n"(kBlockThreads) : "memory");
  consume(block, p, queue.task_count);
}

}  // namespace amk_vm
