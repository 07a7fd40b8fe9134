// A GEMV's input vectors of several sequences, one behind the other in shared memory: each by the very sums that stage.cuh makes for one, the loads
// of several sequences on their way at once. And stage(), which chooses.
#pragma once

#include "segment.cuh"
#include "stage.cuh"

namespace amk_vm {

constexpr u32 kHeldPieces = kConsumerWarps > 8 ? 8 : 16;  // of 16 bytes, by registers
__device__ constexpr u32 at_least_one(u32 n) { return n > 0 ? n : 1; }
__device__ constexpr u32 less(u32 a, u32 b) { return a < b ? a : b; }

// The sums that warp_sum makes of eight values, added up in their order: a lane keeps half of what it has and sends the other half, three times.
__device__ __forceinline__ float sum_of_warp_sums(const float (&v)[8], u32 lane) {
  float four[4], two[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool high = (lane & 16) != 0;
    four[i] = (high ? v[i + 4] : v[i]) + __shfl_xor_sync(0xffffffffu, high ? v[i] : v[i + 4], 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool high = (lane & 8) != 0;
    two[i] = (high ? four[i + 2] : four[i]) + __shfl_xor_sync(0xffffffffu, high ? four[i] : four[i + 2], 8);
  }
  const bool high = (lane & 4) != 0;
  float one = (high ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, high ? two[0] : two[1], 4);
  one += __shfl_xor_sync(0xffffffffu, one, 2);
  one += __shfl_xor_sync(0xffffffffu, one, 1);
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) total += __shfl_sync(0xffffffffu, one, i * 4);
  return total;
}

// A warp a sequence, where it can hold one: nothing passes between warps but the vectors. The sums are those of stage_norm, whose thread 32 w + lane
// of warp w adds up quads that this lane has too.
constexpr u32 kNormQuads = kHidden / 128;  // of a lane
constexpr bool kNormByWarp = kBatch > 1 && kConsumerRegisters > 0 && kConsumerWarps == 8 && kHidden % 128 == 0 && kNormQuads <= 16 && !kNormByPairs;
__device__ __forceinline__ bool stage_norms_by_warp(const Block& block, const Params& p, const TaskDesc& task, const Vectors& vectors, u32 index) {
  constexpr u32 kQuads = kNormQuads > 0 && kNormQuads <= 16 ? kNormQuads : 1;
  const u32 warp = thread_index() / 32, lane = thread_index() % 32;
  const bool mine = warp < kBatch;
  uint2 weight[kQuads];
#pragma unroll
  for (u32 k = 0; k < kQuads; ++k) weight[k] = __ldg(reinterpret_cast<const uint2*>(p.vectors + task.norm) + lane + 32 * k);
  if (!wait_dependencies(block, p, task, index)) return false;
  if (!mine) return true;
  const u8* input = p.activations + task.input + warp * slice_bytes<kF32>(kHidden) + lane * 16;
  float4 value[kQuads];
#pragma unroll
  for (u32 k = 0; k < kQuads; ++k) {
    const uint4 v = load_l2_16(input + k * 512);
    value[k] = make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
  }
  float squares[8];
#pragma unroll
  for (u32 w = 0; w < 8; ++w) {
    squares[w] = 0.0f;
#pragma unroll
    for (u32 k = w; k < kQuads; k += kConsumerWarps) squares[w] = add_squares(squares[w], value[k]);
  }
  const float scale = rsqrtf(sum_of_warp_sums(squares, lane) / static_cast<float>(kHidden) + kEps);
#pragma unroll
  for (u32 k = 0; k < kQuads; ++k) {
    float4 w;
    unpack_pair<kWeightType>(weight[k].x, w.x, w.y);
    unpack_pair<kWeightType>(weight[k].y, w.z, w.w);
    const float4 v = value[k];
    put4(vectors.of(warp), (lane + 32 * k) * 4, v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
  }
  return true;
}

// Each warp its own columns of all sequences, as products take them: only the sums of squares pass between warps, and nothing is staged. The residual
// lies in the order in which a warp's lanes load it, 128 bytes a sequence at once (base.cuh, residual_order).
template <class Vector>
__device__ __forceinline__ bool stage_norms_direct(const Block& block, const Params& p, const TaskDesc& task, u32 index, Vector& first,
                                                   Vector& second) {
  constexpr u32 kParts = kPairGroups ? 2 : 1, kColumns = 256 / 64;
  static_assert(!kNormDirect || (kNormByPairs && kParts * kGroupBlocks == kColumns), "a segment a warp");
  const u32 warp = thread_index() / 32, lane = thread_index() % 32, t = lane % 4, half = lane / 4 % 2, seq = lane / 8;
  // Pairs m of this lane's 16 columns of block j, two bf16 each.
  u32 weight[kColumns][4];
#pragma unroll
  for (u32 j = 0; j < kColumns; ++j) {
#pragma unroll
    for (u32 m = 0; m < 4; ++m)
      weight[j][m] = __ldg(reinterpret_cast<const u32*>(p.vectors + task.norm) + warp * 128 + j * 32 + t * 8 + m * 2 + half);
  }
  constexpr u32 kSlice = slice_bytes<kF32>(kHidden);
  const u8* input = keep(p.activations + task.input + seq * kSlice + warp * 1024 + lane % 8 * 16);
  const bool stays = wait_dependencies(block, p, task, index);
  float4 value[kSets][kColumns][2];
#pragma unroll
  for (u32 set = 0; set < kSets; ++set) {
#pragma unroll
    for (u32 j = 0; j < kColumns; ++j) {
#pragma unroll
      for (u32 k = 0; k < 2; ++k) {
        const u8* from = input + set * 4 * kSlice + j * 256 + k * 128;
        const uint4 v = set * 4 + 4 <= kBatch ? load_l2_16(from) : load_l2_16_if(from, set * 4 + seq < kBatch);
        value[set][j][k] = make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
      }
    }
  }
  if (!stays) return false;
#pragma unroll
  for (u32 set = 0; set < kSets; ++set) {
    const float4(&v)[kColumns][2] = value[set];
    float of_m[4];  // pair m is half of quad m / 2
#pragma unroll
    for (u32 m = 0; m < 4; ++m) {
      const auto squares = [&](u32 j) {
        return m % 2 == 0 ? pair_squares(v[j][m / 2].x, v[j][m / 2].y) : pair_squares(v[j][m / 2].z, v[j][m / 2].w);
      };
      of_m[m] = (squares(0) + squares(2)) + (squares(1) + squares(3));
    }
    float sum = (of_m[0] + of_m[1]) + (of_m[2] + of_m[3]);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    sum += __shfl_xor_sync(0xffffffffu, sum, 4);
    if (lane % 8 == 0 && set * 4 + seq < kBatch) block.scratch(set * 4 + seq)[warp] = sum;
  }
  consumer_barrier();
#pragma unroll
  for (u32 set = 0; set < kSets; ++set) {
    const u32 own = set * 4 + seq < kBatch ? set * 4 + seq : 0;
    const float4 low = *reinterpret_cast<const float4*>(block.scratch(own)), high = *reinterpret_cast<const float4*>(block.scratch(own) + 4);
    const float parts[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    float total = 0.0f;
#pragma unroll
    for (u32 w = 0; w < 8; ++w) total += parts[w];
    const float scale = rsqrtf(total / static_cast<float>(kHidden) + kEps);
#pragma unroll
    for (u32 j = 0; j < kColumns; ++j) {
      const auto pair = [&](u32 m) {
        const float4 v = value[set][j][m / 2];
        float a, b;
        unpack_pair<kWeightType>(weight[j][m], a, b);
        return pack_pair<kWeightType>((m % 2 == 0 ? v.x : v.z) * scale * a, (m % 2 == 0 ? v.y : v.w) * scale * b);
      };
      Vector& to = kParts == 2 && j >= kGroupBlocks ? second : first;
      to.x[set * kGroupBlocks + j % kGroupBlocks] = make_uint4(pair(0), pair(1), pair(2), pair(3));
    }
  }
  return true;
}

__device__ __forceinline__ bool stage_norms(const Block& block, const Params& p, const TaskDesc& task, const Vectors& vectors, u32 index) {
  constexpr u32 kQuads = kHidden / 4, kEach = (kQuads + kConsumers - 1) / kConsumers;
  constexpr u32 kSeqs = less(kBatch, at_least_one((kFlagged ? kHeldPieces / 2 : kHeldPieces) / kEach));
  constexpr bool kHoldWeight = kEach <= 4;
  const u8* norm = p.vectors + task.norm;
  const u8* input = p.activations + task.input;
  const u32 thread = thread_index();
  float4 weight[kHoldWeight ? kEach : 1];
  if constexpr (kHoldWeight) {
#pragma unroll
    for (u32 e = 0; e < kEach; ++e) {
      const u32 quad = norm_quad(thread, e);
      weight[e] = quad < kQuads ? vector4(norm, quad * 4) : make_float4(0, 0, 0, 0);
    }
  }
  if (!wait_dependencies(block, p, task, index, wait_kind(kBatch * kHidden))) return false;
#pragma unroll 1
  for (u32 base = 0; base < kBatch; base += kSeqs) {
    const auto wanted = [&](int i) { return base + i / kEach < kBatch && norm_quad(thread, i % kEach) < kQuads; };
    const auto from = [&](int i) {
      return input + (base + i / kEach) * slice_bytes<kF32>(kHidden) + norm_quad(thread, i % kEach) * (kFlagged ? 32 : 16);
    };
    uint4 value[kSeqs * kEach];
    if constexpr (kFlagged) {
      Packets packets[kSeqs * kEach];
      load_packets(block, p, index, tag_base(p) + task.input_tag, packets, from, wanted);
#pragma unroll
      for (u32 i = 0; i < kSeqs * kEach; ++i) value[i] = packets[i].words();
    } else {
#pragma unroll
      for (u32 i = 0; i < kSeqs * kEach; ++i) value[i] = load_l2_16_if(from(i), wanted(i));
    }
    const auto quad_of = [&](u32 i) {
      return make_float4(__uint_as_float(value[i].x), __uint_as_float(value[i].y), __uint_as_float(value[i].z), __uint_as_float(value[i].w));
    };
#pragma unroll
    for (u32 s = 0; s < kSeqs; ++s) {
      float squares = 0.0f;
      if constexpr (kNormByPairs) {
        squares = warp_squares(quad_of(s * kEach), quad_of(s * kEach + kEach - 1));
      } else {
#pragma unroll
        for (u32 e = 0; e < kEach; ++e)
          if (thread + e * kConsumers < kQuads) squares = add_squares(squares, quad_of(s * kEach + e));
        squares = warp_sum(squares);
      }
      if (thread % 32 == 0 && base + s < kBatch) block.scratch(base + s)[thread / 32] = squares;
    }
    consumer_barrier();
#pragma unroll
    for (u32 s = 0; s < kSeqs; ++s) {
      if (base + s >= kBatch) break;
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < kConsumerWarps; ++w) total += block.scratch(base + s)[w];
      const float scale = rsqrtf(total / static_cast<float>(kHidden) + kEps);
#pragma unroll
      for (u32 e = 0; e < kEach; ++e) {
        const u32 quad = norm_quad(thread, e);
        if (quad >= kQuads) break;
        const float4 v = quad_of(s * kEach + e);
        const float4 w = kHoldWeight ? weight[kHoldWeight ? e : 0] : vector4(norm, quad * 4);
        put4(vectors.of(base + s), quad * 4, v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
      }
    }
  }
  return true;
}

__device__ __forceinline__ void stage_copies(const Block& block, const Params& p, const TaskDesc& task, const Shape& shape, const Vectors& vectors,
                                             u32 index) {
  constexpr u32 kFlight = kFlagged ? kHeldPieces / 2 : kHeldPieces;
  const u8* input = p.activations + task.input;
  const u32 columns = shape.columns, pieces = (columns + kCopyPiece - 1) / kCopyPiece, slice = slice_bytes<kActType>(columns);
  // This thread's pieces, through all sequences.
  u32 seq = 0, at = thread_index();
  const auto settle = [&] {
    while (at >= pieces && seq < kBatch) {
      at -= pieces;
      ++seq;
    }
  };
  settle();
#pragma unroll 1
  while (seq < kBatch) {
    u32 seqs[kFlight], places[kFlight];
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) {
      seqs[j] = seq;
      places[j] = at;
      at += kConsumers;
      settle();
    }
    uint4 v[kFlight];
    const auto wanted = [&](int j) { return seqs[j] < kBatch; };
    const auto from = [&](int j) { return input + seqs[j] * slice + places[j] * (kFlagged ? 32 : 16); };
    if constexpr (kFlagged) {
      Packets packets[kFlight];
      load_packets(block, p, index, tag_base(p) + task.input_tag, packets, from, wanted);
#pragma unroll
      for (u32 j = 0; j < kFlight; ++j) v[j] = packets[j].words();
    } else {
#pragma unroll
      for (u32 j = 0; j < kFlight; ++j) v[j] = load_l2_16_if(from(j), wanted(j));
    }
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j)
      if (wanted(j)) put_piece(vectors.of(seqs[j]), places[j], columns, v[j]);
  }
}

__device__ __forceinline__ void stage_combines(const Block& block, const Params& p, const TaskDesc& task, const Vectors& vectors, u32 index) {
  constexpr u32 kOfOne = kQRows / kPlace, kEach = (kOfOne + kConsumers - 1) / kConsumers;  // of a sequence, a thread's part of it
  constexpr u32 kPlaces = kFlagged || kConsumerWarps > 8 ? 2 : 32 / kPlace;                // by registers
  constexpr u32 kSeqs = less(kBatch, at_least_one(kPlaces / kEach));
  const u32 thread = thread_index();
#pragma unroll 1
  for (u32 base = 0; base < kBatch; base += kSeqs) {
#pragma unroll 1
    for (u32 part = 0; part < kEach; part += kPlaces) {  // more than one only for long vectors
      constexpr int kNow = static_cast<int>(less(kPlaces, kEach) * kSeqs);
      const auto seq_of = [&](int i) { return base + i / less(kPlaces, kEach); };
      const auto place_of = [&](int i) { return thread + (part + i % less(kPlaces, kEach)) * kConsumers; };
      PartialPlace places[kNow];
#pragma unroll
      for (int i = 0; i < kNow; ++i) places[i].find(p, task, seq_of(i), place_of(i));
      const auto splits = [&](int i) { return seq_of(i) < kBatch && place_of(i) < kOfOne ? active_splits(position_of(p, seq_of(i))) : 0; };
      combine_places<kNow, 1>(block, p, task, index, places, splits,
                              [&](int i, const Elements& v) { put_place(vectors.of(seq_of(i)), place_of(i), v); });
    }
  }
}

// The longest that attention's partials of a batch are, in words.
__device__ __forceinline__ u32 partial_words(const Params& p) {
  u32 splits = 0;
#pragma unroll
  for (u32 s = 0; s < kBatch; ++s) splits += active_splits(position_of(p, s));
  return splits * kHeads * kPartialWords;
}

// Whether warps load what they need of the task's vectors themselves.
__device__ __forceinline__ bool takes_directly(u32 matrix) { return (kDownSegs > 0 && matrix == kDown) || (kOSegs > 0 && matrix == kO); }

// False: the block leaves.
__device__ __forceinline__ bool stage(const Block& block, const Params& p, const TaskDesc& task, const Shape& shape, const Vectors& vectors,
                                      u32 index) {
  // Whether the block leaves is looked at when the loads are on their way, or done; what they bring is then of no use, and nobody uses it.
  bool stays = true;
  if constexpr (kConsumerRegisters > 0) {
    if (takes_directly(task.matrix)) return wait_dependencies(block, p, task, index);
  }
  if ((task.fused & kFusedNorm) != 0) {
    if constexpr (kNormDirect) {
      return false;  // gemv() calls stage_norms_direct
    } else if constexpr (kNormByWarp) {
      if (!stage_norms_by_warp(block, p, task, vectors, index)) return false;
    } else if constexpr (kBatch > 1) {
      if (!stage_norms(block, p, task, vectors, index)) return false;
    } else {
      if (!stage_norm(block, p, task, index)) return false;
    }
  } else if (kSplits > 1 && !kMergesDirect && (task.fused & kFusedCombine) != 0) {
    if constexpr (kBatch > 1) {
      stays = wait_dependencies(block, p, task, index, wait_kind(partial_words(p)));
      stage_combines(block, p, task, vectors, index);
    } else {
      Combine turns;
      turns.find(p, task, 0);
      stays = wait_dependencies(block, p, task, index, wait_kind(partial_words(p)));
      stage_combine(block, p, task, index, turns);
    }
  } else {
    const u8* input = keep(p.activations + task.input);
    const u32 thread = keep(thread_index()), columns = keep(shape.columns);
    stays = wait_dependencies(block, p, task, index, wait_kind(kBatch * columns / 2));
    if constexpr (kBatch > 1) {
      stage_copies(block, p, task, shape, vectors, index);
    } else if constexpr (kLimbsDirect) {
      stage_copy_limbs(block, p, task, input, thread, columns, index);
    } else {
      stage_copy(block, p, task, input, thread, columns, index);
    }
  }
  if (!stays) return false;
#pragma unroll
  for (u32 s = 0; s < kBatch; ++s) zero_padding(vectors.of(s), shape);
  consumer_barrier();
  if constexpr (kInt8 && !kLimbsDirect) {
    to_fixed_point(block, shape);
    consumer_barrier();
  }
  return true;
}

}  // namespace amk_vm
