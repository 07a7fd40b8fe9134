// int8 weights meet the vector as integers: 23-bit fixed point, sign included, with one power of two for the whole vector, so that the largest
// element uses all bits; bf16 elements down to 2^-14 of the largest are exact, smaller ones are off by at most 2^-22 of it. Three signed bytes an
// element (limbs), least significant first: an integer matrix instruction takes one each.
//
// Of every 64 columns, 192 bytes: [limb][half][t][piece][4 columns], columns 16t + 8 piece + 4 half and on. segment_int8.cuh says who reads what.
#pragma once

#include "block.cuh"

namespace amk_vm {

constexpr u32 kLimbs = 3;
constexpr u32 kLimbBlockBytes = 64 * kLimbs;
constexpr u32 kVectorScaleAt = 31;  // word of `scratch`: what an integer of the vector is worth. At most 31 consumer warps use the others.
static_assert(kConsumerWarps <= 31, "a word a warp, and one");

// Limbs are written as the vector is staged where every thread can hold its part until the largest element is known; else the vector is staged in its
// own type and turned into limbs, which lie behind it.
constexpr u32 kLimbsAt = AMK_LIMBS_AT;
constexpr bool kLimbsDirect = kInt8 && kLimbsAt == 0;

struct Power {
  float up, down;  // largest * up is in [2^21, 2^22), up to clamping; down = 1 / up, or not a number if the largest is not finite
};
__device__ __forceinline__ Power power_of(u32 largest) {  // bits of a magnitude in fp32
  const u32 exponent = largest >> 23, bounded = exponent < 24 ? 24 : exponent;
  return {__uint_as_float((275 - bounded) << 23), exponent == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float((bounded - 21) << 23)};
}

// Of all consumer threads, two halves in one: `largest` of each warp to `out`; after a barrier the largest of all.
__device__ __forceinline__ void offer_largest(u32* out, u32 largest) {
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (thread_index() % 32 == 0) out[thread_index() / 32] = largest;
}
__device__ __forceinline__ u32 largest_offered(const u32* offers) {
  u32 largest = 0;
#pragma unroll
  for (int w = 0; w < kConsumerWarps; ++w) largest = largest > offers[w] ? largest : offers[w];
  return largest;
}
// Between a task's wait and its first products nobody uses the buffers of sums.
__device__ __forceinline__ u32* offers(const Block& block) { return reinterpret_cast<u32*>(block.partials(0)); }

__device__ __forceinline__ u32 larger(u32 a, float v) {  // magnitudes order as unsigned numbers, what is not finite above all
  const u32 b = __float_as_uint(v) & 0x7fffffffu;
  return a > b ? a : b;
}
__device__ __forceinline__ u32 larger(u32 a, float4 v) { return larger(larger(larger(larger(a, v.x), v.y), v.z), v.w); }
// Eight elements of the weights' 2-byte type; the pairs' largest stay apart.
__device__ __forceinline__ u32 larger_halves(u32 a, uint4 v) {
  constexpr u32 kMagnitude = 0x7fff7fffu;
  return __vmaxu2(__vmaxu2(a, v.x & kMagnitude), __vmaxu2(__vmaxu2(v.y & kMagnitude, v.z & kMagnitude), v.w & kMagnitude));
}
__device__ __forceinline__ u32 as_float_bits(u32 halves) {
  float low, high;
  unpack_pair<kWeightType>(halves, low, high);
  return larger(__float_as_uint(low), high);
}

// Four neighbouring elements; `element` is a multiple of 4. Adding 1.5 * 2^23 leaves the rounded integer in the low bits; adding 0x808080 and
// flipping each byte's top bit makes the bytes signed digits.
__device__ __forceinline__ void put4_limbs(u32 limbs, u32 element, float4 v, float up) {
  constexpr float kRounder = 12582912.0f;
  constexpr u32 kBias = 0x00808080u - 0x4B400000u;
  const u32 x = __float_as_uint(fmaf(v.x, up, kRounder)) + kBias, y = __float_as_uint(fmaf(v.y, up, kRounder)) + kBias,
            z = __float_as_uint(fmaf(v.z, up, kRounder)) + kBias, w = __float_as_uint(fmaf(v.w, up, kRounder)) + kBias;
  const u32 a = __byte_perm(x, y, 0x5140), b = __byte_perm(z, w, 0x5140);  // bytes 0 and 1 of both
  const u32 c = __byte_perm(x, y, 0x0062), d = __byte_perm(z, w, 0x0062);  // byte 2
  const u32 at = limbs + element / 64 * kLimbBlockBytes + element % 8 / 4 * 32 + element % 64 / 8 * 4;
  store_shared4(at, __byte_perm(a, b, 0x5410) ^ 0x80808080u);
  store_shared4(at + 64, __byte_perm(a, b, 0x7632) ^ 0x80808080u);
  store_shared4(at + 128, __byte_perm(c, d, 0x5410) ^ 0x80808080u);
}
// Eight, of the weights' type.
__device__ __forceinline__ void put8_limbs(u32 limbs, u32 element, uint4 v, float up) {
  float4 low, high;
  unpack_pair<kWeightType>(v.x, low.x, low.y);
  unpack_pair<kWeightType>(v.y, low.z, low.w);
  unpack_pair<kWeightType>(v.z, high.x, high.y);
  unpack_pair<kWeightType>(v.w, high.z, high.w);
  put4_limbs(limbs, element, low, up);
  put4_limbs(limbs, element + 4, high, up);
}

// All consumer threads, the vector staged and visible in its own type. The limbs are there after a barrier.
__device__ __forceinline__ void to_fixed_point(const Block& block, const Shape& shape) {
  const u32 thread = thread_index(), staged = shared_address(block.act()), pieces = shape.padded / 8;
  u32 largest = 0;
  for (u32 piece = thread; piece < pieces; piece += kConsumers) largest = larger_halves(largest, load_shared16(staged + piece * 16));
  offer_largest(offers(block), as_float_bits(largest));
  consumer_barrier();
  const Power power = power_of(largest_offered(offers(block)));
  if (thread == 0) block.scratch()[kVectorScaleAt] = power.down;
  for (u32 piece = thread; piece < pieces; piece += kConsumers)
    put8_limbs(staged + kLimbsAt, piece * 8, load_shared16(staged + piece * 16), power.up);
}

}  // namespace amk_vm
