// GEMV tasks, last consumer warp (of a batch each sequence's warp): adds the segments' sums in column order, applies what is fused behind the
// product, stores, signals. Per batch: prefetch() what does not depend, reduce() into `rows` (fp32 sums with bias), write(); finish() after the last
// batch.
#pragma once

#include "cache.cuh"
#include "fixed_point.cuh"

namespace amk_vm {

// The order that argmax means: larger value first, then the lower index. NaN never wins.
struct Best {
  float value;
  u32 index;
  __device__ __forceinline__ void take(float v, u32 i) {
    if (v > value || (v == value && i < index)) {
      value = v;
      index = i;
    }
  }
  __device__ __forceinline__ void reduce_warp() {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
      const float v = __shfl_xor_sync(0xffffffffu, value, d);
      const u32 i = __shfl_xor_sync(0xffffffffu, index, d);
      take(v, i);
    }
  }
};
__device__ __forceinline__ Best no_best() { return {-kInfinity, 0x7fffffffu}; }

// One pair of a head, (i, i + head_dim / 2), rotated by the launch's position.
__device__ __forceinline__ void rotate(const float* rope, u32 i, float first, float second, float& out_first, float& out_second) {
  const float c = rope[i], s = rope[kHeadDim / 2 + i];
  out_first = fmaf(first, c, -(second * s));
  out_second = fmaf(second, c, first * s);
}

struct Epilogue {
  const Block& block;
  const Params& p;
  const TaskDesc& task;
  const Shape& shape;
  u32 first = 0, count = 0;  // rows of the batch: packed rows [first, first + count)
  float4 residual = {};      // of the batch's rows 4 * lane and on, as reduce() takes them
  float4 scale = {};         // int8: likewise
  Best best = no_best();
  Publisher out;
  u32 lane;
  u32 own = 0;  // of several sequences: which one

  __device__ __forceinline__ Epilogue(const Block& b, const Params& params, const TaskDesc& t, const Shape& s, u32 warp, u32 lane_of_warp)
      : block(b), p(params), task(t), shape(s), lane(lane_of_warp), own(warp) {
    out.tag = tag_base(p) + task.tag;
  }

  __device__ __forceinline__ u32 seq() const { return kBatch == 1 ? 0 : own; }
  // The sequence's slice of the output. Not kept in registers: of one sequence it is two additions.
  __device__ __forceinline__ u8* output(u32 slice) const {
    if constexpr (kBatch == 1) return p.activations + task.output;
    return p.activations + task.output + seq() * slice;
  }

  // Rows 4 * lane and on of the batch, of a residual that an earlier instruction made: complete, because what this task waited for depends on it.
  // Beyond the batch they are of other rows, or of the pad behind the vector, and not used.
  __device__ __forceinline__ float4 residual_rows(u32 index) const {
    const u8* buffer = p.activations + task.residual + (kBatch == 1 ? 0 : seq() * slice_bytes<kF32>(kHidden));
    uint4 v;
    if constexpr (kFlagged) {
      // Rows come in units of eight, and packets of all of them.
      Packets one[1];
      load_packets(
          block, p, index, tag_base(p) + task.residual_tag, one, [&](int) { return buffer + (first + 4 * lane) * 8; }, [](int) { return true; });
      v = one[0].words();
    } else if constexpr (kNormDirect) {
      const u8* at = buffer + residual_order(first + 4 * lane) * 4;
      const uint2 low = load_l2_8_if(at, true), high = load_l2_8_if(at + 64, true);
      v = make_uint4(low.x, low.y, high.x, high.y);
    } else {
      v = load_l2_16(buffer + (first + 4 * lane) * 4);
    }
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
  }

  __device__ __forceinline__ void prefetch(u32 offset, u32 index) {
    const u32 rows = shape.batch_units * kUnit;
    first = task.row_begin + offset;
    count = task.row_end - first < rows ? task.row_end - first : rows;
    if ((task.fused & kFusedResidualAdd) != 0 && 4 * lane < count) residual = residual_rows(index);
    if constexpr (kInt8) {
      const float* scales = reinterpret_cast<const float*>(p.vectors + scale_offset(task.matrix, task.layer)) + first;
      scale = 4 * lane < count ? __ldg(reinterpret_cast<const float4*>(scales) + lane) : make_float4(0, 0, 0, 0);
    }
  }

  // Finishers add it: behind the sums of its unit.
  __device__ __forceinline__ void hand_over(float* partials) const {
    if ((task.fused & kFusedResidualAdd) != 0 && 4 * lane < count)
      *reinterpret_cast<float4*>(partials + lane / 2 * shape.unit_stride + shape.unit_sums * kUnit + lane % 2 * 4) = residual;
  }

  // After a prefetch of the first batch by another.
  __device__ __forceinline__ void resume(float4 prefetched) {
    first = task.row_begin;
    count = task.row_end - first;
    residual = prefetched;
  }

  // A lane four rows: up to 128 at once.
  __device__ __forceinline__ void reduce(const float* partials) {
    static_assert(kBatchUnitsMax * kUnit <= 4 * 32, "all rows of a batch");
    if (4 * lane < count) {
      float4 sum = make_float4(0, 0, 0, 0);
      const float4* at = reinterpret_cast<const float4*>(partials + lane / 2 * shape.unit_stride) + lane % 2;
#pragma unroll 4
      for (u32 s = 0; s < shape.unit_sums; ++s) add(sum, at[s * 2]);
      if constexpr (kInt8) {
        const float one = block.scratch()[kVectorScaleAt];  // what an integer of the vector is worth
        sum = make_float4(sum.x * (scale.x * one), sum.y * (scale.y * one), sum.z * (scale.z * one), sum.w * (scale.w * one));
      }
      if (task.bias != kNoOffset) add(sum, vector4(p.vectors + task.bias, first + 4 * lane));
      if ((task.fused & kFusedResidualAdd) != 0) add(sum, residual);
      reinterpret_cast<float4*>(block.rows(seq()))[lane] = sum;
    }
    __syncwarp();
  }
  static __device__ __forceinline__ void add(float4& sum, float4 v) {
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
  }

  __device__ __forceinline__ void write() {
    if (task.matrix == kQkv) {
      write_qkv();
    } else if (task.matrix == kGateUp) {
      write_gate_up();
    } else {
      write_rows();
    }
    __syncwarp();  // the next batch overwrites `rows`
  }

  __device__ __forceinline__ void finish(u32 index) {
    if ((task.fused & kFusedArgmax) != 0) {
      best.reduce_warp();
      if (lane == 0) {
        u8* buffer = p.activations + task.output2 + seq() * slice_bytes<kF32>(kArgmaxPartials * 2);
        out.word(buffer, 0, __float_as_uint(best.value));
        out.word(buffer, 1, best.index);
      }
    }
    if constexpr (kBatch > 1) return;  // all warps settle, then one thread signals
    out.settle(block.sink());
    __syncwarp();
    if (lane == 0 && task.signal != kNoOffset) signal_counter(p.counters + task.signal * kCounterStride, (task.fused & kSignalsStep) != 0);
    trace_mark(p, index, kMarkPublished, lane == 0);
  }

 private:
  // fp32 rows in natural order: delta, new residual, logits.
  __device__ __forceinline__ void write_rows() {
    for (u32 row = lane; row < count; row += 32) {
      const float v = block.rows(seq())[row];
      if (task.matrix != kLmHead) {
        out.word(output(slice_bytes<kF32>(kHidden)), first + row, __float_as_uint(v));
      } else if ((task.fused & kFusedArgmax) != 0) {
        out.plain(logits_of(p, seq()) + first + row, __float_as_uint(v));  // nobody in this launch reads it
        best.take(v, first + row);
      } else {
        out.outside(logits_of(p, seq()) + first + row, __float_as_uint(v));
      }
    }
  }

  // Units hold four gate rows, then their four up rows.
  __device__ __forceinline__ void write_gate_up() {
    const float* rows = block.rows(seq());
    const u32 begin = first / 2;  // element of `act`
    u8* act = output((task.fused & kFusedSiluMul) != 0 ? slice_bytes<kActType>(kInter) : slice_bytes<kF32>(2 * kInter));
    for (u32 pair = lane; pair < count / 4; pair += 32) {
      const u32 at = pair / 2 * kUnit + pair % 2 * 2;
      const float g0 = rows[at], g1 = rows[at + 1], u0 = rows[at + 4], u1 = rows[at + 5];
      if ((task.fused & kFusedSiluMul) != 0) {
        out.pair<kActType>(act, kDownSegs == 0 ? begin + pair * 2 : pair_order(begin + pair * 2), silu(g0) * u0, silu(g1) * u1);
      } else {
        out.pair<kF32>(act, begin + pair * 2, g0, g1);
        out.pair<kF32>(act, kInter + begin + pair * 2, u0, u1);
      }
    }
  }

  // Flagged: where this step's k and v rows are published besides the cache.
  __device__ __forceinline__ u8* now() const { return p.activations + kKvNow + seq() * slice_bytes<kKvType>(2 * kKvRows); }

  // Rows of q heads, then k heads, each unit four rows of a head's first half and their partners of the second; then v rows as they are.
  __device__ __forceinline__ void write_qkv() {
    float* rows = block.rows(seq());
    const bool rotated = (task.fused & kFusedRopeAppend) != 0;
    if (kQkNorm && rotated) norm_heads(rows);
    for (u32 pair = lane; pair < count / 2; pair += 32) {
      // Pair p of a unit: rows (2p', 2p'+1) with p' = p % 4; 0 and 1 are of the first half, 2 and 3 of the second (or plain v rows).
      const u32 unit = pair / 4, part = pair % 4;
      const u32 row = first + unit * kUnit;
      const float* at = rows + unit * kUnit;
      if (row >= kQRows + kKvRows) {
        const u32 v_row = row - kQRows - kKvRows + part * 2;
        const float a = at[part * 2], b = at[part * 2 + 1];
        if (rotated) {
          out.cache_pair<kKvType>(p.kv, cache_element(seq(), task.layer, 1, v_row / kHeadDim, position_of(p, seq()), v_row % kHeadDim), a, b);
          if constexpr (kFlagged) out.pair<kKvType>(now(), kKvRows + v_row, a, b);
        } else {
          out.pair<kF32>(output(slice_bytes<kF32>(kQRows + 2 * kKvRows)), kQRows + kKvRows + v_row, a, b);
        }
        continue;
      }
      const u32 in_head = row % kHeadDim / kUnit * 4 + part % 2 * 2;  // element of the first half
      const u32 first_half = part % 2 * 2;
      float a0 = at[first_half], a1 = at[first_half + 1], b0 = at[first_half + 4], b1 = at[first_half + 5];
      if (rotated) {
        const float x0 = a0, x1 = a1, y0 = b0, y1 = b1;
        rotate(block.rope(seq()), in_head, x0, y0, a0, b0);
        rotate(block.rope(seq()), in_head + 1, x1, y1, a1, b1);
      }
      const float low = part < 2 ? a0 : b0, high = part < 2 ? a1 : b1;
      const u32 element = in_head + (part < 2 ? 0 : kHeadDim / 2);
      if (!rotated) {
        out.pair<kF32>(output(slice_bytes<kF32>(kQRows + 2 * kKvRows)), row / kHeadDim * kHeadDim + element, low, high);
      } else if (row < kQRows) {
        out.pair<kActType>(output(slice_bytes<kActType>(kQRows)), row / kHeadDim * kHeadDim + element, low, high);
      } else {
        const u32 k_row = (row - kQRows) / kHeadDim * kHeadDim + element;
        out.cache_pair<kKvType>(p.kv, cache_element(seq(), task.layer, 0, k_row / kHeadDim, position_of(p, seq()), element), low, high);
        if constexpr (kFlagged) out.pair<kKvType>(now(), k_row, low, high);
      }
    }
  }

  // RMSNorm of each q and k head of the batch (whole heads: the host sees to it), weights by their place in the packed order.
  __device__ __forceinline__ void norm_heads(float* rows) {
    for (u32 head = 0; head * kHeadDim < count; ++head) {
      const u32 row = first + head * kHeadDim;
      if (row >= kQRows + kKvRows) break;
      float squares = 0.0f;
      for (u32 i = lane; i < kHeadDim; i += 32) squares += rows[head * kHeadDim + i] * rows[head * kHeadDim + i];
      const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(kHeadDim) + kEps);
      const u8* weights = p.vectors + task.output2;
      const u32 which = row < kQRows ? 0 : kHeadDim;
      for (u32 i = lane; i < kHeadDim; i += 32) {
        const u32 element = i / kUnit * 4 + i % 4 + (i % kUnit < 4 ? 0 : kHeadDim / 2);
        rows[head * kHeadDim + i] *= scale * vector1(weights, which + element);
      }
    }
    __syncwarp();
  }
};

}  // namespace amk_vm
