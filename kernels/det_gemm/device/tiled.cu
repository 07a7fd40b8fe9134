// Tiled GEMM on mma.sync m16n8k16 with a cp.async ring: sm_80 and newer, any stride, any base alignment, any layout. On Hopper it is in
// class and serves what TMA cannot (strides or bases off 16 bytes).
//
// Compiled with: DG_TILE_M, DG_TILE_N, DG_TILE_K (multiple of 16), DG_STAGES, DG_WARPS_M, DG_WARPS_N, DG_X_KMAJOR, DG_Y_KMAJOR, DG_OUT_FP32,
// DG_X_VECTORS, DG_Y_VECTORS (1: base and stride are multiples of 16 bytes), DG_CHUNK_BLOCKS (k tiles per chunk; 0 = one chain),
// DG_RESUMED (1: the chain starts from total_in).
#include "raster.cuh"
#include "types.cuh"

struct TiledParams {
  const u16* x;
  const u16* y;
  void* out;
  const float* total_in;  // [m][n], chunked: running total to start from, or null; resumed: the chain's accumulators
  i64 m, n, k;
  i64 stride_x, stride_y, stride_out;  // elements
  u32 tiles_m, tiles_n, group, bands_along_n;
  u32 wide_stores;  // two neighbouring outputs may be written at once
};

constexpr int kThreads = DG_WARPS_M * DG_WARPS_N * 32;
constexpr int kWarpM = DG_TILE_M / DG_WARPS_M, kWarpN = DG_TILE_N / DG_WARPS_N;
constexpr int kFragsM = kWarpM / 16, kFragsN = kWarpN / 8;
static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && DG_TILE_K % 16 == 0, "warp tile");

__device__ __forceinline__ void copy16(u32 to, const void* from, int valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid_bytes) : "memory");
}

template <bool kTrans>
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
  if constexpr (kTrans) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}

// One operand's tile: rows of the contiguous dimension, padded by 16 bytes so that the eight rows of a matrix fall in different banks.
template <bool kKMajor, int kLines, bool kVectors>
struct Tile {
  static constexpr int kInner = kKMajor ? DG_TILE_K : kLines, kOuter = kKMajor ? kLines : DG_TILE_K;
  static constexpr int kRowBytes = kInner * 2 + 16;
  static constexpr int kBytes = kRowBytes * kOuter;

  static __device__ __forceinline__ u32 at(u32 base, int line, int k) {
    return base + (kKMajor ? line * kRowBytes + k * 2 : k * kRowBytes + line * 2);
  }

  static __device__ __forceinline__ void load(u32 base, const u16* data, i64 stride, i64 line0, i64 lines, i64 k0, i64 k_end) {
    constexpr int kVectorsPerRow = kInner / 8, kCount = kVectorsPerRow * kOuter;
#pragma unroll
    for (int i = 0; i < (kCount + kThreads - 1) / kThreads; ++i) {
      const int vector = i * kThreads + threadIdx.x;
      if (kCount % kThreads != 0 && vector >= kCount) break;
      const int outer = vector / kVectorsPerRow, inner = vector % kVectorsPerRow * 8;
      const i64 row = (kKMajor ? line0 : k0) + outer, rows = kKMajor ? lines : k_end;
      const i64 first = (kKMajor ? k0 : line0) + inner, end = kKMajor ? k_end : lines;
      i64 valid = row < rows ? end - first : 0;
      valid = valid < 0 ? 0 : valid > 8 ? 8 : valid;
      const u16* from = valid > 0 ? data + row * stride + first : data;
      const u32 to = base + outer * kRowBytes + inner * 2;
      if constexpr (kVectors) {
        copy16(to, from, static_cast<int>(valid) * 2);
      } else {
        u32 words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const u32 low = 2 * w < valid ? from[2 * w] : 0u, high = 2 * w + 1 < valid ? from[2 * w + 1] : 0u;
          words[w] = low | high << 16;
        }
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
      }
    }
  }
};
using XTile = Tile<DG_X_KMAJOR, DG_TILE_M, DG_X_VECTORS>;
using YTile = Tile<DG_Y_KMAJOR, DG_TILE_N, DG_Y_VECTORS>;
constexpr u32 kStageBytes = XTile::kBytes + YTile::kBytes;

__device__ __forceinline__ void store_pair(const TiledParams& p, i64 row, i64 col, float first, float second) {
  if (row >= p.m || col >= p.n) return;
  const i64 at = row * p.stride_out + col;
#if DG_OUT_FP32
  float* out = static_cast<float*>(p.out) + at;
  if (p.wide_stores && col + 1 < p.n) {
    *reinterpret_cast<float2*>(out) = make_float2(first, second);
    return;
  }
  out[0] = first;
  if (col + 1 < p.n) out[1] = second;
#else
  u16* out = static_cast<u16*>(p.out) + at;
  if (p.wide_stores && col + 1 < p.n) {
    *reinterpret_cast<u32*>(out) = pack_bf16(first, second);
    return;
  }
  out[0] = round_bf16(first);
  if (col + 1 < p.n) out[1] = round_bf16(second);
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads) det_gemm_tiled(const TiledParams p) {
  extern __shared__ __align__(16) char dynamic_smem[];
  const u32 smem = smem_address(dynamic_smem);
  const RasterTile tile = raster_tile(blockIdx.x, p.tiles_m, p.tiles_n, p.group, p.bands_along_n != 0);
  const i64 m0 = static_cast<i64>(tile.m) * DG_TILE_M, n0 = static_cast<i64>(tile.n) * DG_TILE_N;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp % DG_WARPS_M * kWarpM, warp_n = warp / DG_WARPS_M * kWarpN;
  const int blocks = static_cast<int>((p.k + DG_TILE_K - 1) / DG_TILE_K);

  float d[kFragsM][kFragsN][4] = {};
#if DG_CHUNK_BLOCKS
  float total[kFragsM][kFragsN][4] = {};
  [[maybe_unused]] auto& start = total;
#else
  [[maybe_unused]] auto& start = d;
#endif
#if DG_CHUNK_BLOCKS || DG_RESUMED
  if (p.total_in != nullptr) {
#pragma unroll
    for (int i = 0; i < kFragsM * kFragsN * 4; ++i) {
      const i64 row = m0 + warp_m + i / (kFragsN * 4) * 16 + i / 2 % 2 * 8 + lane / 4;
      const i64 col = n0 + warp_n + i / 4 % kFragsN * 8 + lane % 4 * 2 + i % 2;
      if (row < p.m && col < p.n) start[i / (kFragsN * 4)][i / 4 % kFragsN][i % 4] = p.total_in[row * p.n + col];
    }
  }
#endif
  [[maybe_unused]] int left = DG_CHUNK_BLOCKS;

  const auto fill = [&](int block) {
    if (block < blocks) {
      const u32 stage = smem + static_cast<u32>(block % DG_STAGES) * kStageBytes;
      const i64 k0 = static_cast<i64>(block) * DG_TILE_K;
      XTile::load(stage, p.x, p.stride_x, m0, p.m, k0, p.k);
      YTile::load(stage + XTile::kBytes, p.y, p.stride_y, n0, p.n, k0, p.k);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

#pragma unroll
  for (int block = 0; block < DG_STAGES - 1; ++block) fill(block);
  for (int block = 0; block < blocks; ++block) {
    asm volatile("cp.async.wait_group %0;" ::"n"(DG_STAGES - 2) : "memory");
    __syncthreads();  // this stage has landed for everyone; everyone has left the stage that is refilled next
    fill(block + DG_STAGES - 1);
    const u32 x = smem + static_cast<u32>(block % DG_STAGES) * kStageBytes, y = x + XTile::kBytes;
#pragma unroll
    for (int k = 0; k < DG_TILE_K; k += 16) {
      u32 a[kFragsM][4], b[kFragsN][2];
      const int matrix = lane / 8, within = lane % 8;
#pragma unroll
      for (int i = 0; i < kFragsM; ++i) {  // matrices: (rows 0–7, k 0–7), (8–15, 0–7), (0–7, 8–15), (8–15, 8–15)
        const int line = warp_m + i * 16 + (matrix & 1) * 8, kk = k + (matrix / 2) * 8;
        load_matrices<!DG_X_KMAJOR>(a[i], XTile::at(x, DG_X_KMAJOR ? line + within : line, DG_X_KMAJOR ? kk : kk + within));
      }
#pragma unroll
      for (int j = 0; j < kFragsN; j += 2) {  // matrices: (columns 0–7, k 0–7), (0–7, 8–15), (8–15, 0–7), (8–15, 8–15)
        u32 r[4];
        const int line = warp_n + j * 8 + (matrix / 2) * 8, kk = k + (matrix & 1) * 8;
        load_matrices<!DG_Y_KMAJOR>(r, YTile::at(y, DG_Y_KMAJOR ? line + within : line, DG_Y_KMAJOR ? kk : kk + within));
        b[j][0] = r[0], b[j][1] = r[1], b[j + 1][0] = r[2], b[j + 1][1] = r[3];
      }
#pragma unroll
      for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
        for (int j = 0; j < kFragsN; ++j) mma_k16(d[i][j], a[i], b[j]);
      }
    }
#if DG_CHUNK_BLOCKS
    if (--left == 0 || block + 1 == blocks) {
      left = DG_CHUNK_BLOCKS;
#pragma unroll
      for (int i = 0; i < kFragsM * kFragsN * 4; ++i) {
        total[i / (kFragsN * 4)][i / 4 % kFragsN][i % 4] += d[i / (kFragsN * 4)][i / 4 % kFragsN][i % 4];
        d[i / (kFragsN * 4)][i / 4 % kFragsN][i % 4] = 0;
      }
    }
#endif
  }

#pragma unroll
  for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
    for (int j = 0; j < kFragsN; ++j) {
#if DG_CHUNK_BLOCKS
      const float(&v)[4] = total[i][j];
#else
      const float(&v)[4] = d[i][j];
#endif
      const i64 row = m0 + warp_m + i * 16 + lane / 4, col = n0 + warp_n + j * 8 + lane % 4 * 2;
      store_pair(p, row, col, v[0], v[1]);
      store_pair(p, row + 8, col, v[2], v[3]);
    }
  }
}
