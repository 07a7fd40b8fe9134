// The plain in-class kernel: one warp computes 16×8 outputs straight from global memory, in ascending k16 steps. Any stride, any
// alignment, any layout. It is slow, short, and what the whole matrix is compared with.
//
// Compiled with: DG_X_KMAJOR, DG_Y_KMAJOR (neighbours in k are neighbours in memory), DG_OUT_FP32, DG_CHUNK (k per chunk; 0 = one chain),
// DG_RESUMED (1: the chain starts from total_in).
#include "types.cuh"

struct PlainParams {
  const u16* x;
  const u16* y;
  void* out;
  const float* total_in;  // chunked: running total to start from, or null; resumed: the chain's accumulators
  i64 m, n, k;
  i64 stride_x, stride_y, stride_out;  // elements
};

__device__ __forceinline__ u32 element(const u16* base, i64 stride, bool k_major, i64 line, i64 lines, i64 k, i64 k_end) {
  if (line >= lines || k >= k_end) return 0;
  return k_major ? base[line * stride + k] : base[k * stride + line];
}

__device__ __forceinline__ u32 pair(const u16* base, i64 stride, bool k_major, i64 line, i64 lines, i64 k, i64 k_end) {
  return element(base, stride, k_major, line, lines, k, k_end) | element(base, stride, k_major, line, lines, k + 1, k_end) << 16;
}

__device__ __forceinline__ void store(const PlainParams& p, i64 row, i64 col, float value) {
  if (row >= p.m || col >= p.n) return;
#if DG_OUT_FP32
  static_cast<float*>(p.out)[row * p.stride_out + col] = value;
#else
  static_cast<u16*>(p.out)[row * p.stride_out + col] = round_bf16(value);
#endif
}

extern "C" __global__ void __launch_bounds__(256) det_gemm_plain(const PlainParams p) {
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const i64 tiles_n = (p.n + 7) / 8, tiles = (p.m + 15) / 16 * tiles_n;
  for (i64 tile = static_cast<i64>(blockIdx.x) * 8 + threadIdx.x / 32; tile < tiles; tile += static_cast<i64>(gridDim.x) * 8) {
    const i64 row = tile / tiles_n * 16 + group, col = tile % tiles_n * 8;
    float total[4] = {0, 0, 0, 0};
#if DG_CHUNK || DG_RESUMED
    if (p.total_in != nullptr) {
      for (int i = 0; i < 4; ++i) {
        const i64 r = row + (i / 2) * 8, c = col + quad * 2 + i % 2;
        if (r < p.m && c < p.n) total[i] = p.total_in[r * p.n + c];
      }
    }
#endif
    const i64 chunk = DG_CHUNK ? DG_CHUNK : p.k;
    for (i64 begin = 0; begin < p.k; begin += chunk) {
      const i64 end = begin + chunk < p.k ? begin + chunk : p.k;
      float d[4] = {0, 0, 0, 0};
      if (DG_RESUMED)
        for (int i = 0; i < 4; ++i) d[i] = total[i];
      for (i64 k = begin; k < end; k += 16) {
        u32 a[4], b[2];
        for (int i = 0; i < 4; ++i) a[i] = pair(p.x, p.stride_x, DG_X_KMAJOR, row + (i % 2) * 8, p.m, k + quad * 2 + (i / 2) * 8, end);
        for (int i = 0; i < 2; ++i) b[i] = pair(p.y, p.stride_y, DG_Y_KMAJOR, col + group, p.n, k + quad * 2 + i * 8, end);
        mma_k16(d, a, b);
      }
#if DG_CHUNK
      for (int i = 0; i < 4; ++i) total[i] += d[i];
#else
      for (int i = 0; i < 4; ++i) total[i] = d[i];
#endif
    }
    store(p, row, col + quad * 2, total[0]);
    store(p, row, col + quad * 2 + 1, total[1]);
    store(p, row + 8, col + quad * 2, total[2]);
    store(p, row + 8, col + quad * 2 + 1, total[3]);
  }
}
