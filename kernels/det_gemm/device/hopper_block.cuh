// What a block of the Hopper kernel works on (hopper.cu): its parameters, its tiles in shared memory, the ring of stages, its place in the walk.
#pragma once

#include "async.cuh"
#include "epilogue.cuh"
#include "raster.cuh"
#include "tile_layout.cuh"

struct HopperParams {
  TensorMap x, y, out;
  TensorMap y_tail;  // the last box of a column tile that is no multiple of an atom: narrower, at the same pitch
  void* out_pointer;
  const float* total_in;  // dense in the order of the output. Chunked: running total to start from, or null; resumed: the chain's accumulators
  i64 out_stride;         // elements
  u32 m, n;
  u32 k_blocks;
  u32 tiles_m, tiles_n;  // in clusters' tiles
  u32 group;
  u32 bands_along_n;
  u32 wide_stores;  // direct epilogue: two neighbouring elements may be written at once
};

constexpr int kFragments = DG_TILE_M / DG_CONSUMERS / 64;  // m64 fragments of one consumer warpgroup
constexpr int kRegs = DG_WGMMA_REGS;
constexpr int kClusterSize = DG_CLUSTER_M * DG_CLUSTER_N;
constexpr int kYLines = DG_Y_LINES;
constexpr u32 kXBytes = DG_TILE_M * DG_TILE_K * 2, kYBytes = kYLines * DG_TILE_K * 2;
constexpr u32 kStageBytes = kXBytes + kYBytes;
constexpr u32 kCopiedBytes = (DG_X_LOAD + DG_Y_LOAD) * DG_TILE_K * 2;
constexpr u32 kBarrierOffset = DG_STAGES * kStageBytes + DG_CONSUMERS * 4 * kStagingBytes;

static_assert(DG_STAGES <= 32, "one lane initialises one slot");
static_assert(DG_TILE_M % (64 * DG_CONSUMERS) == 0 && DG_TILE_N % 8 == 0 && DG_TILE_K % 64 == 0, "tile");
static_assert(kStageBytes % 1024 == 0 && kXBytes % 1024 == 0, "swizzled tiles start on 1024 bytes");
static_assert(kYLines >= DG_TILE_N && (DG_Y_KMAJOR ? kYLines == DG_TILE_N : kYLines % DG_Y_ATOM == 0), "column tile");
static_assert(DG_X_LOAD == DG_TILE_M || (DG_X_KMAJOR && DG_X_LOAD < DG_TILE_M), "lines are left out of K-major tiles only");
static_assert(DG_Y_KMAJOR ? DG_Y_LOAD <= kYLines : DG_Y_LOAD == DG_TILE_N, "of atoms only the tile's own columns are copied");

constexpr int kConsumerThreads = DG_CONSUMERS * 128;  // the first ones; the producer's follow
constexpr int kThreads = kConsumerThreads + (DG_PRODUCER_WARP ? 32 : 128);

// One operand's tile of one stage. kLoad: lines that are copied.
template <bool kKMajor, int kLines, int kLoad, int kAtom>
struct OperandTile {
  // Matrix descriptors (tile_layout.cuh): of the tile at `base`, its low word; of k16 step `step` for the lines that start at `line`.
  static __device__ __forceinline__ u32 descriptor(u32 base) {
    constexpr TileLayout kLayout{kKMajor, kLines, DG_TILE_K, kAtom};
    return kLayout.descriptor_low(base);
  }
  static __device__ __forceinline__ u64 descriptor(u32 low, int line, int step) {
    constexpr TileLayout kLayout{kKMajor, kLines, DG_TILE_K, kAtom};
    return kLayout.descriptor(low, line, step);
  }

  // Copies this block's share (slice of kSlices) of the tile that starts at (line, k). The last box of atoms that are not full comes by `tail`.
  template <int kSlices, int kHint>
  static __device__ __forceinline__ void copy(u32 to, const TensorMap* full, const TensorMap* tail, u32 barrier, int line, int k, int slice, u16 mask,
                                              u64 policy) {
    constexpr TileLayout kLayout{kKMajor, kLines, DG_TILE_K, kAtom};
    constexpr int kBoxRows = (kKMajor ? kLoad : DG_TILE_K) / kSlices;
    constexpr int kBoxElements = kKMajor ? 64 : kAtom;
    static_assert(kBoxRows % 8 == 0 && kBoxRows <= 256, "a slice is whole swizzle atoms and one box");
#pragma unroll
    for (int box = 0; box < kLayout.boxes(); ++box) {
      const TensorMap* map = !kKMajor && kLoad % kAtom != 0 && box + 1 == kLayout.boxes() ? tail : full;
      const u32 at = to + kLayout.box_start(box, slice * kBoxRows);
      const int inner = (kKMajor ? k : line) + box * kBoxElements;
      const int outer = (kKMajor ? line : k) + slice * kBoxRows;
      if constexpr (kSlices == 1)
        copy_box<kHint>(at, map, barrier, inner, outer, policy);
      else
        copy_box_multicast<kHint>(at, map, barrier, inner, outer, mask, policy);
    }
  }
};
using XTile = OperandTile<DG_X_KMAJOR, DG_TILE_M, DG_X_LOAD, 64>;
using YTile = OperandTile<DG_Y_KMAJOR, kYLines, DG_Y_LOAD, DG_Y_ATOM>;

struct Ring {
  u32 slot = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == DG_STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ u32 full_barrier(u32 smem, u32 slot) { return smem + kBarrierOffset + slot * 8; }
__device__ __forceinline__ u32 empty_barrier(u32 smem, u32 slot) { return smem + kBarrierOffset + (DG_STAGES + slot) * 8; }

struct BlockTile {
  int m, n;  // first row and column
};

// This block's place in the cluster: rank = rank_m + DG_CLUSTER_M · rank_n.
struct Place {
  u32 rank_m, rank_n, cluster, clusters;
};

__device__ __forceinline__ BlockTile block_tile(const HopperParams& p, const Place& place, u32 index) {
  RasterTile tile{0, index};
  if (p.tiles_n == 1)  // one row or column of tiles has one walk: no divisions before the first copy
    tile = {index, 0};
  else if (p.tiles_m > 1)
    tile = raster_tile(index, p.tiles_m, p.tiles_n, p.group, p.bands_along_n != 0);
  return {static_cast<int>((tile.m * DG_CLUSTER_M + place.rank_m) * DG_TILE_M), static_cast<int>((tile.n * DG_CLUSTER_N + place.rank_n) * DG_TILE_N)};
}
