// GEMV tasks, consumer side. Warp w takes segments w, w + W, w + 2W, … of the task's rows; each segment's sums go to their own place in shared memory
// and are added in column order by the last warp: the result does not depend on who was fast. Rows go in batches of at most 16 units with two
// buffers, so that warps work on the next batch while the last one finishes the previous.
// One body for every matrix, its width a run-time value: code that is not in the instruction cache when a task begins costs more than it saves.
#pragma once

#include "epilogue.cuh"
#include "ring.cuh"
#include "segment.cuh"
#include "stage.cuh"

namespace amk_vm {

// Per warp, across tasks.
struct Consumer {
  RingCursor ring;  // first chunk of the task at hand
  u32 batches = 0;  // partial buffers used so far: buffer = batches % 2, its phase = batches / 2 % 2
};

// A warp's way through the segments of one task.
struct Walk {
  u32 seg, unit, column;  // unit: row in the row layout; column: segment within it
  RingCursor cursor;
  u32 in_chunk, chunk_first;  // segment within its chunk; the chunk's first segment

  __device__ __forceinline__ void begin(const Shape& shape, u32 warp, RingCursor ring) {
    seg = warp;
    unit = warp / shape.segs;
    column = warp % shape.segs;
    cursor = ring;
    if constexpr (kSlots > 0) {
      cursor.advance(warp / shape.segs_per_chunk);
      in_chunk = warp % shape.segs_per_chunk;
      chunk_first = warp - in_chunk;
    }
  }
  __device__ __forceinline__ void next(const Shape& shape) {
    seg += kConsumerWarps;
    unit += shape.skip_units;
    column += shape.skip_segs;
    if (column >= shape.segs) {
      column -= shape.segs;
      ++unit;
    }
    if constexpr (kSlots > 0) {
      u32 chunks = shape.skip_chunks;
      in_chunk += shape.skip_in_chunk;
      if (in_chunk >= shape.segs_per_chunk) {
        in_chunk -= shape.segs_per_chunk;
        ++chunks;
      }
      chunk_first = seg - in_chunk;
      cursor.advance(chunks);
    }
  }
};

// The segment's weights, when they have landed.
__device__ __forceinline__ auto open_segment(const Block& block, const Shape& shape, const Walk& walk, const u8* direct) {
  if constexpr (kSlots > 0) {
    const u64 begin = trace_wait_begin();
    wait_barrier(block, block.full(walk.cursor.slot), walk.cursor.parity);
    trace_wait_end(begin);
    return RingSource{block.base() + kShared.ring + walk.cursor.slot * kSlotBytes + walk.in_chunk * shape.seg_bytes};
  } else {
    return MemorySource{direct + static_cast<u64>(walk.seg) * shape.seg_bytes};
  }
}

// After the segment's last load was issued: loads and arrival go through shared memory in order. A full slot is free after kSlotArrivals arrivals;
// who has a chunk's last segment arrives for those that it lacks.
__device__ __forceinline__ void close_segment(const Block& block, const Shape& shape, const Walk& walk, u32 segs, u32 lane) {
  if constexpr (kSlots > 0) {
    __syncwarp();
    const bool last = walk.in_chunk + 1 == shape.segs_per_chunk || walk.seg + 1 == segs;
    if (lane == 0) mbarrier_arrive_many(block.empty(walk.cursor.slot), last ? kSlotArrivals - walk.in_chunk : 1);
  }
}

__device__ __forceinline__ void gemv(const Block& block, const Params& p, const TaskDesc& task, u32 index, Consumer& consumer) {
  const Shape& shape = shape_for(task.matrix);
  stage(block, p, task, shape, index);
  if (block.aborted() != 0) return;
  const u32 warp = thread_index() / 32, lane = thread_index() % 32;
  trace_mark(p, index, kMarkStaged, thread_index() == 0);

  const u32 rows = task.row_end - task.row_begin;
  const u32 units = kPackedLayout ? (rows + kUnit - 1) / kUnit : rows;
  const u32 segs = units * shape.segs;
  const u32 act = shared_address(block.act());
  const u8* direct = p.weights + static_cast<u64>(task.weight) * 16;
  const u32 batch_units = shape.batch_units * (kPackedLayout ? 1 : kUnit);

  Walk walk;
  walk.begin(shape, warp, consumer.ring);
  Group weights;
  GroupVector vector;
  u32 vector_at = ~0u;  // what `vector` holds
  if constexpr (kPackedLayout) {
    if (walk.seg < segs) {
      weights.load(open_segment(block, shape, walk, direct), 0, lane);
      if (shape.groups == 1) close_segment(block, shape, walk, segs, lane);
    }
    trace_mark(p, index, kMarkFirstData, thread_index() == 0);
  }
  trace_starved_reset();
  Epilogue epilogue(block, p, task, shape);
#pragma unroll 1
  for (u32 first = 0; first < units; first += batch_units) {
    const u32 end = first + batch_units < units ? first + batch_units : units;
    const u32 buffer = consumer.batches % 2;
    if (consumer.batches >= 2) wait_barrier(block, block.partials_empty(buffer), (consumer.batches / 2 + 1) % 2);
    if (warp == kConsumerWarps - 1) epilogue.prefetch(first * kSegRows);
    float* partials = block.partials(buffer);
    while (walk.unit < end) {
      if constexpr (kPackedLayout) {
        Sums sums;
        sums.clear();
        float* place = partials + (walk.unit - first) * shape.unit_stride + walk.column * kUnit;
        const u32 segment_act = act + walk.column * shape.seg_vector_bytes;
#pragma unroll 1
        for (u32 group = 0; group < shape.groups; ++group) {
          // Where a warp's segments all have the same columns, and one group, the vector stays in registers.
          const u32 wanted = segment_act + group;
          if (vector_at != wanted) {
            vector.load(segment_act, group, lane);
            vector_at = wanted;
          }
          Group following = weights;
          if (group + 1 < shape.groups) {
            following.load(open_segment(block, shape, walk, direct), group + 1, lane);
            if (group + 2 == shape.groups) close_segment(block, shape, walk, segs, lane);
          } else {
            walk.next(shape);
            if (walk.seg < segs) {
              following.load(open_segment(block, shape, walk, direct), 0, lane);
              if (shape.groups == 1) close_segment(block, shape, walk, segs, lane);
            }
          }
          sums.add(weights, vector);
          weights = following;
        }
        const float sum = sums.row();
        if (lane % 4 == 0) place[lane / 4] = sum;
      } else {
        const float sum =
            segment_row(open_segment(block, shape, walk, direct), act + walk.column * shape.seg_vector_bytes, shape.seg_vector_bytes, lane);
        close_segment(block, shape, walk, segs, lane);
        const u32 row = walk.unit - first;
        if (lane == 0) partials[row / kUnit * shape.unit_stride + walk.column * kUnit + row % kUnit] = sum;
        walk.next(shape);
      }
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(block.partials_full(buffer));
    trace_mark(p, index, kMarkComputed, thread_index() == 0);
    trace_starved(p, index);
    if (warp == kConsumerWarps - 1) {
      wait_barrier(block, block.partials_full(buffer), consumer.batches / 2 % 2);
      trace_mark(p, index, kMarkReduced, lane == 0);
      epilogue.reduce(partials);
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive(block.partials_empty(buffer));
        if (end == units && kSlots > 0) block.finished_tasks() = block.finished_tasks() + 1;
      }
      epilogue.write();
    }
    ++consumer.batches;
  }
  if (warp == kConsumerWarps - 1) epilogue.finish(index);
  if constexpr (kSlots > 0) {
    // chunks may exceed the ring's slots several times.
    const u32 chunks = (segs + shape.segs_per_chunk - 1) / shape.segs_per_chunk;
    consumer.ring.parity ^= chunks / kSlots % 2;
    consumer.ring.advance(chunks % kSlots);
  }
}

}  // namespace amk_vm
