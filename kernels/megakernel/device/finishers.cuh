// Several sequences on Hopper: two warps that share the producer's group finish what the consumer warps' products are, so that these go on with the
// next rows, and the next task, without a word of it. A thread has four rows of one sequence: it adds the warps' sums in column order, applies what
// is fused behind the product and stores; when a task's last rows are out, one thread signals. Sums are those of Epilogue, in its order.
// A residual comes from the consumer warps, which may load it as soon as the task's wait is over: they leave it behind their sums of the unit.
#pragma once

#include "epilogue.cuh"

namespace amk_vm {

constexpr u32 kFinishThreads = 64;
constexpr u32 kFinishStride = (kConsumerWarps + 1) * kUnit;  // floats of a unit's sums, the residual's rows behind them
static_assert(!kFinishers || (kHiddenShape.unit_stride == kFinishStride && kQShape.unit_stride == kFinishStride &&
                              kInterShape.unit_stride == kFinishStride && kHiddenShape.batch_units == kFinishQuads / 2 && kActType == kBF16 &&
                              kKvType == kBF16 && !kFlagged && !kQkNorm && kHeadDim % 8 == 0),
              "the host sees to it");

__device__ __forceinline__ float4 load_floats(u32 address) {
  const uint4 v = load_shared16(address);
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}
__device__ __forceinline__ float4 from_partner(float4 v) {
  return make_float4(__shfl_xor_sync(0xffffffffu, v.x, 1), __shfl_xor_sync(0xffffffffu, v.y, 1), __shfl_xor_sync(0xffffffffu, v.z, 1),
                     __shfl_xor_sync(0xffffffffu, v.w, 1));
}

// A thread's four rows of a task's batch, from `row` on.
struct Finisher {
  const Block& block;
  const Params& p;
  u32 seq, half;  // half: of the unit
  bool there = false;
  u32 row = 0;
  Publisher out;
  Best best = no_best();

  __device__ __forceinline__ void add(float4& sum, float4 v) {
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
  }

  __device__ __forceinline__ void write_qkv(const TaskDesc& task, float4 sum) {
    const float4 other = from_partner(sum);
    const float4 a = half == 0 ? sum : other, b = half == 0 ? other : sum;  // of the head's first half, and their partners
    if (!there) return;
    const u32 unit_row = row - half * 4;
    const u32 in_head = unit_row % kHeadDim / kUnit * 4;
    if (row >= kQRows + kKvRows) {
      const u32 v_row = row - kQRows - kKvRows;
      out.bf16_quad(p.kv + cache_element(seq, task.layer, 1, v_row / kHeadDim, position_of(p, seq), v_row % kHeadDim) * 2, sum);
      return;
    }
    float4 first, second;
    const float* rope = block.rope(seq);
    rotate(rope, in_head, a.x, b.x, first.x, second.x);
    rotate(rope, in_head + 1, a.y, b.y, first.y, second.y);
    rotate(rope, in_head + 2, a.z, b.z, first.z, second.z);
    rotate(rope, in_head + 3, a.w, b.w, first.w, second.w);
    const u32 element = in_head + half * (kHeadDim / 2);
    const float4 mine = half == 0 ? first : second;
    if (row < kQRows) {
      out.bf16_quad(p.activations + task.output + seq * slice_bytes<kActType>(kQRows) + (row / kHeadDim * kHeadDim + element) * 2, mine);
    } else {
      out.bf16_quad(p.kv + cache_element(seq, task.layer, 0, (row - kQRows) / kHeadDim, position_of(p, seq), element) * 2, mine);
    }
  }

  // Four gate rows and their four up rows are two threads'; each makes two elements.
  __device__ __forceinline__ void write_gate_up(const TaskDesc& task, float4 sum) {
    const float x = __shfl_xor_sync(0xffffffffu, half == 0 ? sum.z : sum.x, 1), y = __shfl_xor_sync(0xffffffffu, half == 0 ? sum.w : sum.y, 1);
    if (!there) return;
    const float g0 = half == 0 ? sum.x : x, g1 = half == 0 ? sum.y : y, u0 = half == 0 ? x : sum.z, u1 = half == 0 ? y : sum.w;
    u8* act = p.activations + task.output + seq * slice_bytes<kActType>(kInter);
    const u32 element = row / kUnit * 4 + half * 2;
    out.pair<kActType>(act, kDownSegs == 0 ? element : pair_order(element), silu(g0) * u0, silu(g1) * u1);
  }

  __device__ __forceinline__ void write_rows(const TaskDesc& task, float4 sum) {
    if (!there) return;
    u8* at = p.activations + task.output + seq * slice_bytes<kF32>(kHidden) + residual_order(row) * 4;
    out.pairs(at, at + (kNormDirect ? 64 : 8), sum);
  }

  __device__ __forceinline__ void write_logits(float4 sum, u32 end) {
    if (!there) return;
    float* logits = logits_of(p, seq) + row;
    const float v[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if (row + i >= end) break;
      out.plain(logits + i, __float_as_uint(v[i]));  // nobody in this launch reads it
      best.take(v[i], row + i);
    }
  }

  // One argmax a sequence, of its threads, which are neighbours in one warp.
  __device__ __forceinline__ void write_best(const TaskDesc& task, u32 quad) {
#pragma unroll
    for (u32 d = kFinishQuads / 2; d > 0; d >>= 1) {
      const float v = __shfl_xor_sync(0xffffffffu, best.value, d);
      const u32 i = __shfl_xor_sync(0xffffffffu, best.index, d);
      best.take(v, i);
    }
    if (quad == 0 && seq < kBatch)
      out.two(p.activations + task.output2 + seq * slice_bytes<kF32>(kArgmaxPartials * 2), __float_as_uint(best.value), best.index);
  }
};

// The task list as the consumers walk it. They may be two batches of rows ahead.
__device__ __forceinline__ void finish_tasks(const Block& block, const Params& p, u32 task_count) {
  const u32 thread = thread_index() - kBlockThreads, lane = thread % 32, quad = thread % kFinishQuads, seq = thread / kFinishQuads;
  const u32 sums_at = shared_address(block.partials(0)) + (seq * kPartialFloats + quad / 2 * kFinishStride + quad % 2 * 4) * 4;
  const bool leader = thread == 0;
  u32 batches = 0, stored = 0, index = 0;
  const u32 tasks = kPersistent ? task_count * p.steps : task_count;
#pragma unroll 1
  for (u32 n = 0; n < tasks; ++n, index = index + 1 == task_count ? 0 : index + 1) {
    const TaskDesc& task = block.task(index);
    if (task.op != kOpGemv) continue;
    const u32 matrix = task.matrix, end = task.row_end;
    const bool adds = matrix == kO || matrix == kDown;
    Finisher rows{block, p, seq, quad % 2};
#pragma unroll 1
    for (u32 first = task.row_begin; first < end; first += kFinishQuads * 4) {
      const u32 buffer = batches % 2;
      if (!wait_barrier(block, block.sums_full(buffer), batches / 2 % 2)) return;
      if constexpr (kFullBarriers) finish_handover();
      if (leader && first + kFinishQuads * 4 >= end) {
        trace_mark(p, index, kMarkReduced, true);
        if constexpr (kSlots > 0) atomicAdd(&block.finished_tasks(), 1);
      }
      rows.row = first + quad * 4;
      rows.there = seq < kBatch && rows.row < end;
      float4 sum = make_float4(0, 0, 0, 0);
      if (rows.there) {
        const u32 at = sums_at + buffer * (kBatch * kPartialFloats * 4);
        float4 part[kConsumerWarps];
#pragma unroll
        for (u32 w = 0; w < kConsumerWarps; ++w) part[w] = load_floats(at + w * kUnit * 4);
        const float4 residual = load_floats(at + kConsumerWarps * kUnit * 4);  // or nothing of use
#pragma unroll
        for (u32 w = 0; w < kConsumerWarps; ++w) rows.add(sum, part[w]);
        if (task.bias != kNoOffset) rows.add(sum, vector4(p.vectors + task.bias, rows.row));
        if (adds) rows.add(sum, residual);
      }
      __syncwarp();
      mbarrier_arrive_many(block.sums_empty(buffer), 1, lane);
      if constexpr (kFullBarriers) finish_handover();
      ++batches;
      if (matrix == kQkv) {
        rows.write_qkv(task, sum);
      } else if (matrix == kGateUp) {
        rows.write_gate_up(task, sum);
      } else if (adds) {
        rows.write_rows(task, sum);
      } else {
        rows.write_logits(sum, end);
      }
      __syncwarp();
    }
    if (matrix == kLmHead) rows.write_best(task, quad);
    rows.out.settle(block.sink());
    // No named barrier: one of the two warps may have left.
    __syncwarp();
    mbarrier_arrive_many(block.rows_stored(), 1, lane);
    if (!wait_barrier(block, block.rows_stored(), stored++ % 2)) return;
    if (leader && task.signal != kNoOffset) signal_counter(p.counters + task.signal * kCounterStride, (task.fused & kSignalsStep) != 0);
    trace_mark(p, index, kMarkPublished, leader);
  }
}

}  // namespace amk_vm
