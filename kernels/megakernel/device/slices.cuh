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

#include "attention_slices.cuh"
#include "epilogue.cuh"
#include "segment.cuh"

namespace amk_vm {

constexpr int slice_blocks(int columns) { return ((columns + 63) / 64 + kConsumerWarps - 1) / kConsumerWarps; }
constexpr int kHiddenSlice = slice_blocks(kHidden), kQSlice = slice_blocks(kQRows), kInterSlice = slice_blocks(kInter);
constexpr int kGroupPieces = 8;  // 16-byte registers of weights that a warp holds: a group of units over its blocks
template <int Blocks>
constexpr u32 kGroupUnits = kGroupPieces / (2 * Blocks);
constexpr u32 kAheadTasks = 5;   // how far L2 is ahead of the registers: about a layer
constexpr u32 kAheadGroups = 3;  // likewise within a task of many groups
static_assert(!kSlices || (kHiddenSlice <= 4 && kQSlice <= 4 && kInterSlice <= 4), "the host sees to it");

// A task's descriptor in registers: what stands behind a barrier must not wait for shared memory first.
struct GemvTask {
  u32 matrix, fused, weight, row_begin, row_end, input, norm, bias, residual, output, output2, layer;
  u32 input_tag, residual_tag, tag;  // of this step
  __device__ __forceinline__ GemvTask(const Block& block, const Params& p, u32 index) {
    const u32 at = shared_address(&block.task(index));
    const uint4 a = load_shared16(at), b = load_shared16(at + 16), c = load_shared16(at + 32), d = load_shared16(at + 48);
    matrix = a.x >> 8 & 0xff, fused = a.x >> 16, weight = a.y, row_begin = a.z, row_end = a.w;
    input = b.x, norm = b.y, bias = b.z, residual = b.w, output = c.x, output2 = c.y;
    const u32 base = tag_base(p);
    input_tag = base + (d.y & 0xffff), residual_tag = base + (d.y >> 16), layer = d.z & 0xffff, tag = base + (d.w >> 16);
  }
  __device__ __forceinline__ u32 units() const { return (row_end - row_begin + kUnit - 1) / kUnit; }
};

// The three widths: how many columns, blocks of 64, blocks of a warp, units of a group.
struct SliceShape {
  u32 columns, blocks, slice, units_at_once;
};
__device__ __forceinline__ SliceShape slice_shape(u32 matrix) {
  if (matrix == kO) return {kQRows, (kQRows + 63) / 64, kQSlice, kGroupUnits<kQSlice>};
  if (matrix == kDown) return {kInter, (kInter + 63) / 64, kInterSlice, kGroupUnits<kInterSlice>};
  return {kHidden, (kHidden + 63) / 64, kHiddenSlice, kGroupUnits<kHiddenSlice>};
}

struct Weights {
  uint4 piece[kGroupPieces];
};

__device__ __forceinline__ void load_weight16_if(uint4& v, const u8* p, bool yes) {
  v = make_uint4(0, 0, 0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(p), "r"(static_cast<u32>(yes)));
}

// Units first, first + 1, … of the task over this warp's blocks. What is not there is zero.
template <int Blocks>
__device__ __forceinline__ void load_group(const Params& p, const GemvTask& task, u32 blocks, u32 first, u32 warp, u32 lane, Weights& w) {
  const u32 units = task.units();
  const u8* base = p.weights + static_cast<u64>(task.weight) * 16 + (static_cast<u64>(first) * blocks + warp) * 1024 + lane * 16;
#pragma unroll
  for (u32 u = 0; u < kGroupUnits<Blocks>; ++u) {
#pragma unroll
    for (int j = 0; j < Blocks; ++j) {
      const bool there = first + u < units && warp + j * kConsumerWarps < blocks;
      const u8* at = base + (u * blocks + j * kConsumerWarps) * 1024;
      load_weight16_if(w.piece[(u * Blocks + j) * 2], at, there);
      load_weight16_if(w.piece[(u * Blocks + j) * 2 + 1], at + 512, there);
    }
  }
#pragma unroll
  for (int i = kGroupUnits<Blocks> * Blocks * 2; i < kGroupPieces; ++i) w.piece[i] = make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void load_weights(const Params& p, const GemvTask& task, u32 first, u32 warp, u32 lane, Weights& w) {
  if (kInterSlice != kHiddenSlice && task.matrix == kDown) {
    load_group<kInterSlice>(p, task, (kInter + 63) / 64, first, warp, lane, w);
  } else if (kQSlice != kHiddenSlice && task.matrix == kO) {
    load_group<kQSlice>(p, task, (kQRows + 63) / 64, first, warp, lane, w);
  } else {
    load_group<kHiddenSlice>(p, task, slice_shape(task.matrix).blocks, first, warp, lane, w);
  }
}
// Of task i, if it is a GEMV. Weights are held across no other task: attention has no registers for them.
__device__ __forceinline__ void load_next(const Block& block, const Params& p, u32 i, u32 count, u32 warp, u32 lane, Weights& w) {
  if (i < count && block.task(i).op == kOpGemv) {
    load_weights(p, GemvTask(block, p, i), 0, warp, lane, w);
  } else {
#pragma unroll
    for (uint4& piece : w.piece) piece = make_uint4(0, 0, 0, 0);
  }
}

__device__ __forceinline__ void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
// The lines of a group into L2: a hint.
__device__ __forceinline__ void prefetch_group(const Params& p, u32 weight, u32 units, const SliceShape& shape, u32 first, u32 warp, u32 lane) {
  const u32 lines = shape.units_at_once * shape.slice * 8;  // of 128 bytes; at most 32
  const u32 unit = first + lane / (shape.slice * 8), block = warp + lane / 8 % shape.slice * kConsumerWarps;
  if (lane >= lines || unit >= units || block >= shape.blocks) return;
  prefetch_line(p.weights + static_cast<u64>(weight) * 16 + (static_cast<u64>(unit) * shape.blocks + block) * 1024 + lane % 8 * 128);
}
__device__ __forceinline__ void prefetch_task(const Block& block, const Params& p, u32 i, u32 count, u32 warp, u32 lane) {
  if (i >= count) return;
  const TaskDesc& task = block.task(i);
  if (task.op == kOpAttentionTile) return prefetch_attention(p, task, warp, lane);
  if (task.op != kOpGemv) return;
  const SliceShape shape = slice_shape(task.matrix);
  const u32 units = (task.row_end - task.row_begin + kUnit - 1) / kUnit;
#pragma unroll 1
  for (u32 g = 0; g < kAheadGroups && g * shape.units_at_once < units; ++g)
    prefetch_group(p, task.weight, units, shape, g * shape.units_at_once, warp, lane);
  if (lane == 0 && task.norm != kNoOffset && warp * 64 < kHidden) prefetch_line(p.vectors + task.norm + warp * 128);
}

// A warp's part of the vector as the right-hand side of its products.
struct SliceVector {
  static constexpr int kMost = kHiddenSlice > kQSlice ? (kHiddenSlice > kInterSlice ? kHiddenSlice : kInterSlice)
                                                      : (kQSlice > kInterSlice ? kQSlice : kInterSlice);
  u32 b[kMost][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kMost; ++j) b[j][0] = b[j][1] = b[j][2] = b[j][3] = 0;
  }
  // Lane l brings elements 2l and 2l + 1 of the block.
  __device__ __forceinline__ void put(int j, u32 word, u32 lane) {
    const u32 from = lane % 4 * 8 + lane / 4 % 2;
#pragma unroll
    for (u32 k = 0; k < 4; ++k) b[j][k] = __shfl_sync(0xffffffffu, word, from + 2 * k);
  }
};

// RMSNorm's input: fp32 words, two a lane and block. The norm's scale is applied to the sums. Returns this lane's sum of squares, before the norm's
// weights.
__device__ __forceinline__ float fetch_norm(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane,
                                            SliceVector& out) {
  const u8* norm = p.vectors + task.norm;
  const u8* input = p.activations + task.input;
  const auto column = [&](int j) { return (warp + j * kConsumerWarps) * 64 + lane * 2; };
  const auto wanted = [&](int j) { return column(j) < kHidden; };
  u32 weight[kHiddenSlice];
#pragma unroll
  for (int j = 0; j < kHiddenSlice; ++j) weight[j] = wanted(j) ? __ldg(reinterpret_cast<const u32*>(norm + column(j) * 2)) : 0;
  PacketPair pairs[kHiddenSlice];
  look_for(
      block, p, index, task.input_tag, pairs, [&](int j) { return input + column(j) * 8; }, wanted);
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kHiddenSlice; ++j) {
    const float a = __uint_as_float(pairs[j].low()), b = __uint_as_float(pairs[j].high());
    float wa, wb;
    unpack_pair<kWeightType>(weight[j], wa, wb);
    squares = fmaf(b, b, fmaf(a, a, squares));
    out.put(j, pack_pair<kWeightType>(a * wa, b * wb), lane);
  }
  return squares;
}

// A vector of bf16 pairs, one word a lane and block.
template <int Blocks>
__device__ __forceinline__ void fetch_pairs(const Block& block, const Params& p, const GemvTask& task, u32 columns, u32 index, u32 warp, u32 lane,
                                            SliceVector& out) {
  const u8* input = p.activations + task.input;
  const auto word = [&](int j) { return (warp + j * kConsumerWarps) * 32 + lane; };
  PacketOne words[Blocks];
  look_for(
      block, p, index, task.input_tag, words, [&](int j) { return input + word(j) * 8; }, [&](int j) { return word(j) * 2 < columns; });
#pragma unroll
  for (int j = 0; j < Blocks; ++j) out.put(j, words[j].word(), lane);
}

// Attention's partials, merged in split order: two elements a lane and block, and their head's maximum and sum.
__device__ __forceinline__ void fetch_combine(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane,
                                              SliceVector& out) {
  constexpr int kTrip = kQSlice == 1 ? 4 : 2;  // splits whose records are on their way at once
  const u8* partials = p.activations + task.input;
  const u32 splits = active_splits(position_of(p, 0));
#pragma unroll
  for (int j = 0; j < kQSlice; ++j) {
    const u32 column = (warp + j * kConsumerWarps) * 64 + lane * 2;
    const bool there = column < kQRows;
    Merge merge;
#pragma unroll 1
    for (u32 base = 0; base < splits; base += kTrip) {
      PacketPair pairs[2 * kTrip];  // tail, elements
      const auto wanted = [&](int k) { return there && base + k / 2 < splits; };
      look_for(
          block, p, index, task.input_tag, pairs,
          [&](int k) {
            return partials + (((base + k / 2) * kHeads + column / kHeadDim) * kPartialRecord + (k % 2 == 0 ? kHeadDim : column % kHeadDim)) * 8;
          },
          wanted);
#pragma unroll
      for (int k = 0; k < kTrip; ++k)
        if (wanted(2 * k))
          merge.add(make_uint2(pairs[2 * k].low(), pairs[2 * k].high()), make_uint4(pairs[2 * k + 1].low(), pairs[2 * k + 1].high(), 0, 0));
    }
    const float4 merged = merge.result();
    out.put(j, there ? pack_pair<kWeightType>(merged.x, merged.y) : 0, lane);
  }
}

// This warp's products of a group: a sum a row.
template <int Blocks>
__device__ __forceinline__ void products(const Weights& w, const SliceVector& vector, const SliceSums& sums, u32 warp, u32 lane) {
  float sum[kGroupUnits<Blocks>];
#pragma unroll
  for (u32 u = 0; u < kGroupUnits<Blocks>; ++u) {
    float c[4] = {}, d[4] = {};
#pragma unroll
    for (int j = 0; j < Blocks; ++j) {
      const uint4 a = w.piece[(u * Blocks + j) * 2], b = w.piece[(u * Blocks + j) * 2 + 1];
      mma16816(c, a.x, a.y, a.z, a.w, vector.b[j][0], vector.b[j][1]);
      mma16816(d, b.x, b.y, b.z, b.w, vector.b[j][2], vector.b[j][3]);
    }
    sum[u] = (c[0] + d[0]) + (c[3] + d[3]);
  }
  if (lane % 4 == 0) {
#pragma unroll
    for (u32 u = 0; u < kGroupUnits<Blocks>; ++u) sums.row(u * kUnit + lane / 4)[warp] = sum[u];
  }
}

// One unit's end, by a warp: lane l has row l % 8. All that does not depend on the task's input is made ready before: what is left is in registers.
struct UnitEnd {
  enum Kind : u32 { kPairs, kSilu, kResidual, kHead };
  u32 kind = kPairs, row = 0, tag = 0, residual_tag = 0;
  float bias = 0.0f, c = 1.0f, s = 0.0f;  // rotation: this row's factor, and its partner's
  u64 residual = 0;
  const u8* residual_at = nullptr;
  u8* to = nullptr;     // this lane's packet, or logit; nullptr: it stores none
  u8* cache = nullptr;  // likewise the pair of the cache

  __device__ __forceinline__ void prepare(const Block& block, const Params& p, const GemvTask& task, u32 unit, u32 lane) {
    row = task.row_begin + unit * kUnit + lane % kUnit;
    tag = task.tag;
    residual_tag = task.residual_tag;
    bias = 0.0f, c = 1.0f, s = 0.0f, residual = 0, residual_at = nullptr, to = cache = nullptr;
    const bool there = row < task.row_end, stores = there && lane < kUnit;
    if (there && task.bias != kNoOffset) bias = vector1(p.vectors + task.bias, row);
    if (task.matrix == kQkv) {
      kind = kPairs;
      const bool mine = stores && lane % 2 == 0;
      if (row >= kQRows + kKvRows) {  // v rows, as they are
        const u32 v_row = row - kQRows - kKvRows;
        if (mine) to = p.activations + kKvNow + (kKvRows + v_row) / 2 * 8;
        if (mine) cache = p.kv + cache_element(0, task.layer, 1, v_row / kHeadDim, position_of(p, 0), v_row % kHeadDim) * 2;
      } else {  // four rows of a head's first half, their partners of the second
        const u32 pair = row % kHeadDim / kUnit * 4 + row % 4, head = row / kHeadDim;
        const bool first_half = lane % kUnit < 4;
        c = block.rope()[pair];
        s = first_half ? -block.rope()[kHeadDim / 2 + pair] : block.rope()[kHeadDim / 2 + pair];
        const u32 element = pair + (first_half ? 0 : kHeadDim / 2);
        if (row < kQRows) {
          if (mine) to = p.activations + task.output + (head * kHeadDim + element) / 2 * 8;
        } else {
          if (mine) to = p.activations + kKvNow + ((head - kHeads) * kHeadDim + element) / 2 * 8;
          if (mine) cache = p.kv + cache_element(0, task.layer, 0, head - kHeads, position_of(p, 0), element) * 2;
        }
      }
    } else if (task.matrix == kGateUp) {  // four gate rows, their four up rows
      kind = kSilu;
      if (there && lane < 4 && lane % 2 == 0) to = p.activations + task.output + ((row - lane) / 2 + lane) / 2 * 8;
    } else if (task.matrix == kLmHead) {
      kind = kHead;
      if (stores) to = reinterpret_cast<u8*>(logits_of(p, 0) + row);
    } else {
      kind = kResidual;
      residual_at = p.activations + task.residual + row * 8;
      if (there) asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(residual) : "l"(residual_at));
      if (stores) to = p.activations + task.output + row * 8;
    }
  }
  __device__ __forceinline__ void publish(u32 word) const {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(static_cast<u64>(tag) << 32 | word) : "memory");
  }
  __device__ __forceinline__ void finish(const Block& block, const Params& p, u32 index, float v, Best& best) {
    v += bias;
    if (kind == kResidual) {
      if (to == nullptr) return;
      // It was there before this task's input: a formality.
      for (u32 polls = 1; static_cast<u32>(residual >> 32) != residual_tag; ++polls) {
        if (polls % kPollsPerCheck == 0 && out_of_time(block, p, kAbortPackets, index)) break;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(residual) : "l"(residual_at));
      }
      publish(__float_as_uint(v + __uint_as_float(static_cast<u32>(residual))));
    } else if (kind == kHead) {
      if (to == nullptr) return;
      asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(__float_as_uint(v)) : "memory");  // nobody in this launch reads it
      best.take(v, row);
    } else {
      const float other = __shfl_xor_sync(0xffffffffu, v, 4);
      const float own = kind == kSilu ? silu(v) * other : s == 0.0f ? v * c : fmaf(other, s, v * c);
      const float next = __shfl_xor_sync(0xffffffffu, own, 1);
      const u32 word = pack_pair<kActType>(own, next);
      if (to != nullptr) publish(word);
      if (cache != nullptr) asm volatile("st.global.u32 [%0], %1;" ::"l"(cache), "r"(word) : "memory");
    }
  }
};

// The sums of all warps of one row, in one order.
struct WarpSums {
  static constexpr int kQuads = (kConsumerWarps + 3) / 4;
  float4 q[kQuads];
  __device__ __forceinline__ explicit WarpSums(const float* at) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) q[i] = reinterpret_cast<const float4*>(at)[i];
  }
  __device__ __forceinline__ float sum() const {
    float sum = (q[0].x + q[0].y) + (q[0].z + q[0].w);
#pragma unroll
    for (int i = 1; i < kQuads; ++i) sum += (q[i].x + q[i].y) + (q[i].z + q[i].w);
    return sum;
  }
};

__device__ __forceinline__ bool gemv_slices(const Block& block, const Params& p, u32 index, u32 count, Weights& w, Turn& turn) {
  const u32 warp = thread_index() / 32, lane = keep(thread_index() % 32);
  const u32 own = kConsumerWarps - 1 - warp;  // the unit of a group that this warp finishes, and every W-th after it
  const GemvTask task(block, p, index);
  trace_starved_reset();
  trace_mark(p, index, kMarkStart, thread_index() == 0);
  turn.say(block);
  const u32 units = task.units(), at_once = slice_shape(task.matrix).units_at_once;
  const bool norm = (task.fused & kFusedNorm) != 0;
  UnitEnd end;
  if (own < at_once && own < units) end.prepare(block, p, task, own, lane);
  SliceVector vector;
  vector.clear();
  float squares = 0.0f;
  if (task.matrix == kDown) {
    fetch_pairs<kInterSlice>(block, p, task, kInter, index, warp, lane, vector);
  } else if (task.matrix == kO) {
    if constexpr (kSplits == 1) {
      fetch_pairs<kQSlice>(block, p, task, kQRows, index, warp, lane, vector);
    } else {
      fetch_combine(block, p, task, index, warp, lane, vector);
    }
  } else {
    squares = fetch_norm(block, p, task, index, warp, lane, vector);
  }
  trace_mark(p, index, kMarkReady, thread_index() == 0);
  Best best = no_best();
#pragma unroll 1
  for (u32 first = 0; first < units; first += at_once) {
    const SliceSums sums(block, turn);
    if (kInterSlice != kHiddenSlice && task.matrix == kDown) {
      products<kInterSlice>(w, vector, sums, warp, lane);
    } else if (kQSlice != kHiddenSlice && task.matrix == kO) {
      products<kQSlice>(w, vector, sums, warp, lane);
    } else {
      products<kHiddenSlice>(w, vector, sums, warp, lane);
    }
    if (norm) {
      if (first == 0) squares = warp_sum(squares);
      if (lane == 0) sums.squares()[warp] = squares;
    }
    trace_mark(p, index, kMarkComputed, thread_index() == 0);
    turn.meet();
#pragma unroll 1
    for (u32 u = own; u < at_once && first + u < units; u += kConsumerWarps) {
      const WarpSums of_row(sums.row(u * kUnit + lane % kUnit)), of_squares(sums.squares());
      if (u != own) end.prepare(block, p, task, first + u, lane);
      float v = of_row.sum();
      if (norm) v *= rsqrtf(of_squares.sum() * (1.0f / kHidden) + kEps);
      end.finish(block, p, index, v, best);
      __syncwarp();
    }
    trace_mark(p, index, kMarkPublished, warp == kConsumerWarps - 1 && lane == 0);
    if (first + at_once >= units) break;
    turn.say(block);
    load_weights(p, task, first + at_once, warp, lane, w);
    prefetch_group(p, task.weight, units, slice_shape(task.matrix), first + kAheadGroups * at_once, warp, lane);
    if (own < at_once && first + at_once + own < units) end.prepare(block, p, task, first + at_once + own, lane);
  }
  load_next(block, p, index + 1, count, warp, lane, w);
  if ((task.fused & kFusedArgmax) != 0) {
    best = block_best(block, best);
    if (thread_index() == 0) {
      Publisher out;
      out.tag = task.tag;
      out.word(p.activations + task.output2, 0, __float_as_uint(best.value));
      out.word(p.activations + task.output2, 1, best.index);
    }
  }
  return turn.stays(block);
}

__device__ __forceinline__ void consume_slices(const Block& block, const Params& p, u32 count) {
  const u32 warp = thread_index() / 32, lane = thread_index() % 32;
  Turn turn;
  Weights w;
#pragma unroll 1
  for (u32 i = 0; i < kAheadTasks; ++i) prefetch_task(block, p, i, count, warp, lane);
  load_next(block, p, 0, count, warp, lane, w);
  // Sums of warps that there are none of count as zero.
  for (u32 i = thread_index(); i < 2 * kPartialFloats; i += kConsumers) block.partials(0)[i] = 0.0f;
  consumer_barrier();
#pragma unroll 1
  for (u32 i = 0; i < count; ++i) {
    const TaskDesc& task = block.task(i);
    prefetch_task(block, p, i + kAheadTasks, count, warp, lane);
    bool stays;
    if (task.op == kOpGemv) {
      stays = gemv_slices(block, p, i, count, w, turn);
    } else {
      stays = task.op == kOpAttentionTile ? attention_slices(block, p, task, i, turn) : elementwise(block, p, task, i);
      load_next(block, p, i + 1, count, warp, lane, w);
    }
    if (!stays) break;
  }
}

}  // namespace amk_vm
