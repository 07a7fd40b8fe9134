// A warp's way through the weights of a GEMV task (gemv.cuh): which segment is next, and where in the ring or in memory it is.
#pragma once

#include "ring.cuh"

namespace amk_vm {

// How segments lie in chunks: constants where the three widths agree.
struct ChunkShape {
  u32 segs, skip_chunks, skip_in_chunk, seg_bytes;
  __device__ __forceinline__ void begin(const Shape& shape) {
    if constexpr (kOneChunkShape) {
      segs = kHiddenShape.segs_per_chunk;
      skip_chunks = kHiddenShape.skip_chunks;
      skip_in_chunk = kHiddenShape.skip_in_chunk;
      seg_bytes = kHiddenShape.seg_bytes;
    } else {
      segs = keep(shape.segs_per_chunk);
      skip_chunks = keep(shape.skip_chunks);
      skip_in_chunk = keep(shape.skip_in_chunk);
      seg_bytes = keep(shape.seg_bytes);
    }
  }
};

// A warp's way through the segments of one task. What it needs of the shape is held in registers: the loop runs once for every 4 KB of weights, and a
// load of a constant by a run-time index is a wait.
struct Walk {
  u32 seg, unit, column;  // unit: row in the row layout; column: segment within it
  RingCursor cursor;
  u32 in_chunk;  // segment within its chunk
  u32 segs, unit_segs, skip_unit, skip_column, base, slots;
  ChunkShape chunk;
  const u8* direct;

  __device__ __forceinline__ void begin(const Block& block, const Shape& shape, u32 warp, u32 lane, u32 all_segs, RingCursor ring, u32 ring_slots,
                                        const u8* weights) {
    seg = warp;
    unit = shape.first_unit[warp];
    column = shape.first_column[warp];
    segs = all_segs;
    unit_segs = keep(shape.segs);
    skip_unit = keep(shape.skip_units);
    skip_column = keep(shape.skip_segs);
    chunk.begin(shape);
    if constexpr (kSlots > 0) {
      cursor = ring;
      slots = ring_slots;
      in_chunk = shape.first_in_chunk[warp];
      cursor.advance(shape.first_chunk[warp], slots);
      base = keep(block.base());
    } else {
      direct = weights + lane * 16;
    }
  }
  __device__ __forceinline__ void next() {
    seg += kConsumerWarps;
    unit += skip_unit;
    column += skip_column;
    if (column >= unit_segs) {
      column -= unit_segs;
      ++unit;
    }
    if constexpr (kSlots > 0) {
      u32 chunks = chunk.skip_chunks;
      in_chunk += chunk.skip_in_chunk;
      if (in_chunk >= chunk.segs) {
        in_chunk -= chunk.segs;
        ++chunks;
      }
      cursor.advance(chunks, slots);
    }
  }
  __device__ __forceinline__ bool there() const { return seg < segs; }

  // This lane's weights of the segment, when they have landed.
  __device__ __forceinline__ auto open(u32 lane) const {
    if constexpr (kSlots > 0) {
      const u64 begin = trace_wait_begin();
      // Until it is full, or somebody gave up.
      while (!mbarrier_test(base + kShared.barriers + cursor.slot * 8, cursor.phase())) {
        if (load_shared_now(base + kShared.control) != 0) break;
      }
      trace_wait_end(begin);
      return RingSource{base + kShared.ring + lane * 16 + cursor.slot * kSlotBytes + in_chunk * chunk.seg_bytes};
    } else {
      return MemorySource{direct + static_cast<u64>(seg) * chunk.seg_bytes};
    }
  }
  // After the segment's last load was issued: loads and arrival go through shared memory in order. A full slot is free after kSlotArrivals arrivals;
  // who has a chunk's last segment arrives for those that it lacks.
  __device__ __forceinline__ void close(u32 lane) const {
    if constexpr (kSlots > 0) {
      __syncwarp();
      const bool last = in_chunk + 1 == chunk.segs || seg + 1 == segs;
      mbarrier_arrive_many(base + kShared.barriers + (kSlots + cursor.slot) * 8, last ? kSlotArrivals - in_chunk : 1, lane);
    }
  }
};

}  // namespace amk_vm
