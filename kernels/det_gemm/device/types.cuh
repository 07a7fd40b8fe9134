// Integer names and bf16 packing. No standard headers: NVRTC compiles these files without a toolkit's include folder.
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

static_assert(sizeof(u64) == 8 && sizeof(u32) == 4 && sizeof(u16) == 2, "NVRTC's data model");

__device__ __forceinline__ u32 smem_address(const void* pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }

// Round to nearest even; `low` lands in the lower half. NaN becomes 0x7FFF.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ u16 round_bf16(float value) { return static_cast<u16>(pack_bf16(value, 0.0f)); }

// One k16 step of the chain: d += a · b, 16×8 outputs a warp (PTX ISA, mma.m16n8k16).
__device__ __forceinline__ void mma_k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
