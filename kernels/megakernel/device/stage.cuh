// A GEMV's input vector into shared memory, once per task and SM, in the weights' element type: as it is, normalised, or merged from the
// attention's partials. What does not depend on the wait is loaded before it.
#pragma once

#include "fixed_point.cuh"

namespace amk_vm {

// Matrix instructions want the pairs of every 16 elements in the order 0 2 4 6, 1 3 5 7 (segment.cuh).
constexpr bool kPairOrder = kMma && kPackedLayout && !kInt8;

// Four neighbouring floats to the staged vector (2-byte types: 8 bytes). element: a multiple of 4.
__device__ __forceinline__ void put4(u8* act, u32 element, float a, float b, float c, float d) {
  if constexpr (kWeightType == kF32) {
    *reinterpret_cast<float4*>(act + element * 4) = make_float4(a, b, c, d);
  } else if constexpr (kPairOrder) {
    u32* pairs = reinterpret_cast<u32*>(act + element / 16 * 32 + element % 16);  // two elements are a pair of 4 bytes, every other one goes on
    pairs[0] = pack_pair<kWeightType>(a, b);
    pairs[4] = pack_pair<kWeightType>(c, d);
  } else {
    *reinterpret_cast<uint2*>(act + element * 2) = make_uint2(pack_pair<kWeightType>(a, b), pack_pair<kWeightType>(c, d));
  }
}

// Columns that the padding adds are zero, so that whatever weights they meet count nothing.
__device__ __forceinline__ void zero_padding(u8* act, const Shape& shape) {
  if constexpr (kHidden % 64 != 0 || kQRows % 64 != 0 || kInter % 64 != 0) {
    static_assert(kHidden % 4 == 0 && kQRows % 4 == 0 && kInter % 4 == 0, "columns come in fours");
    for (u32 i = shape.columns + thread_index() * 4; i < shape.padded; i += kConsumers * 4) {
      if constexpr (kLimbsDirect) {
        put4_limbs(shared_address(act), i, make_float4(0, 0, 0, 0), 1.0f);
      } else {
        put4(act, i, 0, 0, 0, 0);
      }
    }
  }
}

constexpr u32 kShortVectorBytes = 8192;  // of packets: so few that every thread may look for its own from the start

// A vector of packets is looked for at once, or after the counters' hint.
__device__ __forceinline__ WaitKind wait_kind(u32 words) { return kFlagged && words * 8 <= kShortVectorBytes ? kWaitPackets : kWaitCounters; }

// In one function, so that every use adds up in the same order.
__device__ __forceinline__ float add_squares(float sum, float4 v) { return sum + (v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w); }

// The sum of squares of a norm is a tree whose order every kernel of a width keeps. Where eight warps have 256 columns each it is made of the sums of
// pairs, so that a warp may also have them as products take them (stage_batch.cuh, stage_norms_direct): quad 16 j + 4 t + m of a warp's 64 holds
// pairs (j, t, m) of two kinds, even and odd; of each kind added up by j, m and t, then both kinds, then the warps.
constexpr bool kNormByPairs = kHidden == 2048 && kConsumers == 256;
// Of a thread, the i-th of its quads.
__device__ __forceinline__ u32 norm_quad(u32 thread, u32 i) {
  if constexpr (kNormByPairs) return thread / 32 * 64 + i * 32 + thread % 32;
  return thread + i * kConsumers;
}
__device__ __forceinline__ float pair_squares(float a, float b) { return fmaf(b, b, a * a); }
// Of a warp's 64 quads, of which each lane has two.
__device__ __forceinline__ float warp_squares(float4 low, float4 high) {
  float even = pair_squares(low.x, low.y) + pair_squares(high.x, high.y), odd = pair_squares(low.z, low.w) + pair_squares(high.z, high.w);
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    const int d = i == 0 ? 16 : 1 << (i - 1);
    even += __shfl_xor_sync(0xffffffffu, even, d);
    odd += __shfl_xor_sync(0xffffffffu, odd, d);
  }
  return even + odd;
}

// RMSNorm of the fp32 residual. Each thread holds what it read until the sum over all is known.
__device__ __forceinline__ bool stage_norm(const Block& block, const Params& p, const TaskDesc& task, u32 index) {
  constexpr u32 kQuads = kHidden / 4, kEach = (kQuads + kConsumers - 1) / kConsumers;
  constexpr bool kHold = kEach <= 8;  // else both are read again: wide models in few threads
  constexpr u32 kHeld = kHold ? kEach : 1;
  const u8* norm = p.vectors + task.norm;
  const u8* input = keep(p.activations + task.input);
  const u32 thread = thread_index();
  float4 weight[kHeld], value[kHeld];
  if constexpr (kHold) {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      const u32 quad = norm_quad(thread, i);
      weight[i] = quad < kQuads ? vector4(norm, quad * 4) : make_float4(0, 0, 0, 0);
    }
  }
  const bool stays = wait_dependencies(block, p, task, index, wait_kind(kHidden));  // looked at when the loads are on their way
  const auto weight_of = [&](u32 i) { return kHold ? weight[kHold ? i : 0] : vector4(norm, norm_quad(thread, i) * 4); };
  const auto product = [](float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); };
  const auto as_floats = [](uint4 v) { return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)); };
  const auto read = [&](u32 quad) {
    if constexpr (kFlagged) {
      Packets one[1];
      load_packets(
          block, p, index, tag_base(p) + task.input_tag, one, [&](int) { return input + quad * 32; }, [](int) { return true; });
      return as_floats(one[0].words());
    } else {
      return as_floats(load_l2_16(input + quad * 16));
    }
  };
  float squares = 0.0f;
  u32 largest = 0;  // of the elements before the scale that all have in common
  if constexpr (kHold && kFlagged) {
    Packets packets[kHeld];
    const auto wanted = [&](int i) { return norm_quad(thread, i) < kQuads; };
    load_packets(
        block, p, index, tag_base(p) + task.input_tag, packets, [&](int i) { return input + norm_quad(thread, i) * 32; }, wanted);
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) value[i] = as_floats(packets[i].words());
  } else if constexpr (kHold) {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) value[i] = as_floats(load_l2_16_if(input + norm_quad(thread, i) * 16, norm_quad(thread, i) < kQuads));
  }
  if (!stays) return false;
#pragma unroll
  for (u32 i = 0; i < kEach; ++i) {
    const u32 quad = norm_quad(thread, i);
    if (quad >= kQuads) break;
    const float4 v = kHold ? value[kHold ? i : 0] : read(quad);
    if constexpr (!kNormByPairs) squares = add_squares(squares, v);
    if constexpr (kLimbsDirect) largest = larger(largest, product(v, weight_of(i)));
  }
  if constexpr (kLimbsDirect) offer_largest(offers(block), largest);
  if constexpr (kNormByPairs) {
    squares = warp_squares(value[0], value[kHeld - 1]);
  } else {
    squares = warp_sum(squares);
  }
  if (thread % 32 == 0) block.scratch()[thread / 32] = squares;
  consumer_barrier();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kConsumerWarps; ++w) total += block.scratch()[w];
  const float scale = rsqrtf(total / static_cast<float>(kHidden) + kEps);
  Power power{};
  if constexpr (kLimbsDirect) {
    power = power_of(largest_offered(offers(block)));
    if (thread == 0) block.scratch()[kVectorScaleAt] = scale * power.down;
  }
#pragma unroll
  for (u32 i = 0; i < kEach; ++i) {
    const u32 quad = norm_quad(thread, i);
    if (quad >= kQuads) break;
    const float4 v = kHold ? value[kHold ? i : 0] : read(quad);
    const float4 w = weight_of(i);
    if constexpr (kLimbsDirect) {
      put4_limbs(shared_address(block.act()), quad * 4, product(v, w), power.up);
    } else {
      put4(block.act(), quad * 4, v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
    }
  }
  return true;
}

constexpr bool kCopySame = kBytesOf<kActType> == 2 && kActType == kWeightType;
constexpr u32 kCopyPiece = kCopySame || kActType == kF32 ? 16 / kBytesOf<kActType> : 8;  // elements of 16 bytes

// Piece `at` of a vector of `columns`. The last may be half: what lies behind the vector must not meet the padding's zeros.
__device__ __forceinline__ void put_piece(u8* act, u32 at, u32 columns, uint4 v) {
  if constexpr (kCopySame) {
    if constexpr (kPairOrder) {
      u8* pairs = act + at / 2 * 32 + at % 2 * 8;
      if (at * 8 + 8 <= columns) {
        *reinterpret_cast<uint2*>(pairs) = make_uint2(v.x, v.z);
        *reinterpret_cast<uint2*>(pairs + 16) = make_uint2(v.y, v.w);
      } else {
        *reinterpret_cast<u32*>(pairs) = v.x;
        *reinterpret_cast<u32*>(pairs + 16) = v.y;
      }
    } else if (at * 8 + 8 <= columns) {
      *reinterpret_cast<uint4*>(act + at * 16) = v;
    } else {
      *reinterpret_cast<uint2*>(act + at * 16) = make_uint2(v.x, v.y);
    }
  } else if constexpr (kActType == kF32) {
    put4(act, at * 4, __uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
  } else {
    float e[8];
    unpack_pair<kActType>(v.x, e[0], e[1]);
    unpack_pair<kActType>(v.y, e[2], e[3]);
    unpack_pair<kActType>(v.z, e[4], e[5]);
    unpack_pair<kActType>(v.w, e[6], e[7]);
    put4(act, at * 8, e[0], e[1], e[2], e[3]);
    if (at * 8 + 8 <= columns) put4(act, at * 8 + 4, e[4], e[5], e[6], e[7]);
  }
}

// The vector as it lies in memory, in the activations' type. Four loads a thread are on their way before the first is stored.
__device__ __forceinline__ void stage_copy(const Block& block, const Params& p, const TaskDesc& task, const u8* input, u32 thread, u32 columns,
                                           u32 index) {
  constexpr u32 kFlight = 4;
  const u32 pieces = (columns + kCopyPiece - 1) / kCopyPiece;  // storages are padded to 128 bytes: the last piece may reach into the padding
#pragma unroll 1
  for (u32 first = thread; first < pieces; first += kConsumers * kFlight) {
    uint4 v[kFlight];
    if constexpr (kFlagged) {
      Packets packets[kFlight];
      const auto wanted = [&](int j) { return first + j * kConsumers < pieces; };
      load_packets(
          block, p, index, tag_base(p) + task.input_tag, packets, [&](int j) { return input + (first + j * kConsumers) * 32; }, wanted);
#pragma unroll
      for (u32 j = 0; j < kFlight; ++j) v[j] = packets[j].words();
    } else {
#pragma unroll
      for (u32 j = 0; j < kFlight; ++j) v[j] = load_l2_16_if(input + (first + j * kConsumers) * 16, first + j * kConsumers < pieces);
    }
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) {
      const u32 at = first + j * kConsumers;
      if (at >= pieces) break;
      put_piece(block.act(), at, columns, v[j]);
    }
  }
}

// The same as limbs: all of a thread's pieces are on their way before the first is looked at.
__device__ __forceinline__ void stage_copy_limbs(const Block& block, const Params& p, const TaskDesc& task, const u8* input, u32 thread, u32 columns,
                                                 u32 index) {
  constexpr u32 kWidest = kQRows > kInter ? (kQRows > kHidden ? kQRows : kHidden) : (kInter > kHidden ? kInter : kHidden);
  constexpr u32 kFlight = ((kWidest + 63) / 64 * 8 + kConsumers - 1) / kConsumers;
  const auto wanted = [&](u32 j) { return (thread + j * kConsumers) * 8 < columns; };
  uint4 v[kFlight];
  if constexpr (kFlagged) {
    Packets packets[kFlight];
    load_packets(
        block, p, index, tag_base(p) + task.input_tag, packets, [&](int j) { return input + (thread + j * kConsumers) * 32; }, wanted);
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) v[j] = packets[j].words();
  } else {
#pragma unroll
    for (u32 j = 0; j < kFlight; ++j) {
      v[j] = make_uint4(0, 0, 0, 0);
      if (j * kConsumers * 8 < columns) v[j] = load_l2_16_if(input + (thread + j * kConsumers) * 16, wanted(j));
    }
  }
  u32 largest = 0;
#pragma unroll
  for (u32 j = 0; j < kFlight; ++j) {
    // The last piece may be half: what lies behind the vector is none of it.
    if (kInter % 8 != 0 && (thread + j * kConsumers) * 8 + 4 == columns) v[j].z = v[j].w = 0;
    largest = larger_halves(largest, v[j]);
  }
  offer_largest(offers(block), as_float_bits(largest));
  consumer_barrier();
  const Power power = power_of(largest_offered(offers(block)));
  if (thread == 0) block.scratch()[kVectorScaleAt] = power.down;
#pragma unroll
  for (u32 j = 0; j < kFlight; ++j)
    if (wanted(j)) put8_limbs(shared_address(block.act()), (thread + j * kConsumers) * 8, v[j], power.up);
}

constexpr u32 kPartialRecord = kHeadDim + kPartialTail;  // words of one query head's partial: its place in memory, and all of it between warps
// In memory a partial's values are bf16 where activations are: half the bytes, which every multiprocessor fetches from every split. What they are
// merged to is rounded to bf16 next in any case. Where they lie: layout.cuh.
constexpr bool kHalfPartials = kActType == kBF16 && !kSlices;
constexpr u32 kPartialWords = kHalfPartials ? kHeadDim / 2 + kPartialTail : kPartialRecord;  // that are fetched of a record
using Partials = PartialPlaces<kHeads, kGqa, kHeadDim, kPartialTail, kHalfPartials, kHalfPartials && !kFlagged ? 2 : kPartialTail>;
constexpr u32 kPlace = kHalfPartials ? 8 : 4;  // elements of four words
static_assert(kHeadDim % kPlace == 0, "a record is whole places");

// Splits that have keys at this position: split s starts with block s.
__device__ __forceinline__ u32 active_splits(int position) {
  const u32 blocks = static_cast<u32>(position) / kKvBlock + 1;
  return blocks < kSplits ? blocks : kSplits;
}

// Whether every sequence has keys in the first split alone.
__device__ __forceinline__ bool one_split(const Params& p) {
  bool one = true;
#pragma unroll
  for (u32 s = 0; s < kBatch; ++s) one = one && position_of(p, s) < kKvBlock;
  return one;
}

// Neighbouring elements of a vector.
struct Elements {
  float e[kPlace];
  __device__ __forceinline__ float4 quad(u32 i) const { return make_float4(e[4 * i], e[4 * i + 1], e[4 * i + 2], e[4 * i + 3]); }
};

// Running merge of splits, in their order.
struct Merge {
  float top = -kInfinity, total = 0.0f;
  Elements sum = {};
  __device__ __forceinline__ void add(uint2 tail, uint4 v) {  // tail: the split's maximum and total
    const float split_top = __uint_as_float(tail.x);
    const float next = fmaxf(top, split_top);
    // A split without keys in the window has maximum -inf and weight 0.
    const float keep = top == -kInfinity ? 0.0f : fast_exp2(top - next), share = split_top == -kInfinity ? 0.0f : fast_exp2(split_top - next);
    // In halves a split's values are over its own total.
    const float of_total = share * __uint_as_float(tail.y), weight = kHalfPartials ? of_total : share;
    total = fmaf(total, keep, of_total);
    const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if constexpr (kHalfPartials) {
        sum.e[2 * i] = fmaf(sum.e[2 * i], keep, weight * bf16_low(words[i]));
        sum.e[2 * i + 1] = fmaf(sum.e[2 * i + 1], keep, weight * bf16_high(words[i]));
      } else {
        sum.e[i] = fmaf(sum.e[i], keep, weight * __uint_as_float(words[i]));
      }
    }
    top = next;
  }
  __device__ __forceinline__ Elements result() const {
    const float inverse = __fdividef(1.0f, total);
    Elements out;
#pragma unroll
    for (u32 i = 0; i < kPlace; ++i) out.e[i] = sum.e[i] * inverse;
    return out;
  }
};

constexpr u32 kPartialWord = kFlagged ? 8 : 4, kSplitBytes = kHeads * kPartialRecord * kPartialWord;  // from a record to the next split's

// Where the first split's record of a place's head has the place, and its tail.
struct PartialPlace {
  const u8 *values, *tail;
  __device__ __forceinline__ void find(const Params& p, const TaskDesc& task, u32 seq, u32 place) {
    const u8* records = p.activations + task.input + seq * slice_bytes<kF32>(kSplits * kHeads * kPartialRecord);
    const u32 head = place / (kHeadDim / kPlace);
    values = records + (Partials::values(head) + place % (kHeadDim / kPlace) * 4) * kPartialWord;
    tail = records + Partials::tail(head) * kPartialWord;
  }
};

// Places of the vectors, merged over the splits; the records of all of them and of `kFlight` splits are on their way at once: one trip to L2 where
// there are no more splits than that. `splits(i)` of place i have keys; 0: it is not there.
template <int Places, u32 kFlight, class Splits, class Put>
__device__ __forceinline__ void combine_places(const Block& block, const Params& p, const TaskDesc& task, u32 index,
                                               const PartialPlace (&places)[Places], Splits splits, Put put) {
  u32 most = 0;
#pragma unroll
  for (int i = 0; i < Places; ++i) most = most < splits(i) ? splits(i) : most;
  Merge merge[Places];
#pragma unroll 1
  for (u32 base = 0; base < most; base += kFlight) {
    const u32 at = base * kSplitBytes;
    // Record j: of place j / kFlight, split base + j % kFlight.
    const auto wanted = [&](int j) { return base + j % kFlight < splits(j / static_cast<int>(kFlight)); };
    const auto tail_at = [&](int j) { return places[j / static_cast<int>(kFlight)].tail + at + j % kFlight * kSplitBytes; };
    const auto values_at = [&](int j) { return places[j / static_cast<int>(kFlight)].values + at + j % kFlight * kSplitBytes; };
    constexpr int kRecords = Places * static_cast<int>(kFlight);
    uint2 tail[kRecords];  // maximum and total
    uint4 v[kRecords];
    if constexpr (kFlagged) {
      Packets packets[2 * kRecords];
      load_packets(
          block, p, index, tag_base(p) + task.input_tag, packets, [&](int k) { return k % 2 == 0 ? tail_at(k / 2) : values_at(k / 2); },
          [&](int k) { return wanted(k / 2); });
#pragma unroll
      for (int j = 0; j < kRecords; ++j) {
        tail[j] = make_uint2(packets[2 * j].words().x, packets[2 * j].words().y);
        v[j] = packets[2 * j + 1].words();
      }
    } else {
#pragma unroll
      for (int j = 0; j < kRecords; ++j) {
        tail[j] = load_l2_8_if(tail_at(j), wanted(j));
        v[j] = load_l2_16_if(values_at(j), wanted(j));
      }
    }
#pragma unroll
    for (int j = 0; j < kRecords; ++j)
      if (wanted(j)) merge[j / static_cast<int>(kFlight)].add(tail[j], v[j]);
  }
#pragma unroll
  for (int i = 0; i < Places; ++i)
    if (splits(i) > 0) put(i, merge[i].result());
}

// Places first, first + kConsumers, … of one sequence, up to `end`. Records of up to 8 / Places splits at once, by registers.
template <int Places, class Put>
__device__ __forceinline__ void combine_some(const Block& block, const Params& p, const TaskDesc& task, u32 index, u32 seq,
                                             const PartialPlace (&places)[Places], u32 first, u32 end, Put put) {
  constexpr u32 kFew = kFlagged || kConsumerWarps > 8 ? 2 : 4;  // by registers
  constexpr u32 kMost = kFlagged || kConsumerWarps > 8 ? kFew : 8 / Places, kMany = kSplits < kMost ? kSplits : kMost;
  const u32 active = active_splits(position_of(p, seq));
  const auto splits = [&](int i) { return first + i * kConsumers < end ? active : 0; };
  // Long contexts wake every split: fewer trips to L2, one behind the other, for the merge.
  if constexpr (kMany > kFew) {
    if (active > kFew) return combine_places<Places, kMany>(block, p, task, index, places, splits, put);
  }
  combine_places<Places, kFew>(block, p, task, index, places, splits, put);
}

// A sequence's vector of q rows, in turns of all threads. Where the first turn's records are is worked out before the task's wait.
template <int Each>
struct CombineTurns {
  static constexpr u32 kPlaces = kQRows / kPlace, kTurns = (kPlaces + kConsumers * Each - 1) / (kConsumers * Each);
  PartialPlace places[Each];
  u32 first;
  __device__ __forceinline__ void find(const Params& p, const TaskDesc& task, u32 turn) {
    first = thread_index() + turn * kConsumers * Each;
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      places[i].find(p, task, 0, first + i * kConsumers);
      places[i].values = keep(places[i].values);
      places[i].tail = keep(places[i].tail);
    }
  }
  template <class Put>
  __device__ __forceinline__ void combine(const Block& block, const Params& p, const TaskDesc& task, u32 index, Put put) {
    combine_some<Each>(block, p, task, index, 0, places, first, kPlaces, put);
  }
};
constexpr int kCombineEach = kQRows / kPlace > kConsumers && !kFlagged ? 2 : 1;  // by registers
using Combine = CombineTurns<kCombineEach>;

__device__ __forceinline__ void stage_combine_limbs(const Block& block, const Params& p, const TaskDesc& task, u32 index, Combine& turns) {
  constexpr int kHeld = Combine::kTurns * kCombineEach;
  Elements held[kHeld];
  u32 largest = 0;
#pragma unroll
  for (u32 turn = 0; turn < Combine::kTurns; ++turn) {
    if (turn > 0) turns.find(p, task, turn);
#pragma unroll
    for (int i = 0; i < kCombineEach; ++i) held[turn * kCombineEach + i] = {};
    turns.combine(block, p, task, index, [&](int i, const Elements& v) {
      held[turn * kCombineEach + i] = v;
#pragma unroll
      for (u32 q = 0; q < kPlace / 4; ++q) largest = larger(largest, v.quad(q));
    });
  }
  offer_largest(offers(block), largest);
  consumer_barrier();
  const Power power = power_of(largest_offered(offers(block)));
  const u32 thread = thread_index();
  if (thread == 0) block.scratch()[kVectorScaleAt] = power.down;
#pragma unroll
  for (u32 j = 0; j < kHeld; ++j) {
    const u32 place = thread + j * kConsumers;
#pragma unroll
    for (u32 q = 0; q < kPlace / 4; ++q)
      if (place < Combine::kPlaces) put4_limbs(shared_address(block.act()), place * kPlace + q * 4, held[j].quad(q), power.up);
  }
}

__device__ __forceinline__ void put_place(u8* act, u32 place, const Elements& v) {
#pragma unroll
  for (u32 q = 0; q < kPlace / 4; ++q) put4(act, place * kPlace + q * 4, v.e[q * 4], v.e[q * 4 + 1], v.e[q * 4 + 2], v.e[q * 4 + 3]);
}

__device__ __forceinline__ void stage_combine(const Block& block, const Params& p, const TaskDesc& task, u32 index, Combine& turns) {
  if constexpr (kLimbsDirect) return stage_combine_limbs(block, p, task, index, turns);
#pragma unroll 1
  for (u32 turn = 0;;) {
    turns.combine(block, p, task, index, [&](int i, const Elements& v) { put_place(block.act(), turns.first + i * kConsumers, v); });
    if (++turn == Combine::kTurns) break;
    turns.find(p, task, turn);
  }
}

}  // namespace amk_vm
