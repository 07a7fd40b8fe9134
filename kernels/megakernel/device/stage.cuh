// A GEMV's input vector into shared memory, once per task and SM, in the weights' element type: as it is, normalised, or merged from the
// attention's partials. What does not depend on the wait is loaded before it.
#pragma once

#include "block.cuh"

namespace amk_vm {

// Four neighbouring floats to the staged vector (2-byte types: 8 bytes).
__device__ __forceinline__ void put4(u8* act, u32 element, float a, float b, float c, float d) {
  if constexpr (kWeightType == kF32) {
    *reinterpret_cast<float4*>(act + element * 4) = make_float4(a, b, c, d);
  } else {
    *reinterpret_cast<uint2*>(act + element * 2) = make_uint2(pack_pair<kWeightType>(a, b), pack_pair<kWeightType>(c, d));
  }
}

// Four neighbouring weights of a vector (norm, bias) as floats.
__device__ __forceinline__ float4 vector4(const u8* vectors, u32 element) {
  if constexpr (kWeightType == kF32) {
    return __ldg(reinterpret_cast<const float4*>(vectors) + element / 4);
  } else {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(vectors) + element / 4);
    float4 out;
    unpack_pair<kWeightType>(v.x, out.x, out.y);
    unpack_pair<kWeightType>(v.y, out.z, out.w);
    return out;
  }
}

// Columns that the padding adds are zero, so that whatever weights they meet count nothing.
__device__ __forceinline__ void zero_padding(u8* act, const Shape& shape) {
  if constexpr (kHidden % 64 != 0 || kQRows % 64 != 0 || kInter % 64 != 0) {
    static_assert(kHidden % 4 == 0 && kQRows % 4 == 0 && kInter % 4 == 0, "columns come in fours");
    for (u32 i = shape.columns + thread_index() * 4; i < shape.padded; i += kConsumers * 4) put4(act, i, 0, 0, 0, 0);
  }
}

// RMSNorm of the fp32 residual. Each thread holds what it read until the sum over all is known.
__device__ __forceinline__ void stage_norm(const Block& block, const Params& p, const TaskDesc& task, u32 index) {
  constexpr u32 kQuads = kHidden / 4, kEach = (kQuads + kConsumers - 1) / kConsumers;
  constexpr bool kHold = kEach <= 8;  // else both are read again: wide models in few threads
  const u8* norm = p.vectors + task.norm;
  float4 weight[kHold ? kEach : 1], value[kHold ? kEach : 1];
  if constexpr (kHold) {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      const u32 quad = thread_index() + i * kConsumers;
      if (quad < kQuads) weight[i] = vector4(norm, quad * 4);
    }
  }
  wait_dependencies(block, p, task, index);
  const u8* input = p.activations + task.input;
  float squares = 0.0f;
#pragma unroll
  for (u32 i = 0; i < kEach; ++i) {
    const u32 quad = thread_index() + i * kConsumers;
    if (quad >= kQuads) break;
    const uint4 bits = load_l2_16(input + quad * 16);
    const float4 v = make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w));
    if constexpr (kHold) value[i] = v;
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  squares = warp_sum(squares);
  if (thread_index() % 32 == 0) block.scratch()[thread_index() / 32] = squares;
  consumer_barrier();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kConsumerWarps; ++w) total += block.scratch()[w];
  const float scale = rsqrtf(total / static_cast<float>(kHidden) + kEps);
#pragma unroll
  for (u32 i = 0; i < kEach; ++i) {
    const u32 quad = thread_index() + i * kConsumers;
    if (quad >= kQuads) break;
    float4 v, w;
    if constexpr (kHold) {
      v = value[i];
      w = weight[i];
    } else {
      const uint4 bits = load_l2_16(input + quad * 16);
      v = make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w));
      w = vector4(norm, quad * 4);
    }
    put4(block.act(), quad * 4, v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
  }
}

// The vector as it lies in memory, in the activations' type. Four loads a thread are on their way before the first is stored.
__device__ __forceinline__ void stage_copy(const Block& block, const Params& p, const TaskDesc& task, u32 columns) {
  const u8* input = p.activations + task.input;
  constexpr bool kSame = kBytesOf<kActType> == 2 && kActType == kWeightType;
  constexpr u32 kPiece = kSame || kActType == kF32 ? 16 / kBytesOf<kActType> : 8;  // elements of 16 bytes
  constexpr u32 kFlight = 4;
  const u32 pieces = (columns + kPiece - 1) / kPiece;  // storages are padded to 128 bytes: the last piece may reach into the padding
#pragma unroll 1
  for (u32 first = thread_index(); first < pieces; first += kConsumers * kFlight) {
    uint4 v[kFlight];
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) v[j] = load_l2_16_if(input + (first + j * kConsumers) * 16, first + j * kConsumers < pieces);
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) {
      const u32 at = first + j * kConsumers;
      if (at >= pieces) break;
      if constexpr (kSame) {
        // The last piece may be half: what lies behind the vector must not meet the padding's zeros.
        if (at * 8 + 8 <= columns) {
          *reinterpret_cast<uint4*>(block.act() + at * 16) = v[j];
        } else {
          *reinterpret_cast<uint2*>(block.act() + at * 16) = make_uint2(v[j].x, v[j].y);
        }
      } else if constexpr (kActType == kF32) {
        put4(block.act(), at * 4, __uint_as_float(v[j].x), __uint_as_float(v[j].y), __uint_as_float(v[j].z), __uint_as_float(v[j].w));
      } else {
        float e[8];
        unpack_pair<kActType>(v[j].x, e[0], e[1]);
        unpack_pair<kActType>(v[j].y, e[2], e[3]);
        unpack_pair<kActType>(v[j].z, e[4], e[5]);
        unpack_pair<kActType>(v[j].w, e[6], e[7]);
        put4(block.act(), at * 8, e[0], e[1], e[2], e[3]);
        if (at * 8 + 8 <= columns) put4(block.act(), at * 8 + 4, e[4], e[5], e[6], e[7]);
      }
    }
  }
}

constexpr u32 kPartialRecord = kHeadDim + kPartialTail;  // floats of one query head's partial

// Splits that have keys at this position: split s starts with block s.
__device__ __forceinline__ u32 active_splits(int position) {
  const u32 blocks = static_cast<u32>(position) / kKvBlock + 1;
  return blocks < kSplits ? blocks : kSplits;
}

// Four neighbouring elements of one query head, merged over the splits in their order; four splits' records are on their way at once.
__device__ __forceinline__ float4 combine4(const float* partials, u32 head, u32 element, u32 splits) {
  constexpr u32 kFlight = kSplits < 4 ? kSplits : 4;
  const u32 stride = kHeads * kPartialRecord;
  const float* record = partials + head * kPartialRecord;
  float top = -kInfinity, total = 0.0f;
  float4 sum = make_float4(0, 0, 0, 0);
  for (u32 first = 0; first < splits; first += kFlight) {
    uint4 tail[kFlight], v[kFlight];
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) {
      tail[j] = load_l2_16_if(record + (first + j) * stride + kHeadDim, first + j < splits);
      v[j] = load_l2_16_if(record + (first + j) * stride + element, first + j < splits);
    }
    float next = top;
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) next = first + j < splits ? fmaxf(next, __uint_as_float(tail[j].x)) : next;
    // A split without keys in the window has maximum -inf and weight 0.
    const float keep = next == -kInfinity ? 0.0f : fast_exp2(top - next);
    total *= keep;
    sum = make_float4(sum.x * keep, sum.y * keep, sum.z * keep, sum.w * keep);
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) {
      const float weight = first + j < splits && next != -kInfinity ? fast_exp2(__uint_as_float(tail[j].x) - next) : 0.0f;
      total = fmaf(weight, __uint_as_float(tail[j].y), total);
      sum.x = fmaf(weight, __uint_as_float(v[j].x), sum.x);
      sum.y = fmaf(weight, __uint_as_float(v[j].y), sum.y);
      sum.z = fmaf(weight, __uint_as_float(v[j].z), sum.z);
      sum.w = fmaf(weight, __uint_as_float(v[j].w), sum.w);
    }
    top = next;
  }
  const float inverse = 1.0f / total;
  return make_float4(sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse);
}

__device__ __forceinline__ void stage_combine(const Block& block, const Params& p, const TaskDesc& task) {
  const float* partials = reinterpret_cast<const float*>(p.activations + task.input);
  const u32 splits = active_splits(p.position);
#pragma unroll 2
  for (u32 i = thread_index(); i < kQRows / 4; i += kConsumers) {
    const u32 element = i * 4;
    const float4 v = combine4(partials, element / kHeadDim, element % kHeadDim, splits);
    put4(block.act(), element, v.x, v.y, v.z, v.w);
  }
}

__device__ __forceinline__ void stage(const Block& block, const Params& p, const TaskDesc& task, const Shape& shape, u32 index) {
  if ((task.fused & kFusedNorm) != 0) {
    stage_norm(block, p, task, index);
  } else {
    wait_dependencies(block, p, task, index);
    if (kSplits > 1 && (task.fused & kFusedCombine) != 0) {
      stage_combine(block, p, task);
    } else {
      stage_copy(block, p, task, shape.columns);
    }
  }
  zero_padding(block.act(), shape);
  consumer_barrier();
}

}  // namespace amk_vm
