// Random bf16 for benchmarks and large GPU tests: element i depends on (seed, i) alone. Normal values by Box–Muller of splitmix64 words.
#include "types.cuh"

__device__ __forceinline__ u64 mix(u64 z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// `spread` > 0 multiplies by 2^e, e uniform in [-spread, spread].
extern "C" __global__ void det_gemm_fill(u16* out, i64 count, u64 seed, int spread) {
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += static_cast<i64>(gridDim.x) * blockDim.x) {
    const u64 word = mix(seed ^ mix(static_cast<u64>(i)));
    const float u = (static_cast<u32>(word >> 40) + 0.5f) * (1.0f / 16777216.0f), v = static_cast<u32>(word & 0xFFFFFFu) * (1.0f / 16777216.0f);
    float value = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
    if (spread > 0) value = ldexpf(value, static_cast<int>((word >> 24) % static_cast<u64>(2 * spread + 1)) - spread);
    out[i] = round_bf16(value);
  }
}

// Counts the positions where two buffers differ, as raw 16-bit words (two a fp32 value), and keeps the first.
extern "C" __global__ void det_gemm_compare(const u16* a, const u16* b, i64 count, u64* mismatches, u64* first) {
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += static_cast<i64>(gridDim.x) * blockDim.x) {
    if (a[i] == b[i]) continue;
    atomicAdd(mismatches, 1ull);
    atomicMin(first, static_cast<u64>(i));
  }
}
