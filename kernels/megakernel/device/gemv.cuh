// GEMV tasks, consumer side. Warp w takes segments w, w + W, w + 2W, … of the task's rows; each segment's sums go to their own place in shared memory
// and are added in column order by the last warp: the result does not depend on who was fast. Rows go in batches of at most 16 units with two
// buffers, so that warps work on the next batch while the last one finishes the previous.
// Several sequences: warp s finishes sequence s, a batch of rows behind the products, when the others' sums are there.
// One body for every matrix, its width a run-time value: code that is not in the instruction cache when a task begins costs more than it saves.
#pragma once

#include "gemv_direct.cuh"

namespace amk_vm {

__device__ __forceinline__ bool gemv(const Block& block, const Params& p, const TaskDesc& task, u32 index, Consumer& consumer) {
  const Shape& shape = shape_for(task.matrix);
  const u32 warp = thread_index() / 32, lane = keep(thread_index() % 32);
  const u32 rows = task.row_end - task.row_begin;
  const u32 units = kPackedLayout ? (rows + kUnit - 1) / kUnit : rows;
  const bool wide = kWideSlots > 0 && task.matrix == kDown;
  const Vectors vectors = block.vectors(wide);
  const u32 slots = slots_of(wide), stride = kWideSlots > 0 ? keep(vectors.stride) : kActStride;
  // Several sequences, packed: this lane's piece.
  const u32 act = keep(shared_address(vectors.base) + kLimbsAt + (kBatch > 1 && kPackedLayout ? batch_lane_offset(lane, stride) : 0));
  const bool direct = kConsumerRegisters > 0 && takes_directly(task.matrix);
  const u32 batch_units = shape.batch_units * (kPackedLayout ? 1 : kUnit);
  const u32 groups = kOneGroup ? 1 : kPairGroups ? 2 : shape.groups;

  consumer.ring.enter(wide);
  Walk walk;
  walk.begin(block, shape, warp, lane, units * shape.segs, consumer.ring, slots, p.weights + static_cast<u64>(task.weight) * 16);
  // Weights of the group at hand and of the one after it, in turn: loads are issued before the products of the group before.
  WeightGroup here, there;
  here.clear();
  auto source = decltype(walk.open(lane)){};
  u32 group = 0;  // of the segment
  const auto open_first = [&] {
    if (!walk.there()) return;
    source = walk.open(lane);
    here.load(source);
    if (groups == 1) walk.close(lane);
  };
  // Weights do not depend on the wait: they are in registers when it ends.
  // Not beside a task of fewer slots: a warp could be a turn ahead of them.
  // Several sequences merged from partials: their loads need the registers.
  const bool hoist = kPackedLayout && kHoist && !wide && !consumer.after_wide && !(kBatch > 1 && !direct && (task.fused & kFusedCombine) != 0);
  if constexpr (kPackedLayout && kHoist) {
    trace_starved_reset();
    if (hoist) open_first();
  }
  // Without a ring nobody else fetches ahead: the warp's second segment comes into L2 while it waits.
  if constexpr (kSlots == 0) {
    if (walk.seg + kConsumerWarps < walk.segs)
      prefetch_segment(walk.direct + static_cast<u64>(walk.seg + kConsumerWarps) * walk.chunk.seg_bytes, walk.chunk.seg_bytes, lane);
  }
  VectorGroup vector, second;  // second: of two groups a segment, the second's
  const auto clear_vectors = [&] {
    vector.clear();
    if constexpr (kPairGroups) second.clear();
  };
  const bool normed = kNormDirect && (task.fused & kFusedNorm) != 0;
  if constexpr (kNormDirect) {
    clear_vectors();
    if (!(normed ? stage_norms_direct(block, p, task, index, vector, second) : stage(block, p, task, shape, vectors, index))) return false;
  } else {
    if (!stage(block, p, task, shape, vectors, index)) return false;
  }
  trace_mark(p, index, kMarkStaged, thread_index() == 0);
  if (kPackedLayout && !hoist) open_first();
  trace_mark(p, index, kMarkFirstData, thread_index() == 0);
  if constexpr (!(kPackedLayout && kHoist)) trace_starved_reset();
  there.clear();
  const auto leave = [&] {
    if constexpr (kSlots > 0) {
      const u32 per_chunk = kBatch > 1 ? walk.chunk.segs : shape.segs_per_chunk;
      consumer.ring.pass((walk.segs + per_chunk - 1) / per_chunk, slots);
      consumer.after_wide = wide;
    }
    return true;
  };
  float4 residual = make_float4(0, 0, 0, 0);
  if constexpr (kConsumerRegisters > 0) {
    if constexpr (kDownSegs > 0) {
      if (direct && task.matrix == kDown) {
        residual = direct_products<at_least_one(kDownSegs), DownPieces>(block, p, task, shape, index, walk, source, here, there, consumer, units);
        if constexpr (kFinishers) return leave();
      }
    }
    if constexpr (kOSegs > 0) {
      if (direct && task.matrix == kO) {
        residual = direct_products<at_least_one(kOSegs), OPieces>(block, p, task, shape, index, walk, source, here, there, consumer, units);
        if constexpr (kFinishers) return leave();
      }
    }
  }
  if constexpr (!kNormDirect) clear_vectors();
  // Held: the compiler would load them anew in every step, by a run-time index, and wait.
  const u32 seg_vector_bytes = keep(shape.seg_vector_bytes), unit_stride = keep(shape.unit_stride * 4),
            column_stride = keep(shape.unit_sums == walk.unit_segs ? kUnit * 4 : 0);
  // All of this warp's segments: their piece of the vector stays in registers.
  const bool same_columns = kUnitsOfOneSegment || keep((groups == 1 || kPairGroups) && shape.skip_segs == 0) != 0;
  if (kPackedLayout && (same_columns || kInt8) && !normed) vector.load(act + walk.column * seg_vector_bytes, lane, stride);
  if (kPairGroups && same_columns && !normed) second.load(act + walk.column * seg_vector_bytes + kGroupBlocks * 128, lane, stride);
  RowSums sums, sums2;  // sums2: of every other step, where they are deferred
  sums.clear();
  sums2.clear();
  PendingSums pending(lane);
  Epilogue epilogue(block, p, task, shape, warp, lane);
  if constexpr (kConsumerRegisters > 0) {
    if (direct) epilogue.resume(residual);
  }
  const bool finishes = kFinishers ? false : kBatch > 1 ? warp < kBatch : warp == kConsumerWarps - 1;
  // Several sequences: the n-th batch of rows, from `first` on, when all its sums are there.
  const bool one_batch = units <= batch_units;
  const auto finish_batch = [&](u32 first, u32 n) {
    if (!one_batch) epilogue.prefetch(first * kSegRows, index);
    wait_barrier(block, block.sums_full(n % 2), n / 2 % 2);
    epilogue.reduce(block.partials(n % 2, warp));
    mbarrier_arrive_many(block.sums_empty(n % 2), 1, lane);  // reduce() ends in a __syncwarp
    epilogue.write();
  };
#pragma unroll 1
  for (u32 first = direct ? units : 0; first < units; first += batch_units) {
    const u32 end = first + batch_units < units ? first + batch_units : units;
    const u32 buffer = consumer.batches % 2;
    if constexpr (kBatch > 1) await_sums_place(block, consumer, buffer);
    if (kBatch == 1 && !kFullBarriers && consumer.batches >= 2 && warp != kConsumerWarps - 1) barrier_wait(kPartialsEmpty + buffer);
    if (kFinishers ? warp < kBatch : kBatch == 1 ? warp == kConsumerWarps - 1 : finishes && one_batch) epilogue.prefetch(first * kSegRows, index);
    float* partials = block.partials(buffer);
    if constexpr (kPackedLayout) {
      const u32 sums_at = keep(shared_address(partials) + (kBatch > 1 ? lane % 4 * kPartialFloats * 4 : 0)) +
                          (lane / 4 + (column_stride != 0 ? 0 : warp * kUnit)) * 4;
      const auto step = [&](WeightGroup& now, WeightGroup& following, RowSums& mine, RowSums& before, auto half) {
        constexpr bool kSecond = kPairGroups && decltype(half)::value;
        VectorGroup& own = kSecond ? second : vector;
        if (!kInt8 && !same_columns)
          own.load(act + walk.column * seg_vector_bytes + (kPairGroups ? kSecond : group) * kGroupBlocks * kBlockVectorBytes, lane, stride);
        const u32 unit = walk.unit, sum_at = sums_at + (unit - first) * unit_stride + walk.column * column_stride;
        if (kPairGroups ? !kSecond : !kOneGroup && group + 1 < groups) {
          source = source.moved(kGroupBlocks * kBlockBytes);
          following.load(source);
          if (kPairGroups || ++group + 1 == groups) walk.close(lane);
        } else {
          group = 0;
          walk.next();
          if (walk.there()) {
            source = walk.open(lane);
            following.load(source);
            if (groups == 1) walk.close(lane);
          }
        }
        if constexpr (kDeferred) {
          constexpr bool kFirst = !kPairGroups || !kSecond, kLast = !kPairGroups || kSecond;  // of the segment
          if (kFirst) pending.begin(mine, before);
          mine.add(now, own);
          if (kInt8 && !same_columns) own.load(act + walk.column * seg_vector_bytes + group * kGroupBlocks * kBlockVectorBytes, lane, stride);
          if (kFirst) pending.settle(before, lane);
          if (kLast) pending.at = walk.unit != unit ? sum_at : 0;
        } else {
          sums.add(now, own);
          // A row's sum over all of this warp's segments of the unit.
          if (walk.unit != unit) {
            if constexpr (kBatch > 1) {
#pragma unroll
              for (int set = 0; set < kSets; ++set)
                store_shared_if(sum_at + set * 4 * kPartialFloats * 4, sums.row(set), set * 4 + lane % 4 < kBatch);
            } else {
              store_shared_if(sum_at, sums.row(), lane % 4 == 0);
            }
            sums.clear();
          }
        }
      };
#pragma unroll 1
      while (walk.unit < end) {
        step(here, there, sums, sums2, Half<false>());
        if constexpr (kPairSteps) step(there, here, sums, sums2, Half<true>());
        if (walk.unit >= end) {
          if constexpr (!kPairSteps) here = there;
          if constexpr (kDeferred) {
            pending.settle(sums, lane);
            pending.at = 0;
          }
          sums2.clear();
          break;
        }
        if constexpr (kPairSteps) step(here, there, sums2, sums, Half<false>());
        step(there, here, sums2, sums, Half<true>());
      }
      if constexpr (kDeferred) {
        pending.settle(sums2, lane);
        pending.at = 0;
        sums2.clear();
      }
    } else {
      while (walk.unit < end) {
        const u32 row = walk.unit - first;
        float* sum_at = partials + row / kUnit * shape.unit_stride + walk.column * kUnit + row % kUnit;
        if constexpr (kBatch > 1) {
          float each[kBatch];
          segment_rows(walk.open(lane), act + walk.column * seg_vector_bytes, stride, seg_vector_bytes, each);
          walk.close(lane);
#pragma unroll
          for (u32 s = 0; s < kBatch; ++s)
            if (lane == 0) sum_at[s * kPartialFloats] = each[s];
        } else {
          const float sum = segment_row(walk.open(lane), act + walk.column * seg_vector_bytes, seg_vector_bytes);
          walk.close(lane);
          if (lane == 0) *sum_at = sum;
        }
        walk.next();
      }
    }
    trace_mark(p, index, kMarkComputed, thread_index() == 0);
    trace_starved(p, index);
    if constexpr (kBatch > 1) {
#if __CUDA_ARCH__ >= 900
      // Copies come next where the vectors lay.
      if (wide && end == units) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
      tell_sums_full(block, epilogue, buffer, warp, lane);
      if (finishes && first > 0) finish_batch(first - batch_units, consumer.batches - 1);
    } else if (warp != kConsumerWarps - 1) {
      barrier_arrive(kPartialsFull + buffer);
      if constexpr (kFullBarriers) barrier_wait(kPartialsEmpty + buffer);
    } else {
      barrier_wait(kPartialsFull + buffer);
      trace_mark(p, index, kMarkReduced, lane == 0);
      epilogue.reduce(partials);
      barrier_arrive(kPartialsEmpty + buffer);
      if (lane == 0 && end == units && kSlots > 0) atomicAdd(&block.finished_tasks(), 1);
      epilogue.write();
    }
    ++consumer.batches;
  }
  if constexpr (kFinishers) {
    // finish_tasks() does what is left.
  } else if constexpr (kBatch > 1) {
    const auto signal = [&] {
      if (thread_index() == 0 && task.signal != kNoOffset)
        signal_counter(p.counters + task.signal * kCounterStride, (task.fused & kSignalsStep) != 0);
      trace_mark(p, index, kMarkPublished, thread_index() == 0);
    };
    if (finishes) {
      if (warp == 0) {
        wait_barrier(block, block.sums_full((consumer.batches - 1) % 2), (consumer.batches - 1) / 2 % 2);
        trace_mark(p, index, kMarkReduced, lane == 0);
        if (lane == 0 && kSlots > 0) atomicAdd(&block.finished_tasks(), 1);
      }
      finish_batch((units - 1) / batch_units * batch_units, consumer.batches - 1);
      epilogue.finish(index);
      epilogue.out.settle(block.sink());
      if constexpr (!kFullBarriers) {
        finishers_barrier<kBatch>(warp == 0);
        signal();
      }
    }
    if constexpr (kFullBarriers) {
      consumer_barrier();
      signal();
    }
  } else {
    if (warp == kConsumerWarps - 1) epilogue.finish(index);
  }
  return leave();
}

}  // namespace amk_vm
