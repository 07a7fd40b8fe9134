// A GEMV's input vectors of several sequences, one behind the other in shared memory: each by the very sums that stage.cuh makes for one, the loads
// of several sequences on their way at once. And stage(), which chooses.
#pragma once

#include "stage.cuh"

namespace amk_vm {

constexpr u32 kHeldPieces = kConsumerWarps > 8 ? 8 : 16;  // of 16 bytes, by registers
__device__ constexpr u32 at_least_one(u32 n) { return n > 0 ? n : 1; }
__device__ constexpr u32 less(u32 a, u32 b) { return a < b ? a : b; }

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
      const u32 quad = thread + e * kConsumers;
      weight[e] = quad < kQuads ? vector4(norm, quad * 4) : make_float4(0, 0, 0, 0);
    }
  }
  if (!wait_dependencies(block, p, task, index, wait_kind(kBatch * kHidden))) return false;
#pragma unroll 1
  for (u32 base = 0; base < kBatch; base += kSeqs) {
    const auto wanted = [&](int i) { return base + i / kEach < kBatch && thread + i % kEach * kConsumers < kQuads; };
    const auto from = [&](int i) {
      return input + (base + i / kEach) * slice_bytes<kF32>(kHidden) + (thread + i % kEach * kConsumers) * (kFlagged ? 32 : 16);
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
#pragma unroll
      for (u32 e = 0; e < kEach; ++e)
        if (thread + e * kConsumers < kQuads) squares = add_squares(squares, quad_of(s * kEach + e));
      squares = warp_sum(squares);
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
        const u32 quad = thread + e * kConsumers;
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

// False: the block leaves.
__device__ __forceinline__ bool stage(const Block& block, const Params& p, const TaskDesc& task, const Shape& shape, const Vectors& vectors,
                                      u32 index) {
  // Whether the block leaves is looked at when the loads are on their way, or done; what they bring is then of no use, and nobody uses it.
  bool stays = true;
  if ((task.fused & kFusedNorm) != 0) {
    if constexpr (kBatch > 1) {
      if (!stage_norms(block, p, task, vectors, index)) return false;
    } else {
      if (!stage_norm(block, p, task, index)) return false;
    }
  } else if (kSplits > 1 && (task.fused & kFusedCombine) != 0) {
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
