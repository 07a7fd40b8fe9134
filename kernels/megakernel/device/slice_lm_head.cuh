// The LM head of slices (slices.cuh), in whole units, and the step's token.
//
// The LM head has by far the most rows and nothing waits for any one of them: in groups, each with its barrier and its end, it took twice the time of
// its bytes. Its vector goes to shared memory, once, and behind the one barrier that this needs a warp takes whole units, in turn, adds up all of a
// row itself, and meets the others when all rows are done.
#pragma once

#include "slice_unit_end.cuh"
#include "slice_vector.cuh"
#include "slice_weights.cuh"

namespace amk_vm {

struct WholeUnit {
  static constexpr u32 kHeld = kHiddenBlocks <= 9 ? kHiddenBlocks : 8;  // blocks whose weights are in registers at once
  float c[4][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& chain : c) chain[0] = chain[1] = chain[2] = chain[3] = 0.0f;
  }
  // `take(piece, at)`: 16 bytes of the unit, from byte `at` on. `loaded()`: when all of it is in registers.
  template <class Take, class Loaded>
  __device__ __forceinline__ void multiply(u32 vector, Take take, Loaded loaded) {
    clear();
#pragma unroll 1
    for (u32 first = 0; first < kHiddenBlocks; first += kHeld) {
      uint4 piece[2 * kHeld];
#pragma unroll
      for (u32 j = 0; j < kHeld; ++j) {
        const bool there = kHiddenBlocks % kHeld == 0 || first + j < kHiddenBlocks;
        piece[2 * j] = piece[2 * j + 1] = make_uint4(0, 0, 0, 0);
        if (there) take(piece[2 * j], (first + j) * 1024);
        if (there) take(piece[2 * j + 1], (first + j) * 1024 + 512);
      }
      if (first + kHeld >= kHiddenBlocks) loaded();
#pragma unroll
      for (u32 j = 0; j < kHeld; ++j) {
        if (kHiddenBlocks % kHeld != 0 && first + j >= kHiddenBlocks) break;
        const uint4 b = load_shared16(vector + (first + j) * 128);
        mma16816(c[j % 2 * 2], piece[2 * j].x, piece[2 * j].y, piece[2 * j].z, piece[2 * j].w, b.x, b.y);
        mma16816(c[j % 2 * 2 + 1], piece[2 * j + 1].x, piece[2 * j + 1].y, piece[2 * j + 1].z, piece[2 * j + 1].w, b.z, b.w);
      }
    }
  }
  // Of row lane / 4, in each of its four lanes.
  __device__ __forceinline__ float row() const { return ((c[0][0] + c[1][0]) + (c[2][0] + c[3][0])) + ((c[0][3] + c[1][3]) + (c[2][3] + c[3][3])); }
};
static_assert(!kSlices || kHiddenBlocks * 128 <= kActBytes, "the vector, where attention's records were");
__device__ __forceinline__ bool lm_head(const Block& block, const Params& p, u32 index, u32 warp, u32 lane, Turn& turn, RingCursor& ring) {
  const GemvTask task(block, p, index);
  const u32 units = task.units(), vector = shared_address(block.act());
  trace_mark(p, index, kMarkStart, thread_index() == 0);
  turn.say(block);
  trace_starved_reset();
  const SliceSums sums(block, turn);
  // Word i of a block of 32 where its reader takes four at once, as SliceVector::put brings them.
  const u32 mine_at = vector + warp * 128 + (lane / 8 * 8 + lane % 2 * 4 + lane % 8 / 2) * 4;
  Fetch packets;
  packets.clear();
  packets.ask_norm(p, task, warp, lane);
  const float squares = warp_sum(packets.take_norm(block, p, task, index, warp, lane, [&](int j, u32 pair) {
    if (warp + j * kConsumerWarps < kHiddenBlocks) store_shared4(mine_at + j * (kConsumerWarps * 128), pair);
  }));
  if (lane == 0) sums.squares()[warp] = squares;
  trace_mark(p, index, kMarkReady, thread_index() == 0);
  turn.meet();
  const float scale = rsqrtf(WarpSums(sums.squares()).sum() * (1.0f / kHidden) + kEps);
  const u32 words = vector + lane % 4 * 32 + lane / 4 % 2 * 16;
  float* logits = logits_of(p, 0);
  Best best = no_best();
  const auto finish = [&](const WholeUnit& unit, u32 which) {
    const u32 row = task.row_begin + which * kUnit + lane / 4;
    if (lane % 4 != 0 || row >= task.row_end) return;
    float v = unit.row() * scale;
    if (task.bias != kNoOffset) v += vector1(p.vectors + task.bias, row);
    asm volatile("st.global.u32 [%0], %1;" ::"l"(logits + row), "r"(__float_as_uint(v)) : "memory");  // nobody in this launch reads it
    best.take(v, row);
  };
  WholeUnit unit;
  if constexpr (kSlots > 0) {
    u32 mine = warp;  // the next unit that is this warp's
#pragma unroll 1
    for (u32 first = 0; first < units; first += kHiddenUnits) {  // a chunk
      const u64 begin = trace_wait_begin();
      wait_barrier(block, block.full(ring.slot), ring.phase());
      trace_wait_end(begin);
      const u32 empty = block.empty(ring.slot), chunk = block.base() + kShared.ring + ring.slot * kSlotBytes + lane * 16;
      const auto give_back = [&] {
        __syncwarp();
        mbarrier_arrive_many(empty, 1, lane);
      };
      ring.advance(1, kSlots);
      if (mine < first + kHiddenUnits && mine < units) {
        const u32 from = chunk + (mine - first) * (kHiddenBlocks * 1024);
        unit.multiply(
            words, [&](uint4& piece, u32 at) { piece = load_shared16(from + at); }, give_back);
        finish(unit, mine);
        mine += kConsumerWarps;
      } else {
        give_back();
      }
    }
  } else {
    const u8* weights = p.weights + static_cast<u64>(task.weight) * 16 + lane * 16;
#pragma unroll 1
    for (u32 mine = warp; mine < units; mine += kConsumerWarps) {
      const u8* from = weights + static_cast<u64>(mine) * (kHiddenBlocks * 1024);
      unit.multiply(
          words, [&](uint4& piece, u32 at) { piece = load_weight16(from + at); }, [] {});
      finish(unit, mine);
    }
  }
  trace_mark(p, index, kMarkComputed, thread_index() == 0);
  __syncwarp();
  best = block_best(block, best);
  if (kSlots > 0 && warp == kConsumerWarps - 1 && lane == 0) atomicAdd(&block.finished_tasks(), 1);
  if (thread_index() == 0) {
    Publisher out;
    out.tag = task.tag;
    out.word(p.activations + task.output2, 0, __float_as_uint(best.value));
    out.word(p.activations + task.output2, 1, best.index);
  }
  trace_starved(p, index);
  trace_mark(p, index, kMarkPublished, thread_index() == 0);
  return turn.stays(block);
}

// The step's token, by one warp: all partials are looked for at once.
__device__ __forceinline__ bool argmax_slices(const Block& block, const Params& p, u32 index, u32 warp, u32 lane, Turn& turn) {
  const TaskDesc& task = block.task(index);
  trace_mark(p, index, kMarkStart, thread_index() == 0);
  turn.say(block);
  if (warp == 0) {
    constexpr int kTrip = 5;  // a partial a lane each: 160 at once
    const u8* partials = p.activations + task.input;
    Best best = no_best();
#pragma unroll 1
    for (u32 base = 0; base < task.row_end; base += 32 * kTrip) {
      PacketPair pairs[kTrip];
      const auto wanted = [&](int i) { return base + i * 32 + lane < task.row_end; };
      look_for(
          block, p, index, tag_base(p) + task.input_tag, pairs, [&](int i) { return partials + (base + i * 32 + lane) * 16; }, wanted);
#pragma unroll
      for (int i = 0; i < kTrip; ++i)
        if (wanted(i)) best.take(__uint_as_float(pairs[i].low()), pairs[i].high());
    }
    trace_mark(p, index, kMarkReady, lane == 0);
    best.reduce_warp();
    Publisher out;
    if (lane == 0) publish_token(p, 0, best, out);
  }
  turn.meet();
  trace_mark(p, index, kMarkPublished, thread_index() == 0);
  return turn.stays(block);
}

}  // namespace amk_vm
