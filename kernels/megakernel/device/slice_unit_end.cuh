// The end of one unit of eight rows, by one warp (slices.cuh): the sum over all warps, then what is fused behind the product, published at once.
#pragma once

#include "epilogue.cuh"
#include "slice_task.cuh"

namespace amk_vm {

// The sums of all warps of one row, in one order.
struct WarpSums {
  static constexpr int kQuads = (kConsumerWarps + 3) / 4;
  float4 q[kQuads];
  __device__ __forceinline__ explicit WarpSums(const float* at) {
    const u32 from = shared_address(at);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const uint4 v = load_shared16(from + i * 16);
      q[i] = make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
    }
  }
  __device__ __forceinline__ float sum() const {
    float sum = (q[0].x + q[0].y) + (q[0].z + q[0].w);
#pragma unroll
    for (int i = 1; i < kQuads; ++i) sum += (q[i].x + q[i].y) + (q[i].z + q[i].w);
    return sum;
  }
};

// One unit's end, by a warp: lane l has row l % 8. All that does not depend on the task's input is made ready before: what is left is in registers.
struct UnitEnd {
  enum Kind : u32 { kPairs, kSilu, kResidual };
  u32 kind = kPairs, row = 0, tag = 0, residual_tag = 0;
  float bias = 0.0f, c = 1.0f, s = 0.0f;  // rotation: this row's factor, and its partner's
  u64 residual[kSums] = {};               // to be added up
  int residuals = 1;                      // how many there are, where that depends on the task
  float settled = 0.0f;                   // their sum
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
  // The residual was there before the task's input: a formality, and a sum, while products wait for that.
  __device__ __forceinline__ void settle(const Block& block, const Params& p, u32 index) {
    if (kind != kResidual || to == nullptr) return;
    const auto wanted = [&](int i) { return !kAttentionO || i < residuals; };
    await_loads<kSums>(
        block, p, index, [&](int i) { load_residual(i); }, [&](int i) { return static_cast<u32>(residual[i] >> 32) == residual_tag; }, wanted);
    settled = kAttentionO ? -0.0f : __uint_as_float(static_cast<u32>(residual[0]));  // -0 changes nothing that is added to it
#pragma unroll
    for (int i = 0; kAttentionO && i < kSums; ++i)
      if (wanted(i)) settled += __uint_as_float(static_cast<u32>(residual[i]));
  }
  __device__ __forceinline__ void finish(float v) const {
    v += bias;
    if (kind == kResidual) {
      if (to == nullptr) return;
      publish(__float_as_uint(v + settled));
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

}  // namespace amk_vm
