// How a consumer warp's 16 rows of a wgmma accumulator leave for memory. DG_EPILOGUE:
//   0  bf16, staged in swizzled shared memory, 16×64 boxes stored by TMA (DG_TILE_N a multiple of 64; DG_STORE_BUFFERS boxes in flight)
//   1  staged in shared memory, stored 16 bytes a lane: whole sectors for any tile width, bf16 or fp32, and for swapped operands
//   2  straight from registers, element by element where pairs are not aligned: serves every n and stride
// An accumulator register pair (4j, 4j+1) holds row lane/4, columns 8j + lane%4·2 and the next; (4j+2, 4j+3) the same of row + 8.
#pragma once

#include "async.cuh"

struct OutputView {
  const TensorMap* map;
  void* pointer;
  i64 stride;  // elements
  u32 m, n;    // in the kernel's roles
  bool pairs;  // two neighbouring elements may be written at once
};

constexpr int kStagedPitch = 144;     // 128 bytes of a row and 16 of padding: eight rows fall in different banks
constexpr int kTransposedPitch = 48;  // 16 rows of weights are 32 bytes of a token
constexpr u32 kStoreBoxBytes = 16 * 64 * 2;
constexpr u32 kStagingBytes = DG_EPILOGUE == 0   ? DG_STORE_BUFFERS * kStoreBoxBytes  //
                              : DG_EPILOGUE == 2 ? 0
                              : DG_TRANSPOSED    ? 8 * kTransposedPitch
                                                 : 16 * kStagedPitch;
static_assert(DG_EPILOGUE != 0 || (DG_TILE_N % 64 == 0 && !DG_OUT_FP32 && !DG_TRANSPOSED), "TMA epilogue");
static_assert(DG_EPILOGUE != 1 || !(DG_OUT_FP32 && DG_TRANSPOSED), "staged epilogue of swapped operands is bf16");

__device__ __forceinline__ void store_matrices4(u32 to, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void store_matrices2(u32 to, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void store_matrices2_transposed(u32 to, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}

// 16 bytes from shared memory to global memory.
__device__ __forceinline__ void move16(void* to, u32 from) {
  u32 a, b, c, d;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(from) : "memory");
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Register pair i of a fragment as two bf16: from accumulators, or from what has been packed before.
template <int kRegs>
__device__ __forceinline__ u32 packed_pair(const float (&d)[kRegs], int i) {
  return pack_bf16(d[2 * i], d[2 * i + 1]);
}
template <int kPairs>
__device__ __forceinline__ u32 packed_pair(const u32 (&d)[kPairs], int i) {
  return d[i];
}

// Columns 64·kPart … 64·kPart + 63 of a fragment.
template <int kPart, class Values>
__device__ __forceinline__ void store_part_by_tma(const OutputView& out, const Values& d, int row0, int col0, u32 staging, int lane, int& buffer) {
  const int matrix = lane / 8, row = lane % 8 + (matrix & 1) * 8;  // stmatrix.x4: rows 0–7, 8–15 of one 8-column block, then of the next
  const bool one = elect_one();                                    // the same lane every time: groups of stores belong to a thread
  if (one) store_wait_read<DG_STORE_BUFFERS - 1>();
  __syncwarp();
  const u32 at = staging + static_cast<u32>(buffer) * kStoreBoxBytes;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const int r = (kPart * 8 + j) * 2;
    const int chunk = (j + matrix / 2) ^ (row & 7);
    store_matrices4(at + row * 128 + chunk * 16, packed_pair(d, r), packed_pair(d, r + 1), packed_pair(d, r + 2), packed_pair(d, r + 3));
  }
  fence_async_proxy();
  __syncwarp();
  if (one) {
    if (static_cast<u32>(row0) < out.m && static_cast<u32>(col0 + kPart * 64) < out.n) store_box(out.map, at, col0 + kPart * 64, row0);
    store_commit();
  }
  __syncwarp();
  if (++buffer == DG_STORE_BUFFERS) buffer = 0;
}

// n is a multiple of 8, rows of the output start on 16 bytes.
// One part: 128 bytes of each row.
constexpr int kStagedColumns = 128 / (DG_OUT_FP32 ? 4 : 2);
template <int kPart, class Values>
__device__ __forceinline__ void store_part_staged(const OutputView& out, const Values& d, int row0, int col0, u32 staging, int lane) {
  constexpr int kElement = DG_OUT_FP32 ? 4 : 2, kTileN = DG_TILE_N;
  constexpr int kFirst = kPart * kStagedColumns;
  constexpr int kColumns = kTileN - kFirst < kStagedColumns ? kTileN - kFirst : kStagedColumns;
  if constexpr (DG_OUT_FP32) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const int r = (kFirst / 8 + j) * 4;
      const u32 at = staging + lane / 4 * kStagedPitch + (j * 8 + lane % 4 * 2) * 4;
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(d[r]), "f"(d[r + 1]) : "memory");
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + 8 * kStagedPitch), "f"(d[r + 2]), "f"(d[r + 3]) : "memory");
    }
  } else {
    const int matrix = lane / 8, row = lane % 8 + (matrix & 1) * 8;
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += 2) {
      const int r = (kFirst / 8 + j) * 2;
      const u32 at = staging + row * kStagedPitch + j * 16;
      if (j + 1 < kColumns / 8)
        store_matrices4(at + matrix / 2 * 16, packed_pair(d, r), packed_pair(d, r + 1), packed_pair(d, r + 2), packed_pair(d, r + 3));
      else
        store_matrices2(at, packed_pair(d, r), packed_pair(d, r + 1));
    }
  }
  __syncwarp();
  const int chunk = lane % 8, col = col0 + kFirst + chunk * (16 / kElement);
  if (chunk < kColumns * kElement / 16 && static_cast<u32>(col) < out.n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + lane / 8;
      if (static_cast<u32>(row0 + row) < out.m) {
        move16(static_cast<char*>(out.pointer) + (static_cast<i64>(row0 + row) * out.stride + col) * kElement,
               staging + row * kStagedPitch + chunk * 16);
      }
    }
  }
  __syncwarp();
}

// Operands swapped: the accumulator's rows are output columns. 8 tokens × 16 columns at a time, transposed by stmatrix.
template <int kRegs>
__device__ __forceinline__ void store_staged_transposed(const OutputView& out, float (&d)[kRegs], int row0, int col0, u32 staging, int lane) {
#pragma unroll
  for (int j = 0; j < DG_TILE_N / 8; ++j) {
    store_matrices2_transposed(staging + lane % 8 * kTransposedPitch + (lane / 8 & 1) * 16, pack_bf16(d[j * 4], d[j * 4 + 1]),
                               pack_bf16(d[j * 4 + 2], d[j * 4 + 3]));
    __syncwarp();
    const int token = lane / 2, half = lane % 2;
    if (token < 8 && static_cast<u32>(col0 + j * 8 + token) < out.n && static_cast<u32>(row0 + half * 8) < out.m) {
      move16(static_cast<u16*>(out.pointer) + static_cast<i64>(col0 + j * 8 + token) * out.stride + row0 + half * 8,
             staging + token * kTransposedPitch + half * 16);
    }
    __syncwarp();
  }
}

__device__ __forceinline__ void store_one(const OutputView& out, i64 at, float value) {
#if DG_OUT_FP32
  static_cast<float*>(out.pointer)[at] = value;
#else
  static_cast<u16*>(out.pointer)[at] = round_bf16(value);
#endif
}

__device__ __forceinline__ void store_pair(const OutputView& out, u32 row, u32 col, float first, float second) {
  if (row >= out.m || col >= out.n) return;
  const i64 step = DG_TRANSPOSED ? out.stride : 1;
  const i64 at = DG_TRANSPOSED ? static_cast<i64>(col) * out.stride + row : static_cast<i64>(row) * out.stride + col;
  if (!DG_TRANSPOSED && out.pairs && col + 1 < out.n) {
#if DG_OUT_FP32
    *reinterpret_cast<float2*>(static_cast<float*>(out.pointer) + at) = make_float2(first, second);
#else
    *reinterpret_cast<u32*>(static_cast<u16*>(out.pointer) + at) = pack_bf16(first, second);
#endif
    return;
  }
  store_one(out, at, first);
  if (col + 1 < out.n) store_one(out, at + step, second);
}

// In how many parts a fragment is stored.
constexpr int kStoreParts = DG_EPILOGUE == 0 ? DG_TILE_N / 64 : (DG_TILE_N + kStagedColumns - 1) / kStagedColumns;

// One part of rows row0 … row0 + 15, from accumulators or from packed pairs. Not for swapped operands, nor straight from registers.
template <int kPart, class Values>
__device__ __forceinline__ void store_part(const OutputView& out, const Values& d, int row0, int col0, u32 staging, int lane, int& buffer) {
  if constexpr (DG_EPILOGUE == 0)
    store_part_by_tma<kPart>(out, d, row0, col0, staging, lane, buffer);
  else
    store_part_staged<kPart>(out, d, row0, col0, staging, lane);
}
template <int kPart, class Values>
__device__ __forceinline__ void store_parts(const OutputView& out, const Values& d, int row0, int col0, u32 staging, int lane, int& buffer) {
  if constexpr (kPart < kStoreParts) {
    store_part<kPart>(out, d, row0, col0, staging, lane, buffer);
    store_parts<kPart + 1>(out, d, row0, col0, staging, lane, buffer);
  }
}

// Rows row0 … row0 + 15 and all DG_TILE_N columns from col0, clipped to the output.
template <int kRegs>
__device__ __forceinline__ void store_fragment(const OutputView& out, float (&d)[kRegs], int row0, int col0, u32 staging, int lane, int& buffer) {
  if constexpr (DG_EPILOGUE == 1 && DG_TRANSPOSED) {
    store_staged_transposed(out, d, row0, col0, staging, lane);
  } else if constexpr (DG_EPILOGUE != 2) {
    store_parts<0>(out, d, row0, col0, staging, lane, buffer);
  } else {
    const u32 row = static_cast<u32>(row0 + lane / 4);
#pragma unroll
    for (int j = 0; j < kRegs / 4; ++j) {
      const u32 col = static_cast<u32>(col0 + j * 8 + lane % 4 * 2);
      store_pair(out, row, col, d[j * 4], d[j * 4 + 1]);
      store_pair(out, row + 8, col, d[j * 4 + 2], d[j * 4 + 3]);
    }
  }
}
