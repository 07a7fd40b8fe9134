// Single k16 steps with a given accumulator, for comparing the hardware's arithmetic with the CPU's definition, bit for bit.
// A unit is a 64×16, b 8×16 (both k contiguous), c and d 64×8. One block of 128 threads a unit.
// Compiled with DG_PROBE_WGMMA: 0 = mma.sync m16n8k16 (any architecture), 1 = wgmma m64n8k16 adding to c, 2 = wgmma that ignores c.
#define DG_WGMMA_N 8
#define DG_WGMMA_REGS 4
#define DG_WGMMA_REGS_PLUS_1 5
#define DG_WGMMA_REGS_PLUS_2 6
#define DG_WGMMA_REGS_PLUS_3 7
#define DG_WGMMA_REGS_PLUS_4 8
#if DG_PROBE_WGMMA
#include "wgmma.cuh"
#else
#include "types.cuh"
#endif

extern "C" __global__ void __launch_bounds__(128) det_gemm_step_probe(const u16* a, const u16* b, const float* c, float* d) {
  a += static_cast<i64>(blockIdx.x) * 64 * 16;
  b += static_cast<i64>(blockIdx.x) * 8 * 16;
  c += static_cast<i64>(blockIdx.x) * 64 * 8;
  d += static_cast<i64>(blockIdx.x) * 64 * 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const int row = warp * 16 + group, col = quad * 2;
  float acc[4] = {c[row * 8 + col], c[row * 8 + col + 1], c[(row + 8) * 8 + col], c[(row + 8) * 8 + col + 1]};
#if DG_PROBE_WGMMA
  // Without swizzle, 8×8 core matrices of 128 bytes: matrix (row group, k half) at (group · 2 + half) · 128.
  __shared__ __align__(128) u16 shared_a[64 * 16];
  __shared__ __align__(128) u16 shared_b[8 * 16];
  const auto core = [](int line, int k) { return (line / 8 * 2 + k / 8) * 64 + line % 8 * 8 + k % 8; };
  for (int i = threadIdx.x; i < 64 * 16; i += 128) shared_a[core(i / 16, i % 16)] = a[i];
  if (threadIdx.x < 128) shared_b[core(threadIdx.x / 16, threadIdx.x % 16)] = b[threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const auto matrix = [](const u16* at) {  // k halves 128 bytes apart, row groups 256; no swizzle
    return static_cast<u64>((smem_address(at) & 0x3FFFFu) >> 4) | 128ull / 16 << 16 | 256ull / 16 << 32;
  };
  wgmma_fence();
  wgmma_k16<0, 0>(acc, matrix(shared_a), matrix(shared_b), DG_PROBE_WGMMA == 1);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(acc);
#else
  const auto pair = [](const u16* line, int k) { return line[k] | static_cast<u32>(line[k + 1]) << 16; };
  const u32 x[4] = {pair(a + row * 16, quad * 2), pair(a + (row + 8) * 16, quad * 2), pair(a + row * 16, quad * 2 + 8),
                    pair(a + (row + 8) * 16, quad * 2 + 8)};
  const u32 y[2] = {pair(b + group * 16, quad * 2), pair(b + group * 16, quad * 2 + 8)};
  mma_k16(acc, x, y);
#endif
  d[row * 8 + col] = acc[0];
  d[row * 8 + col + 1] = acc[1];
  d[(row + 8) * 8 + col] = acc[2];
  d[(row + 8) * 8 + col + 1] = acc[3];
}
