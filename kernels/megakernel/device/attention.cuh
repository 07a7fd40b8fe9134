// Attention of the query heads of one kv head over the KV blocks of one split, by all consumer warps.
// A cache row is spread over kLanesPerRow lanes, 16 bytes each (fp32: 32); the groups of lanes of all warps take positions in turn and keep a running
// softmax of their own, merged at the end in a fixed order. The first rows are on their way before the wait: they are older than this step.
#pragma once

#include "cache.cuh"
#include "stage.cuh"

namespace amk_vm {

constexpr u32 pow2_ceil(u32 n) {
  u32 p = 1;
  while (p < n) p *= 2;
  return p;
}

constexpr u32 kRowPieces = kHeadDim / 8;  // eight elements a lane
constexpr u32 kLanesPerRow = pow2_ceil(kRowPieces) < 32 ? pow2_ceil(kRowPieces) : 32;
constexpr u32 kRowsPerWarp = 32 / kLanesPerRow;
constexpr u32 kPiecesPerLane = (kRowPieces + kLanesPerRow - 1) / kLanesPerRow;  // 1 up to head_dim 256
constexpr u32 kRowsPerTurn = kRowsPerWarp * kConsumerWarps;
// Rows a lane group has in flight; fewer where registers are short.
constexpr u32 kFlight = kConsumerWarps > 16 ? 1 : (kConsumerWarps > 8 || kKvType == kF32 || kGqa > 4) ? 2 : 4;
static_assert(kPiecesPerLane == 1, "head_dim at most 256");

// Eight elements of type T from L2.
template <int T>
struct Piece {
  uint4 bits[T == kF32 ? 2 : 1];
  __device__ __forceinline__ void clear() {  // as in segment.cuh, Group
    for (uint4& b : bits) b = make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void load(const u8* base, u64 element) {
    bits[0] = load_l2_16(base + element * kBytesOf<T>);
    if constexpr (T == kF32) bits[1] = load_l2_16(base + element * 4 + 16);
  }
  __device__ __forceinline__ void unpack(float (&out)[8]) const {
    if constexpr (T == kF32) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        out[i * 4] = __uint_as_float(bits[i].x);
        out[i * 4 + 1] = __uint_as_float(bits[i].y);
        out[i * 4 + 2] = __uint_as_float(bits[i].z);
        out[i * 4 + 3] = __uint_as_float(bits[i].w);
      }
    } else {
      unpack_pair<T>(bits[0].x, out[0], out[1]);
      unpack_pair<T>(bits[0].y, out[2], out[3]);
      unpack_pair<T>(bits[0].z, out[4], out[5]);
      unpack_pair<T>(bits[0].w, out[6], out[7]);
    }
  }
};

// Two neighbouring elements of a query head, from the records of the first `warps` warps in their order. Unroll: how many are on their way at once.
struct MergedPair {
  float a = 0.0f, b = 0.0f, top = -kInfinity, total = 0.0f;
  template <int Unroll>
  __device__ __forceinline__ void merge(const float* records, u32 warps, u32 g, u32 e) {
#pragma unroll Unroll
    for (u32 w = 0; w < warps; ++w) top = fmaxf(top, records[(w * kGqa + g) * kPartialRecord + kHeadDim]);
#pragma unroll Unroll
    for (u32 w = 0; w < warps; ++w) {
      const float* record = records + (w * kGqa + g) * kPartialRecord;
      const float2 tail = *reinterpret_cast<const float2*>(record + kHeadDim);
      const float2 pair = *reinterpret_cast<const float2*>(record + e);
      const float keep = tail.x == -kInfinity ? 0.0f : fast_exp2(tail.x - top);
      total = fmaf(keep, tail.y, total);
      a = fmaf(keep, pair.x, a);
      b = fmaf(keep, pair.y, b);
    }
  }
  // Of head g of the task's kv head: of its output, or of the split's partial, [split][kv head][query head of the group]. All four words of a tail
  // are written where a reader of packets looks at four.
  __device__ __forceinline__ void publish(Publisher& out, u8* buffer, const TaskDesc& task, u32 split, u32 g, u32 e) const {
    if constexpr (kSplits == 1) {
      const u32 at = kOSegs == 0 ? e : pair_order(e);
      out.pair<kActType>(buffer, (static_cast<u64>(task.head) * kGqa + g) * kHeadDim + at, __fdividef(a, total), __fdividef(b, total));
    } else {
      const u32 records = split * kHeads * kPartialRecord, head = task.head * kGqa + g;
      const u64 record = records + Partials::values(head), tail = records + Partials::tail(head);
      if constexpr (kHalfPartials) {
        // Over the split's own total: one split alone is then rounded once, as what it is merged to is the same number.
        const float inverse = total > 0.0f ? __fdividef(1.0f, total) : 0.0f;
        out.word(buffer, record + (kMergesDirect ? pair_order(e) : e) / 2, pack_bf16(a * inverse, b * inverse));
      } else {
        out.pair<kF32>(buffer, record + e, a, b);
      }
      if (e == 0) {
        out.pair<kF32>(buffer, tail, top, total);
        if (Partials::kTailWords > 2) out.pair<kF32>(buffer, tail + 2, 0.0f, 0.0f);
      }
    }
  }
};

// Warps' records merged, stored; signalled after the task's last split. All consumer threads, after the records are written.
__device__ __forceinline__ void merge_warps(const Block& block, const Params& p, const TaskDesc& task, u32 index, u32 split, bool active, bool last) {
  const float* records = reinterpret_cast<const float*>(block.act());
  consumer_barrier();

  Publisher out;
  out.tag = tag_base(p) + task.tag;
  if (active) {
    const u32 slice = kSplits == 1 ? slice_bytes<kActType>(kQRows) : slice_bytes<kF32>(kSplits * kHeads * kPartialRecord);
    u8* buffer = p.activations + task.output + sequence_of(task) * slice;
    for (u32 i = thread_index(); i < kGqa * kHeadDim / 2; i += kConsumers) {
      const u32 g = i / (kHeadDim / 2), e = i % (kHeadDim / 2) * 2;
      MergedPair merged;
      merged.merge<8>(records, kConsumerWarps, g, e);
      merged.publish(out, buffer, task, split, g, e);
    }
  }
  out.settle(block.sink());
  consumer_barrier();
  if (!last) return;
  if (thread_index() == 0 && task.signal != kNoOffset) signal_counter(p.counters + task.signal * kCounterStride, (task.fused & kSignalsStep) != 0);
  trace_mark(p, index, kMarkPublished, thread_index() == 0);
}

__device__ __forceinline__ bool attention_scalar(const Block& block, const Params& p, const TaskDesc& task, u32 index) {
  const u32 warp = thread_index() / 32, lane = thread_index() % 32;
  const u32 piece = lane % kLanesPerRow, group = warp * kRowsPerWarp + lane / kLanesPerRow;
  const bool lane_used = piece < kRowPieces;
  const u32 seq = sequence_of(task);
  const int position = position_of(p, seq);
  const bool active = position >= task.pos_lo;
  u32 split = task.split;
  SplitRange range = Ranges::range(position, split);
  const u64 k_base = cache_row(seq, task.layer, 0, task.head, 0) + piece * 8, v_base = cache_row(seq, task.layer, 1, task.head, 0) + piece * 8;
  static_assert(kAttentionMma || kCacheGroup == 0, "rows in their order, loaded by the warps");

  Piece<kKvType> k[kFlight], v[kFlight];
  const auto load = [&](u32 first, bool old_rows) {
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) {
      const u32 i = first + j * kRowsPerTurn + group;
      const int at = Ranges::at(range, i);
      // The row of this step is written during it: before the wait it is left alone.
      if (active && lane_used && i < range.count && at >= range.low && at <= range.position && (at < range.position) == old_rows) {
        k[j].load(p.kv, k_base + static_cast<u64>(at) * kHeadDim);
        v[j].load(p.kv, v_base + static_cast<u64>(at) * kHeadDim);
      }
    }
  };
#pragma unroll
  for (u32 j = 0; j < kFlight; ++j) {
    k[j].clear();
    v[j].clear();
  }
  load(0, true);
  if (!wait_dependencies(block, p, task, index)) return false;
  load(0, false);

  // Query pieces stay packed: registers are what limits the rows in flight. The scale turns exp2 into the softmax's exponential.
  const float scale = 1.4426950408889634f * rsqrtf(static_cast<float>(kHeadDim));
  Piece<kActType> q[kGqa];
#pragma unroll
  for (int g = 0; g < kGqa; ++g) {
    q[g].clear();
    if (active && lane_used)
      q[g].load(p.activations + task.input + seq * slice_bytes<kActType>(kQRows), (static_cast<u64>(task.head) * kGqa + g) * kHeadDim + piece * 8);
  }

  for (bool last = false; !last;) {
    float top[kGqa], total[kGqa], sum[kGqa][8];
#pragma unroll
    for (int g = 0; g < kGqa; ++g) {
      top[g] = -kInfinity;
      total[g] = 0.0f;
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[g][e] = 0.0f;
    }
    const u32 count = active ? range.count : 0;
    for (u32 first = 0; first < count; first += kFlight * kRowsPerTurn) {
      if (first > 0) {
        load(first, true);
        load(first, false);
      }
      bool valid[kFlight];
#pragma unroll
      for (u32 j = 0; j < kFlight; ++j) {
        const u32 i = first + j * kRowsPerTurn + group;
        const int at = Ranges::at(range, i);
        valid[j] = i < count && at >= range.low && at <= range.position;
      }
      float score[kFlight][kGqa];
#pragma unroll
      for (int g = 0; g < kGqa; ++g) {
        float query[8];
        q[g].unpack(query);
#pragma unroll
        for (u32 j = 0; j < kFlight; ++j) {
          float key[8], dot = 0.0f;
          k[j].unpack(key);
#pragma unroll
          for (int e = 0; e < 8; ++e) dot = fmaf(query[e], key[e], dot);
          score[j][g] = lane_used && valid[j] ? dot * scale : 0.0f;
        }
      }
#pragma unroll
      for (u32 d = 1; d < kLanesPerRow; d *= 2) {
#pragma unroll
        for (u32 j = 0; j < kFlight; ++j) {
#pragma unroll
          for (int g = 0; g < kGqa; ++g) score[j][g] += __shfl_xor_sync(0xffffffffu, score[j][g], d);
        }
      }
#pragma unroll
      for (int g = 0; g < kGqa; ++g) {
        float next = top[g];
#pragma unroll
        for (u32 j = 0; j < kFlight; ++j) next = valid[j] ? fmaxf(next, score[j][g]) : next;
        const float keep = next == -kInfinity ? 0.0f : fast_exp2(top[g] - next);
        total[g] *= keep;
#pragma unroll
        for (int e = 0; e < 8; ++e) sum[g][e] *= keep;
        top[g] = next;
      }
#pragma unroll
      for (u32 j = 0; j < kFlight; ++j) {
        float value[8];
        v[j].unpack(value);
#pragma unroll
        for (int g = 0; g < kGqa; ++g) {
          const float weight = valid[j] ? fast_exp2(score[j][g] - top[g]) : 0.0f;
          total[g] += weight;
#pragma unroll
          for (int e = 0; e < 8; ++e) sum[g][e] = valid[j] ? fmaf(weight, value[e], sum[g][e]) : sum[g][e];
        }
      }
    }

    trace_mark(p, index, kMarkComputed, thread_index() == 0);
    // Merge the warp's lane groups, then the warps: records of (sums, maximum, total) in the vector's shared memory.
    float* records = reinterpret_cast<float*>(block.act());
#pragma unroll
    for (int g = 0; g < kGqa; ++g) {
      float warp_top = top[g];
#pragma unroll
      for (u32 d = kLanesPerRow; d < 32; d *= 2) warp_top = fmaxf(warp_top, __shfl_xor_sync(0xffffffffu, warp_top, d));
      const float keep = warp_top == -kInfinity ? 0.0f : fast_exp2(top[g] - warp_top);
      total[g] *= keep;
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[g][e] *= keep;
#pragma unroll
      for (u32 d = kLanesPerRow; d < 32; d *= 2) {
        total[g] += __shfl_xor_sync(0xffffffffu, total[g], d);
#pragma unroll
        for (int e = 0; e < 8; ++e) sum[g][e] += __shfl_xor_sync(0xffffffffu, sum[g][e], d);
      }
      float* record = records + (warp * kGqa + g) * kPartialRecord;
      if (lane < kRowPieces) {
        *reinterpret_cast<float4*>(record + piece * 8) = make_float4(sum[g][0], sum[g][1], sum[g][2], sum[g][3]);
        *reinterpret_cast<float4*>(record + piece * 8 + 4) = make_float4(sum[g][4], sum[g][5], sum[g][6], sum[g][7]);
      }
      if (lane == 0) *reinterpret_cast<float2*>(record + kHeadDim) = make_float2(warp_top, total[g]);
    }
    const u32 done = split;
    last = !Ranges::next(split, position);
    merge_warps(block, p, task, index, done, active, last);
    if (last) break;
    range = Ranges::range(position, split);
    load(0, true);
    load(0, false);
  }
  return true;
}

}  // namespace amk_vm
