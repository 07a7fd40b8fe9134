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
  u32 matrix, fused, weight, row_begin, row_end, input, norm, bias, residual, output, output2, layer, head;
  u32 input_tag, residual_tag, tag;  // of this step
  __device__ __forceinline__ GemvTask(const Block& block, const Params& p, u32 index) {
    const u32 at = shared_address(&block.task(index));
    const uint4 a = load_shared16(at), b = load_shared16(at + 16), c = load_shared16(at + 32), d = load_shared16(at + 48);
    matrix = a.x >> 8 & 0xff, fused = a.x >> 16, weight = a.y, row_begin = a.z, row_end = a.w;
    input = b.x, norm = b.y, bias = b.z, residual = b.w, output = c.x, output2 = c.y;
    const u32 base = tag_base(p);
    input_tag = base + (d.y & 0xffff), residual_tag = base + (d.y >> 16), layer = d.z & 0xffff, head = d.z >> 16, tag = base + (d.w >> 16);
  }
  __device__ __forceinline__ u32 units() const { return (row_end - row_begin + kUnit - 1) / kUnit; }
};

// Vectors that the residual behind attention is the sum of, [kSums][kHidden].
constexpr int kSums = kAttentionO ? kKvHeads : 1;

// Units of a group, by the matrix' width. With a ring a group is a chunk.
template <int Blocks>
constexpr u32 units_at_once(u32 blocks) {
  // A warp finishes at most one unit of a group.
  const u32 held = kGroupUnits<Blocks> < kConsumerWarps ? kGroupUnits<Blocks> : kConsumerWarps;
  const u32 chunk = kSlots > 0 ? kSlotBytes / (blocks * 1024) : held;
  return held < chunk ? held : chunk;
}
constexpr u32 kHiddenBlocks = (kHidden + 63) / 64, kQBlocks = (kQRows + 63) / 64, kInterBlocks = (kInter + 63) / 64;
constexpr u32 kHiddenUnits = units_at_once<kHiddenSlice>(kHiddenBlocks), kQUnits = units_at_once<kQSlice>(kQBlocks),
              kInterUnits = units_at_once<kInterSlice>(kInterBlocks);
static_assert(kHiddenUnits > 0 && kQUnits > 0 && kInterUnits > 0, "the host sees to it");
__device__ __forceinline__ u32 units_at_once_of(u32 matrix) { return matrix == kO ? kQUnits : matrix == kDown ? kInterUnits : kHiddenUnits; }

struct Weights {
  uint4 piece[kGroupPieces];
  RingCursor ring;  // the next chunk
};

__device__ __forceinline__ void load_weight16_if(uint4& v, const u8* p, bool yes) {
  v = make_uint4(0, 0, 0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(p), "r"(static_cast<u32>(yes)));
}
__device__ __forceinline__ void load_piece_if(uint4& v, u32 address, bool yes) {
  v = make_uint4(0, 0, 0, 0);
  load_shared16_over(v, address, yes);
}

// Units first, first + 1, … of the task over this warp's blocks. What is not there is zero. With a ring the group is the ring's next chunk, given
// back once it is in registers.
template <int Blocks, u32 Units>
__device__ __forceinline__ void load_group(const Block& block, const Params& p, u32 weight, u32 units, u32 blocks, u32 first, u32 warp, u32 lane,
                                           Weights& w) {
  const u32 offset = warp * 1024 + lane * 16;
  const u8* direct = nullptr;
  u32 chunk = 0;
  if constexpr (kSlots > 0) {
    const u64 begin = trace_wait_begin();
    wait_barrier(block, block.full(w.ring.slot), w.ring.phase());
    trace_wait_end(begin);
    chunk = block.base() + kShared.ring + w.ring.slot * kSlotBytes + offset;
  } else {
    direct = p.weights + static_cast<u64>(weight) * 16 + static_cast<u64>(first) * blocks * 1024 + offset;
  }
#pragma unroll
  for (u32 u = 0; u < Units; ++u) {
#pragma unroll
    for (int j = 0; j < Blocks; ++j) {
      const bool there = first + u < units && warp + j * kConsumerWarps < blocks;
      const u32 at = (u * blocks + j * kConsumerWarps) * 1024;
      if constexpr (kSlots > 0) {
        load_piece_if(w.piece[(u * Blocks + j) * 2], chunk + at, there);
        load_piece_if(w.piece[(u * Blocks + j) * 2 + 1], chunk + at + 512, there);
      } else {
        load_weight16_if(w.piece[(u * Blocks + j) * 2], direct + at, there);
        load_weight16_if(w.piece[(u * Blocks + j) * 2 + 1], direct + at + 512, there);
      }
    }
  }
#pragma unroll
  for (int i = Units * Blocks * 2; i < kGroupPieces; ++i) w.piece[i] = make_uint4(0, 0, 0, 0);
  if constexpr (kSlots > 0) {
    __syncwarp();
    mbarrier_arrive_many(block.empty(w.ring.slot), 1, lane);
    w.ring.advance(1, kSlots);
  }
}
__device__ __forceinline__ void load_weights(const Block& block, const Params& p, u32 matrix, u32 weight, u32 units, u32 first, u32 warp, u32 lane,
                                             Weights& w) {
  if (kInterBlocks != kHiddenBlocks && matrix == kDown) {
    load_group<kInterSlice, kInterUnits>(block, p, weight, units, kInterBlocks, first, warp, lane, w);
  } else if (kQBlocks != kHiddenBlocks && matrix == kO) {
    load_group<kQSlice, kQUnits>(block, p, weight, units, kQBlocks, first, warp, lane, w);
  } else {
    load_group<kHiddenSlice, kHiddenUnits>(block, p, weight, units, kHiddenBlocks, first, warp, lane, w);
  }
}
// A group of task i, if it is a GEMV in groups. Weights are held across no other task: attention has no registers for them.
__device__ __forceinline__ void load_next(const Block& block, const Params& p, u32 i, u32 first, u32 count, u32 warp, u32 lane, Weights& w) {
  if (i < count && block.task(i).op == kOpGemv && block.task(i).matrix != kLmHead) {
    const u32 at = shared_address(&block.task(i));
    const uint4 a = load_shared16(at);
    load_weights(block, p, a.x >> 8 & 0xff, a.y, (a.w - a.z + kUnit - 1) / kUnit, first, warp, lane, w);
  } else {
#pragma unroll
    for (uint4& piece : w.piece) piece = make_uint4(0, 0, 0, 0);
  }
}

__device__ __forceinline__ void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
// Without a ring: the lines of a group into L2, a hint.
template <u32 Slice, u32 Units>
__device__ __forceinline__ void prefetch_group(const Params& p, u32 weight, u32 units, u32 blocks, u32 first, u32 warp, u32 lane) {
  static_assert(Units * Slice <= 4, "a line a lane");
  const u32 unit = first + lane / (Slice * 8), at = warp + lane / 8 % Slice * kConsumerWarps;
  if (lane >= Units * Slice * 8 || unit >= units || at >= blocks) return;
  prefetch_line(p.weights + static_cast<u64>(weight) * 16 + (static_cast<u64>(unit) * blocks + at) * 1024 + lane % 8 * 128);
}
__device__ __forceinline__ void prefetch_group(const Params& p, u32 matrix, u32 weight, u32 units, u32 first, u32 warp, u32 lane) {
  if (matrix == kDown) return prefetch_group<kInterSlice, kInterUnits>(p, weight, units, kInterBlocks, first, warp, lane);
  if (matrix == kO) return prefetch_group<kQSlice, kQUnits>(p, weight, units, kQBlocks, first, warp, lane);
  prefetch_group<kHiddenSlice, kHiddenUnits>(p, weight, units, kHiddenBlocks, first, warp, lane);
}
__device__ __forceinline__ void prefetch_later_group(const Block& block, const Params& p, u32 i, u32 first, u32 warp, u32 lane) {
  const TaskDesc& task = block.task(i);
  const u32 units = (task.row_end - task.row_begin + kUnit - 1) / kUnit;
  prefetch_group(p, task.matrix, task.weight, units, first + (kAheadGroups - 1) * units_at_once_of(task.matrix), warp, lane);
}
// The weights of an attention_o task; of the cache's rows, which many tasks of a head read, each asks for its share.
__device__ __forceinline__ void prefetch_attention_o(const Params& p, const TaskDesc& task, u32 warp, u32 lane) {
  const u32 rows = task.row_end - task.row_begin, unit = warp;
  constexpr u32 kLines = kGqa * kHeadDim / 64 * 8;  // of a unit: 1024 bytes a block of 64
  const u8* weights = p.weights + static_cast<u64>(task.weight) * 16;
#pragma unroll 1
  for (u32 i = lane; unit < rows / kUnit && i < kLines; i += 32) prefetch_line(weights + unit * (kQBlocks * 1024) + i * 128);
  if (warp != kConsumerWarps - 1) return;
  const int position = position_of(p, 0);
#pragma unroll 1
  for (u32 i = task.row_begin / rows * kTile + lane % kTile; i < static_cast<u32>(position); i += kHidden / rows * kTile) {
    const u8* row = p.kv + cache_row(0, task.layer, lane / kTile, task.head, i) * 2;
#pragma unroll
    for (u32 line = 0; line < kHeadDim * 2; line += 128) prefetch_line(row + line);
  }
}
// What a task some way ahead will read: the cache's rows, the norm's weights, without a ring also the matrix.
__device__ __forceinline__ void prefetch_task(const Block& block, const Params& p, u32 i, u32 count, u32 warp, u32 lane) {
  if (i >= count) return;
  const TaskDesc& task = block.task(i);
  if (task.op == kOpAttentionTile) return prefetch_attention(p, task, warp, lane);
  if constexpr (kAttentionO) {
    if (task.op == kOpAttentionO) return prefetch_attention_o(p, task, warp, lane);
  }
  if (task.op != kOpGemv) return;
  if (lane == 0 && task.norm != kNoOffset && warp * 64 < kHidden) prefetch_line(p.vectors + task.norm + warp * 128);
  if constexpr (kSlots == 0) {
    const u32 units = (task.row_end - task.row_begin + kUnit - 1) / kUnit, step = units_at_once_of(task.matrix);
#pragma unroll 1
    for (u32 g = 0; g < kAheadGroups && g * step < units; ++g) prefetch_group(p, task.matrix, task.weight, units, g * step, warp, lane);
  }
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

// RMSNorm's input: fp32 words, two a lane and block, to `put(j, pair)`. The norm's scale is applied to the sums. Returns this lane's sum of squares,
// before the norm's weights.
template <class Put>
__device__ __forceinline__ float fetch_norm(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane, Put put) {
  const u8* norm = p.vectors + task.norm;
  const u8* input = p.activations + task.input;
  const auto column = [&](int j) { return (warp + j * kConsumerWarps) * 64 + lane * 2; };
  const auto wanted = [&](int j) { return column(j) < kHidden; };
  u32 weight[kHiddenSlice];
#pragma unroll
  for (int j = 0; j < kHiddenSlice; ++j) weight[j] = wanted(j) ? __ldg(reinterpret_cast<const u32*>(norm + column(j) * 2)) : 0;
  const int sums = task.matrix == kGateUp ? kSums : 1;
  PacketPair pairs[kHiddenSlice * kSums];
  look_for(
      block, p, index, task.input_tag, pairs, [&](int i) { return input + (i % kSums * kHidden + column(i / kSums)) * 8; },
      [&](int i) { return wanted(i / kSums) && i % kSums < sums; });
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kHiddenSlice; ++j) {
    float a = __uint_as_float(pairs[j * kSums].low()), b = __uint_as_float(pairs[j * kSums].high());
#pragma unroll
    for (int s = 1; s < kSums; ++s) {  // packets that nobody looked for are zero
      a += __uint_as_float(pairs[j * kSums + s].low());
      b += __uint_as_float(pairs[j * kSums + s].high());
    }
    float wa, wb;
    unpack_pair<kWeightType>(weight[j], wa, wb);
    squares = fmaf(b, b, fmaf(a, a, squares));
    put(j, pack_pair<kWeightType>(a * wa, b * wb));
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
    const Elements merged = merge.result();
    out.put(j, there ? pack_pair<kWeightType>(merged.e[0], merged.e[1]) : 0, lane);
  }
}

// This warp's products of a group: a sum a row.
template <int Blocks, u32 Units>
__device__ __forceinline__ void products(const Weights& w, const SliceVector& vector, const SliceSums& sums, u32 warp, u32 lane) {
  float sum[Units];
#pragma unroll
  for (u32 u = 0; u < Units; ++u) {
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
    for (u32 u = 0; u < Units; ++u) sums.row(u * kUnit + lane / 4)[warp] = sum[u];
  }
}

// One unit's end, by a warp: lane l has row l % 8. All that does not depend on the task's input is made ready before: what is left is in registers.
struct UnitEnd {
  enum Kind : u32 { kPairs, kSilu, kResidual };
  u32 kind = kPairs, row = 0, tag = 0, residual_tag = 0;
  float bias = 0.0f, c = 1.0f, s = 0.0f;  // rotation: this row's factor, and its partner's
  u64 residual[kSums] = {};               // to be added up
  int residuals = 1;                      // how many there are, where that depends on the task
  const u8* residual_at = nullptr;
  u8* to = nullptr;     // this lane's packet; nullptr: it stores none
  u8* cache = nullptr;  // likewise the pair of the cache

  __device__ __forceinline__ void prepare(const Block& block, const Params& p, const GemvTask& task, u32 unit, u32 lane) {
    row = task.row_begin + unit * kUnit + lane % kUnit;
    tag = task.tag;
    residual_tag = task.residual_tag;
    bias = 0.0f, c = 1.0f, s = 0.0f, residual[0] = 0, residual_at = nullptr, to = cache = nullptr;
#pragma unroll
    for (int i = 1; i < kSums; ++i) residual[i] = 0;
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
    } else {
      kind = kResidual;
      residual_at = p.activations + task.residual + row * 8;
      if constexpr (kAttentionO) {
        residuals = task.matrix == kDown ? kSums : task.residual == kNoOffset ? 0 : 1;
#pragma unroll
        for (int i = 0; i < kSums; ++i)
          if (there && i < residuals) load_residual(i);
        if (stores) to = p.activations + task.output + (task.head * kHidden + row) * 8;
      } else {
        if (there) load_residual(0);
        if (stores) to = p.activations + task.output + row * 8;
      }
    }
  }
  __device__ __forceinline__ void load_residual(int i) {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(residual[i]) : "l"(residual_at + i * (kHidden * 8)));
  }
  __device__ __forceinline__ void publish(u32 word) const {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(static_cast<u64>(tag) << 32 | word) : "memory");
  }
  // It was there before the task's input: a formality.
  __device__ __forceinline__ float residual_of(const Block& block, const Params& p, u32 index, int i) {
    for (u32 polls = 1; static_cast<u32>(residual[i] >> 32) != residual_tag; ++polls) {
      if (polls % kPollsPerCheck == 0 && out_of_time(block, p, kAbortPackets, index)) break;
      load_residual(i);
    }
    return __uint_as_float(static_cast<u32>(residual[i]));
  }
  __device__ __forceinline__ float residual_sum(const Block& block, const Params& p, u32 index) {
    if constexpr (!kAttentionO) return residual_of(block, p, index, 0);
    float sum = -0.0f;  // changes nothing that it is added to
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      if (i < residuals) sum += residual_of(block, p, index, i);
    return sum;
  }
  __device__ __forceinline__ void finish(const Block& block, const Params& p, u32 index, float v) {
    v += bias;
    if (kind == kResidual) {
      if (to == nullptr) return;
      publish(__float_as_uint(v + residual_sum(block, p, index)));
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

// This warp's part of a task's vector. Returns this lane's sum of squares where the task norms it.
__device__ __forceinline__ float fetch(const Block& block, const Params& p, const GemvTask& task, u32 index, u32 warp, u32 lane,
                                       SliceVector& vector) {
  if (task.matrix == kDown) {
    fetch_pairs<kInterSlice>(block, p, task, kInter, index, warp, lane, vector);
    return 0.0f;
  }
  if (task.matrix == kO) {
    if constexpr (kSplits == 1) {
      fetch_pairs<kQSlice>(block, p, task, kQRows, index, warp, lane, vector);
    } else {
      fetch_combine(block, p, task, index, warp, lane, vector);
    }
    return 0.0f;
  }
  return fetch_norm(block, p, task, index, warp, lane, [&](int j, u32 pair) { vector.put(j, pair, lane); });
}

// Attention of a kv head, over all positions, and the task's rows of the head's columns of O. The warps' records become the head's vector, in the
// order in which products take it; then a warp a unit, the last ones first, multiplies, and publishes. Two barriers a task: what lies between warps
// needs no second place.
struct HeadWeights {
  uint4 piece[kHeadBlocks * 2];
  static __device__ __forceinline__ const u8* of_unit(const Params& p, const TaskDesc& task, u32 unit, u32 lane) {
    return p.weights + static_cast<u64>(task.weight) * 16 + unit * (kQBlocks * 1024) + lane * 16;
  }
  // What a lane brings to shared memory is its own: nobody else waits for it.
  static __device__ __forceinline__ void bring(const u8* from, u32 to) {
#pragma unroll
    for (u32 i = 0; i < kHeadBlocks * 2; ++i) async_copy16(to + i * 512, from + i * 512);
  }
  __device__ __forceinline__ void take(u32 from) {
    asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
    for (u32 i = 0; i < kHeadBlocks * 2; ++i) piece[i] = load_shared16(from + i * 512);
  }
};
__device__ __forceinline__ bool attention_o(const Block& block, const Params& p, u32 index, u32 count, Turn& turn) {
  const TaskDesc& task = block.task(index);
  const u32 warp = thread_index() / 32, lane = thread_index() % 32;
  const u32 units = (task.row_end - task.row_begin) / kUnit;
  u32 unit = kConsumerWarps - 1 - warp;
  const u32 weights_at = shared_address(block.act()) + kHeadWeightsAt + unit * (kHeadBlocks * 1024) + lane * 16;
  const auto bring = [&] {
    if (unit < units) HeadWeights::bring(HeadWeights::of_unit(p, task, unit, lane), weights_at);
  };
  UnitEnd end;
  const auto prepare = [&] {
    if (unit >= units) return;
    GemvTask as_gemv(block, p, index);
    as_gemv.matrix = kO;
    end.prepare(block, p, as_gemv, unit, lane);
  };
  bring();
  prepare();
  attend_head(block, p, task, index, turn);
  turn.say(block);
  turn.meet();
  trace_mark(p, index, kMarkReduced, thread_index() == 0);
#pragma unroll 1
  while (unit < units) {
    HeadWeights weights;
    weights.take(weights_at);
    float c[2 * kHeadBlocks][4];
#pragma unroll
    for (u32 j = 0; j < kHeadBlocks; ++j) {
      const uint4 b = load_shared16(shared_address(head_vector(block) + j * 32 + lane % 4 * 8 + lane / 4 % 2 * 4));
      const uint4 low = weights.piece[j * 2], high = weights.piece[j * 2 + 1];
#pragma unroll
      for (int i = 0; i < 4; ++i) c[j * 2][i] = c[j * 2 + 1][i] = 0.0f;
      mma16816(c[j * 2], low.x, low.y, low.z, low.w, b.x, b.y);
      mma16816(c[j * 2 + 1], high.x, high.y, high.z, high.w, b.z, b.w);
    }
    float sum = 0.0f;
#pragma unroll
    for (u32 j = 0; j < kHeadBlocks; ++j) sum += (c[j * 2][0] + c[j * 2 + 1][0]) + (c[j * 2][3] + c[j * 2 + 1][3]);
    end.kind = UnitEnd::kResidual;
    end.finish(block, p, index, __shfl_sync(0xffffffffu, sum, lane % kUnit * 4));
    __syncwarp();
    unit += kConsumerWarps;
    bring();
    prepare();
  }
  trace_mark(p, index, kMarkPublished, warp == kConsumerWarps - 1 && lane == 0);
  const bool stays = turn.stays(block);
  if (stays && thread_index() == 0) stage_ahead(block, p, index + 1, count);
  __syncwarp();
  return stays;
}

// The LM head has by far the most rows and nothing waits for any one of them: in groups, each with its barrier and its end, it took twice the time of
// its bytes. Its vector goes to shared memory, once, and behind the one barrier that this needs a warp takes whole units, in turn, adds up all of a
// row itself, and meets the others when all rows are done.
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
  const float squares = warp_sum(fetch_norm(block, p, task, index, warp, lane, [&](int j, u32 pair) {
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
      const u32 op = block.task(i).op;
      bool stays = true;
      if (op == kOpGemv && block.task(i).matrix != kLmHead) {
        const GemvTask task(block, p, i);
        const u32 units = task.units(), at_once = units_at_once_of(task.matrix);
        const bool norm = (task.fused & kFusedNorm) != 0, finishes = own < at_once && first + own < units;
        trace_mark(p, i, kMarkStart, thread_index() == 0 && first == 0);
        turn.say(block);
        UnitEnd end;
        if (finishes) end.prepare(block, p, task, first + own, lane);
        if (first == 0) {
          squares = fetch(block, p, task, i, warp, lane, vector);
          trace_mark(p, i, kMarkReady, thread_index() == 0);
        }
        const SliceSums sums(block, turn);
        if ((kInterSlice != kHiddenSlice || kInterUnits != kHiddenUnits) && task.matrix == kDown) {
          products<kInterSlice, kInterUnits>(w, vector, sums, warp, lane);
        } else if ((kQSlice != kHiddenSlice || kQUnits != kHiddenUnits) && task.matrix == kO) {
          products<kQSlice, kQUnits>(w, vector, sums, warp, lane);
        } else {
          products<kHiddenSlice, kHiddenUnits>(w, vector, sums, warp, lane);
        }
        if (norm) {
          if (first == 0) squares = warp_sum(squares);
          if (lane == 0) sums.squares()[warp] = squares;
        }
        trace_mark(p, i, kMarkComputed, thread_index() == 0);
        turn.meet();
        if (finishes) {
          const WarpSums of_row(sums.row(own * kUnit + lane % kUnit)), of_squares(sums.squares());
          float v = of_row.sum();
          if (norm) v *= rsqrtf(of_squares.sum() * (1.0f / kHidden) + kEps);
          end.finish(block, p, i, v);
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
        stays = kAttentionO && op == kOpAttentionO       ? attention_o(block, p, i, count, turn)
                : !kAttentionO && op == kOpAttentionTile ? attention_slices(block, p, block.task(i), i, turn)
                : op == kOpGemv                          ? lm_head(block, p, i, warp, lane, turn, w.ring)
                : op == kOpArgmax                        ? argmax_slices(block, p, i, warp, lane, turn)
                                                         : elementwise(block, p, block.task(i), i);
        vector.clear();  // nothing is held across these
        squares = 0.0f;
      }
      if (!stays) break;
    }
    i = next;
    first = next_first;
    load_next(block, p, i, first, count, warp, lane, w);
    if (first == 0) {
      prefetch_task(block, p, i + kAheadTasks, count, warp, lane);
    } else if constexpr (kSlots == 0) {
      prefetch_later_group(block, p, i, first, warp, lane);
    }
  } while (i < count);
}

}  // namespace amk_vm
