// GEMV tasks where every warp fetches and multiplies a slice of its own of the columns (gemv_path "slices"): blocks of 64 columns w, w + W, … for
// warp w of W, over all rows of the task. For models whose token is a chain of short stages.
//
// A stage is then, from the vector's arrival to its own output's departure: a look that finds the warp's packets, four shuffles that put them in the
// matrix instruction's order, two matrix instructions a unit and block, one barrier, and a sum over the warps by one warp a unit, which applies what
// is fused behind and publishes at once. No vector is staged, no counter is looked at, no warp waits for another before its products. Weights of the
// next task are in registers before its vector comes, those of the tasks after it on their way into L2.
//
// One barrier of all consumer warps a group of units, and two buffers of sums: who passes the barrier of group n + 1 knows that everybody has read
// the sums of group n.
#pragma once

#include "attention_o.cuh"
#include "slice_lm_head.cuh"

namespace amk_vm {

// This warp's products of a group: a sum a row. Meanwhile the sum of squares, if this may be a task that norms its vector.
template <int Blocks, u32 Units, bool Norm>
__device__ __forceinline__ void products(const Weights& w, const SliceVector& vector, float squares, const SliceSums& sums, u32 warp, u32 lane) {
  float c[Units][4], d[Units][4];
#pragma unroll
  for (u32 u = 0; u < Units; ++u) {
#pragma unroll
    for (int e = 0; e < 4; ++e) c[u][e] = d[u][e] = 0.0f;
#pragma unroll
    for (int j = 0; j < Blocks; ++j) {
      const uint4 a = w.piece[(u * Blocks + j) * 2], b = w.piece[(u * Blocks + j) * 2 + 1];
      mma16816(c[u], a.x, a.y, a.z, a.w, vector.b[j][0], vector.b[j][1]);
      mma16816(d[u], b.x, b.y, b.z, b.w, vector.b[j][2], vector.b[j][3]);
    }
  }
  if constexpr (Norm) squares = warp_sum(squares);
  if (lane % 4 == 0) {
#pragma unroll
    for (u32 u = 0; u < Units; ++u) sums.row(u * kUnit + lane / 4)[warp] = (c[u][0] + d[u][0]) + (c[u][3] + d[u][3]);
  }
  if (Norm && lane == 0) sums.squares()[warp] = squares;
}

// One loop over the groups of units of all tasks, so that there is one place each for what every one of them does: code that runs once a hop is paid
// for by its length.
__device__ __forceinline__ void consume_slices(const Block& block, const Params& p, u32 count) {
  constexpr u32 kBefore = 0xffffffffu;
  const u32 warp = thread_index() / 32, lane = keep(thread_index() % 32);
  const u32 own = kConsumerWarps - 1 - warp;  // the unit of a group that this warp finishes
  // Sums of warps that there are none of count as zero.
  for (u32 i = thread_index(); i < 2 * kPartialFloats; i += kConsumers) block.partials(0)[i] = 0.0f;
#pragma unroll 1
  for (u32 i = 0; i < kAheadTasks; ++i) prefetch_task(block, p, i, count, warp, lane);
  consumer_barrier();
  Turn turn;
  Weights w;
  SliceVector vector;
  vector.clear();
  float squares = 0.0f;
  u32 i = kBefore, first = 0;  // task, and the group's first unit
#pragma unroll 1
  do {
    u32 next = i + 1, next_first = 0;
    if (i != kBefore) {
      const GemvTask task(block, p, i);
      bool stays = true;
      if (task.in_groups()) {
        const u32 units = task.units(), at_once = units_at_once_of(task.matrix);
        const bool norm = (task.fused & kFusedNorm) != 0, finishes = own < at_once && first + own < units;
        trace_mark(p, i, kMarkStart, thread_index() == 0 && first == 0);
        Fetch packets;
        packets.clear();
        if (first == 0) ask(packets, p, task, warp, lane);
        // While the vector is on its way: what a poll would otherwise stand behind.
        turn.say(block, warp == 0 && lane == 0);
        UnitEnd end;
        if (finishes) end.prepare(block, p, task, first + own, lane);
        if (first == 0) {
          prefetch_task(block, p, i + kAheadTasks, count, warp, lane);
          squares = take(packets, block, p, task, i, warp, lane, vector);
          trace_mark(p, i, kMarkReady, thread_index() == 0);
        }
        if (finishes) end.settle(block, p, i);
        const SliceSums sums(block, turn);
        if ((kInterSlice != kHiddenSlice || kInterUnits != kHiddenUnits) && task.matrix == kDown) {
          products<kInterSlice, kInterUnits, false>(w, vector, 0.0f, sums, warp, lane);
        } else if ((kQSlice != kHiddenSlice || kQUnits != kHiddenUnits) && task.matrix == kO) {
          products<kQSlice, kQUnits, false>(w, vector, 0.0f, sums, warp, lane);
        } else if (kHiddenUnits > 1 && units - first == 1) {
          products<kHiddenSlice, 1, true>(w, vector, squares, sums, warp, lane);
        } else {
          products<kHiddenSlice, kHiddenUnits, true>(w, vector, squares, sums, warp, lane);
        }
        trace_mark(p, i, kMarkComputed, thread_index() == 0);
        turn.meet();
        if (finishes) {
          const WarpSums of_row(sums.row(own * kUnit + lane % kUnit)), of_squares(sums.squares());
          float v = of_row.sum();
          if (norm) v *= rsqrt_normal(of_squares.sum() * (1.0f / kHidden) + kEps);
          end.finish(v);
          __syncwarp();
        }
        trace_mark(p, i, kMarkPublished, warp == kConsumerWarps - 1 && lane == 0);
        if (first + at_once < units) {
          next = i;
          next_first = first + at_once;
        } else {
          if (kSlots > 0 && warp == kConsumerWarps - 1 && lane == 0) atomicAdd(&block.finished_tasks(), 1);
          stays = turn.stays(block);
        }
      } else {
        const u32 op = task.op;
        stays = kAttentionO && op == kOpAttentionO       ? attention_o(block, p, i, count, turn)
                : !kAttentionO && op == kOpAttentionTile ? attention_slices(block, p, block.task(i), i, turn)
                : op == kOpGemv                          ? lm_head(block, p, i, warp, lane, turn, w.ring)
                : op == kOpArgmax                        ? argmax_slices(block, p, i, warp, lane, turn)
                                                         : elementwise(block, p, block.task(i), i);
        vector.clear();  // nothing is held across these
        squares = 0.0f;
        if (!kAttentionO || op != kOpAttentionO) prefetch_task(block, p, i + kAheadTasks, count, warp, lane);
      }
      if (!stays) break;
    }
    i = next;
    first = next_first;
    load_next(block, p, i, first, count, warp, lane, w);
    if (kSlots == 0 && first > 0) prefetch_later_group(block, p, i, first, warp, lane);
  } while (i < count);
}

}  // namespace amk_vm
