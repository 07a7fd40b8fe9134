// Warp-specialised persistent GEMM for Hopper: one producer warp fills a ring of shared-memory stages with TMA, consumer warpgroups
// run wgmma m64nNk16 over them. Each output is one fp32 chain of ascending k16 steps, whatever the tile, cluster or grid.
//
// Compiled with (host: kernels/det_gemm/plan.cpp):
//   DG_TILE_M, DG_TILE_N, DG_TILE_K   tile of one block; M a multiple of 64·DG_CONSUMERS, N of 8, K of 64
//   DG_STAGES, DG_CONSUMERS           ring depth, consumer warpgroups (each takes DG_TILE_M / DG_CONSUMERS rows)
//   DG_CLUSTER_M, DG_CLUSTER_N        blocks that share column tiles (M) and row tiles (N) by multicast
//   DG_X_KMAJOR, DG_Y_KMAJOR          1: neighbours in k are neighbours in memory
//   DG_Y_LINES                        lines of a column tile in shared memory: DG_TILE_N, or more where n lies contiguous and whole atoms are copied
//   DG_Y_ATOM                         n contiguous: elements of one swizzled row, 64 (128 bytes) or 32 (64 bytes)
//   DG_OUT_FP32, DG_TRANSPOSED        fp32 output; output written as out[n][m] (operands swapped by the host)
//   DG_EPILOGUE, DG_STORE_BUFFERS     how outputs leave: epilogue.cuh
//   DG_HINT_X, DG_HINT_Y              L2 hints of async.cuh
//   DG_X_LOAD, DG_Y_LOAD              lines of a tile that are copied: fewer than the tile where the whole operand has fewer, and of a column tile
//                                     with n contiguous those of the tile without the atoms' padding. The others hold garbage, which reaches only
//                                     outputs that are not stored, or none: rows and columns never mix
//   DG_OVERLAP                        programmatic dependent launch: set up while the previous kernel of the stream drains
//   DG_PRODUCER_WARP                  1: one producer warp, registers stay as they are: for few accumulators, and two launches may share an SM;
//                                     0: a producer warpgroup that gives its registers to the consumers
//   DG_DEFER                          1: outputs are packed to bf16 and stored while the next tile's first blocks are computed
//   DG_CHUNK_BLOCKS                   k blocks per chunk of the chunked class; 0 = one chain
//   DG_RESUMED                        1: the chain starts from total_in
//   DG_SUM_PAIRS                      1: and may read two neighbours at once
//   DG_LOW_N, DG_HIGH_N               chunked: DG_TILE_N in two parts, added up in turn; DG_LOW_N = 0: at once
//   DG_WGMMA_N = DG_TILE_N and DG_WGMMA_REGS… for wgmma.cuh; DG_REGISTERS_PRODUCER, DG_REGISTERS_CONSUMER
#include "async.cuh"
#include "epilogue.cuh"
#include "raster.cuh"
#include "tile_layout.cuh"
#include "wgmma.cuh"

#if DG_LOW_N
DG_DEFINE_WGMMA(wgmma_k16_low, DG_LOW_N, DG_LOW_REGS, DG_LOW_REGS_PLUS_1, DG_LOW_REGS_PLUS_2, DG_LOW_REGS_PLUS_3, DG_LOW_REGS_PLUS_4)
DG_DEFINE_WGMMA(wgmma_k16_high, DG_HIGH_N, DG_HIGH_REGS, DG_HIGH_REGS_PLUS_1, DG_HIGH_REGS_PLUS_2, DG_HIGH_REGS_PLUS_3, DG_HIGH_REGS_PLUS_4)
#endif

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

// Fills ring slots with what one k block needs of both operands.
struct Copier {
  const HopperParams& p;
  const Place& place;
  u32 smem;
  u64 policy_x = cache_policy<DG_HINT_X>(), policy_y = cache_policy<DG_HINT_Y>();
  u16 mask_x = 0, mask_y = 0;  // blocks that read the same row tile, the same column tile

  __device__ __forceinline__ Copier(const HopperParams& params, const Place& at, u32 base) : p(params), place(at), smem(base) {
    for (u32 i = 0; i < DG_CLUSTER_N; ++i) mask_x |= 1u << (place.rank_m + DG_CLUSTER_M * i);
    for (u32 i = 0; i < DG_CLUSTER_M; ++i) mask_y |= 1u << (i + DG_CLUSTER_M * place.rank_n);
  }
  __device__ __forceinline__ void fill(u32 slot, const BlockTile& tile, u32 block) const {
    const u32 full = full_barrier(smem, slot), at = smem + slot * kStageBytes;
    barrier_expect(full, kCopiedBytes);
    const int k = static_cast<int>(block * DG_TILE_K);
    XTile::copy<DG_CLUSTER_N, DG_HINT_X>(at, &p.x, &p.x, full, tile.m, k, static_cast<int>(place.rank_n), mask_x, policy_x);
    YTile::copy<DG_CLUSTER_M, DG_HINT_Y>(at + kXBytes, &p.y, &p.y_tail, full, tile.n, k, static_cast<int>(place.rank_m), mask_y, policy_y);
  }
};

__device__ __forceinline__ void produce(const HopperParams& p, const Place& place, u32 smem) {
  const Copier copier(p, place, smem);
  const u32 tiles = p.tiles_m * p.tiles_n;
  u32 index = place.cluster, block = 0;
  BlockTile tile{0, 0};
  if (index < tiles) tile = block_tile(p, place, index);
  if constexpr (DG_OVERLAP) {
    wait_for_previous_grid();
    launch_dependents();  // only now: each grid begins after the one before it has ended, so that at most two are on an SM
  }
  if (index < tiles)  // the first round of the ring waits for nobody
    for (; block < DG_STAGES && block < p.k_blocks; ++block) copier.fill(block, tile, block);
  Ring ring;
  ring.slot = block == DG_STAGES ? 0 : block;
  ring.parity = block == DG_STAGES;
  while (index < tiles) {
    for (; block < p.k_blocks; ++block) {
      barrier_wait(empty_barrier(smem, ring.slot), ring.parity ^ 1);
      copier.fill(ring.slot, tile, block);
      ring.advance();
    }
    index += place.clusters;
    block = 0;
    if (index < tiles) tile = block_tile(p, place, index);
  }
}

// Tells every block that writes into this slot that this warpgroup has read it: one arrival per block, by one warp each. One warp may
// speak for four: wgmma is an operation of the warpgroup, and its four warps share the reads of the column tile. Remote arrivals cost about
// 25 cycles each at the receiver (measured), so there are no more of them than needed.
__device__ __forceinline__ void release(const Place& place, u32 smem, u32 slot, int warp, int lane) {
  const u32 barrier = empty_barrier(smem, slot);
  if constexpr (kClusterSize == 1) {
    if (warp == 0 && lane == 0) barrier_arrive(barrier);
  } else {
    const u32 self = place.rank_m + DG_CLUSTER_M * place.rank_n;
    const u32 rank = warp + 4 * lane;
    if (rank < kClusterSize && (rank % DG_CLUSTER_M == place.rank_m || rank / DG_CLUSTER_M == place.rank_n)) {
      if (rank == self)
        barrier_arrive(barrier);
      else
        barrier_arrive_remote(barrier, rank);
    }
  }
}

__device__ __forceinline__ void store_tile(const HopperParams& p, float (&d)[kFragments][kRegs], const BlockTile& tile, u32 smem, int consumer,
                                           int warp, int lane, int& buffer) {
  const u32 staging = smem + DG_STAGES * kStageBytes + static_cast<u32>(consumer * 4 + warp) * kStagingBytes;
  const OutputView out{&p.out, p.out_pointer, p.out_stride, p.m, p.n, p.wide_stores != 0};
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
    store_fragment(out, d[f], tile.m + (consumer * kFragments + f) * 64 + warp * 16, tile.n, staging, lane, buffer);
  }
}

#if DG_CHUNK_BLOCKS || DG_RESUMED
__device__ __forceinline__ void load_total(const HopperParams& p, float (&total)[kFragments][kRegs], const BlockTile& tile, int consumer, int warp,
                                           int lane) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#if DG_SUM_PAIRS
    // Each load of a warp touches eight lines: two neighbours at once are half the loads. Which form it is must be known here: registers that two
    // branches define make ptxas wait for each matrix instruction, and predicated loads into the same registers wait for each other (both measured).
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 row = static_cast<u32>(tile.m + (consumer * kFragments + f) * 64 + warp * 16 + lane / 4 + half * 8);
      const float* from = p.total_in + static_cast<i64>(row) * p.n;
#pragma unroll
      for (int j = 0; j < kRegs / 4; ++j) {
        const u32 col = static_cast<u32>(tile.n + j * 8 + lane % 4 * 2);
        float2 pair = make_float2(0.0f, 0.0f);
        if (row < p.m && col < p.n) pair = *reinterpret_cast<const float2*>(from + col);
        total[f][j * 4 + half * 2] = pair.x;
        total[f][j * 4 + half * 2 + 1] = pair.y;
      }
    }
#else
#pragma unroll
    for (int i = 0; i < kRegs; ++i) {
      const u32 row = static_cast<u32>(tile.m + (consumer * kFragments + f) * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8);
      const u32 col = static_cast<u32>(tile.n + i / 4 * 8 + lane % 4 * 2 + i % 2);
      const i64 at = DG_TRANSPOSED ? static_cast<i64>(col) * p.m + row : static_cast<i64>(row) * p.n + col;
      total[f][i] = p.total_in != nullptr && row < p.m && col < p.n ? p.total_in[at] : 0.0f;
    }
#endif
  }
}
#endif

// A consumer warpgroup at its place in the ring.
struct Consumer {
  const HopperParams& p;
  const Place& place;
  u32 smem;
  int consumer, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  Ring ring;

  // Descriptors of what lies in this slot: this warpgroup's rows, and the columns.
  struct Tiles {
    u32 x, y;
  };
  __device__ __forceinline__ Tiles tiles() const {
    constexpr TileLayout kRows{DG_X_KMAJOR != 0, DG_TILE_M, DG_TILE_K, 64};
    const u32 at = smem + ring.slot * kStageBytes;
    return {XTile::descriptor(at + kRows.start(consumer * kFragments * 64, 0)), YTile::descriptor(at + kXBytes)};
  }

  // k16 steps [kFirst, kEnd) of the block in this slot, as one group.
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void issue(float (&d)[kFragments][kRegs], int accumulate) {
    const auto [x, y] = tiles();
    wgmma_fence();
#pragma unroll
    for (int step = kFirst; step < kEnd; ++step) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        wgmma_k16<!DG_X_KMAJOR, !DG_Y_KMAJOR>(d[f], XTile::descriptor(x, f * 64, step), YTile::descriptor(y, 0, step), accumulate);
      }
      accumulate = 1;
    }
    wgmma_commit();
  }
#if DG_LOW_N
  // The whole block in this slot for the low or the high part of the columns, as one group.
  template <bool kHigh>
  __device__ __forceinline__ void issue_part(float (&d)[kFragments][kRegs], int accumulate) {
    const auto [x, y] = tiles();
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < DG_TILE_K / 16; ++step) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        const u64 rows = XTile::descriptor(x, f * 64, step), columns = YTile::descriptor(y, kHigh ? DG_LOW_N : 0, step);
        if constexpr (kHigh)
          wgmma_k16_high<!DG_X_KMAJOR, !DG_Y_KMAJOR>(reinterpret_cast<float(&)[DG_HIGH_REGS]>(d[f][DG_LOW_REGS]), rows, columns, accumulate);
        else
          wgmma_k16_low<!DG_X_KMAJOR, !DG_Y_KMAJOR>(reinterpret_cast<float(&)[DG_LOW_REGS]>(d[f]), rows, columns, accumulate);
      }
      accumulate = 1;
    }
    wgmma_commit();
  }
#endif
  __device__ __forceinline__ void wait_full() const { barrier_wait(full_barrier(smem, ring.slot), ring.parity); }
};

// The block at c's place in the ring, into d; on return it may still be computed, the one before in this chain (in slot `previous`) is and has been
// given back.
__device__ __forceinline__ void consume_block(Consumer& c, bool first, u32& previous, float (&d)[kFragments][kRegs]) {
  c.wait_full();
  c.issue<0, DG_TILE_K / 16>(d, DG_RESUMED || !first);
  if (!first) {
    wgmma_wait<1>();
    release(c.place, c.smem, previous, c.warp, c.lane);
  }
  previous = c.ring.slot;
  c.ring.advance();
}

__device__ __forceinline__ void end_chain(Consumer& c, u32 previous, float (&d)[kFragments][kRegs]) {
  wgmma_wait<0>();
  release(c.place, c.smem, previous, c.warp, c.lane);
#pragma unroll
  for (int f = 0; f < kFragments; ++f) wgmma_pin(d[f]);
}

// The chain of blocks [at, end) into d, all of it computed on return. When the slot of the block before is given back, and the next one's data are
// waited for: with a producer warpgroup after a whole block has been issued; with a producer warp in the middle of one, so that nothing but the
// matrix units stands between two blocks. Measured: 64×32 tiles gain 2–3% from the second form, 128×128 tiles with a warpgroup lose 5%.
__device__ __forceinline__ void consume_chain(Consumer& c, u32 at, u32 end, float (&d)[kFragments][kRegs]) {
  u32 previous = 0;
#if DG_PRODUCER_WARP
  constexpr int kSteps = DG_TILE_K / 16;
  c.wait_full();
  for (u32 block = at; block < end; ++block) {
    c.issue<0, kSteps / 2>(d, DG_RESUMED || block != at);
    if (block != at) {
      wgmma_wait<1>();  // the block before
      release(c.place, c.smem, previous, c.warp, c.lane);
    }
    Ring next = c.ring;
    next.advance();
    const bool ready = block + 1 == end || barrier_try(full_barrier(c.smem, next.slot), next.parity);
    c.issue<kSteps / 2, kSteps>(d, 1);
    previous = c.ring.slot;
    c.ring = next;
    if (!ready) c.wait_full();
  }
#else
  for (u32 block = at; block < end; ++block) consume_block(c, block == at, previous, d);
#endif
  end_chain(c, previous, d);
}

#if DG_DEFER
// Outputs on their way: the last DG_DEFER parts of a tile are packed to half the registers as soon as its chain ends, so that the next one starts
// early, and stored a part a block beside that one's first blocks.
struct Deferred {
  static constexpr int kFirst = kStoreParts - DG_DEFER;  // a part is 64 columns: 16 pairs
  OutputView out;
  u32 staging;
  int lane;
  int row0 = 0x7FFFFFFF, col0 = 0, buffer = 0;
  u32 packed[DG_DEFER * 16];

  template <int kPart = 0>
  __device__ __forceinline__ void store_first(const float (&d)[kRegs]) {
    if constexpr (kPart < kFirst) {
      store_part<kPart>(out, d, row0, col0, staging, lane, buffer);
      store_first<kPart + 1>(d);
    }
  }
  __device__ __forceinline__ void take(const float (&d)[kRegs], int row, int col) {
    row0 = row, col0 = col;
#pragma unroll
    for (int i = 0; i < DG_DEFER * 16; ++i) {
      packed[i] = packed_pair(d, kFirst * 16 + i);
      asm volatile("" : "+r"(packed[i]));  // here, not where it is stored: the accumulators are about to be used again
    }
    store_first(d);
  }
  template <int kPart>
  __device__ __forceinline__ void store() {
    store_part<kPart>(out, packed, row0, col0 + kFirst * 64, staging, lane, buffer);
  }
  template <int kPart = 0>
  __device__ __forceinline__ void store_all() {
    if constexpr (kPart < DG_DEFER) {
      store<kPart>();
      store_all<kPart + 1>();
    }
  }
  // A chain's first blocks, each with a part beside it.
  template <int kPart = 0>
  __device__ __forceinline__ void first_blocks(Consumer& c, u32& previous, float (&d)[kFragments][kRegs]) {
    if constexpr (kPart < DG_DEFER) {
      consume_block(c, kPart == 0, previous, d);
      store<kPart>();
      first_blocks<kPart + 1>(c, previous, d);
    }
  }
};

__device__ __forceinline__ void consume_beside(Consumer& c, float (&d)[kFragments][kRegs], Deferred& stores) {
  u32 previous = 0;
  stores.first_blocks(c, previous, d);
  for (u32 block = DG_DEFER; block < c.p.k_blocks; ++block) consume_block(c, false, previous, d);
  end_chain(c, previous, d);
}
#endif

#if DG_LOW_N
// All chunks of a tile, in two parts of its columns, so that while one part of the sums is added to the total the matrix units work on the other: the
// low part is added while the chunk's last block is computed for the high part, the high part while the next chunk's first block is for the low.
// The parts stay apart in all blocks: ptxas serialises matrix instructions that see the same accumulators now whole, now in parts.
template <bool kHigh>
__device__ __forceinline__ void add_part(float (&total)[kFragments][kRegs], float (&d)[kFragments][kRegs]) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#pragma unroll
    for (int i = kHigh ? DG_LOW_REGS : 0; i < (kHigh ? kRegs : DG_LOW_REGS); ++i) {
      asm volatile("" : "+f"(d[f][i])::"memory");
      total[f][i] += d[f][i];
    }
  }
}

__device__ __forceinline__ void consume_chunks(Consumer& c, float (&total)[kFragments][kRegs]) {
  float d[kFragments][kRegs];
  u32 previous = 0;
  const u32 blocks = c.p.k_blocks;
  c.wait_full();
  for (u32 at = 0; at < blocks; at += DG_CHUNK_BLOCKS) {
    const u32 end = blocks - at < DG_CHUNK_BLOCKS ? blocks : at + DG_CHUNK_BLOCKS;
    for (u32 block = at; block < end; ++block) {
      Ring next = c.ring;
      next.advance();
      bool ready = true;
      const bool first = block == at, last = block + 1 == end;
      c.issue_part<false>(d, !first);
      if (block > 0) {
        wgmma_wait<1>();
        if (first) add_part<true>(total, d);
        release(c.place, c.smem, previous, c.warp, c.lane);
      }
      if (block + 1 < blocks) ready = barrier_try(full_barrier(c.smem, next.slot), next.parity);
      c.issue_part<true>(d, !first);
      if (last) {
        wgmma_wait<1>();
        add_part<false>(total, d);
      }
      previous = c.ring.slot;
      c.ring = next;
      if (!ready) c.wait_full();
    }
  }
  wgmma_wait<0>();
  add_part<true>(total, d);
  release(c.place, c.smem, previous, c.warp, c.lane);
}
#endif

__device__ __forceinline__ void consume_tile(Consumer& c, const BlockTile& tile, float (&result)[kFragments][kRegs]) {
#if DG_CHUNK_BLOCKS
  load_total(c.p, result, tile, c.consumer, c.warp, c.lane);
#if DG_LOW_N
  consume_chunks(c, result);
#else
  for (u32 at = 0; at < c.p.k_blocks; at += DG_CHUNK_BLOCKS) {
    float d[kFragments][kRegs];
    consume_chain(c, at, c.p.k_blocks - at < DG_CHUNK_BLOCKS ? c.p.k_blocks : at + DG_CHUNK_BLOCKS, d);
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
#pragma unroll
      for (int i = 0; i < kRegs; ++i) result[f][i] += d[f][i];
    }
  }
#endif
#else
#if DG_RESUMED
  load_total(c.p, result, tile, c.consumer, c.warp, c.lane);
#pragma unroll
  for (int f = 0; f < kFragments; ++f) wgmma_pin(result[f]);  // read before the chain starts
#endif
  consume_chain(c, 0, c.p.k_blocks, result);
#endif
}

__device__ __forceinline__ void consume(const HopperParams& p, const Place& place, u32 smem, int consumer) {
  Consumer c{p, place, smem, consumer};
  const u32 tiles = p.tiles_m * p.tiles_n;
#if DG_DEFER
  const u32 staging = smem + DG_STAGES * kStageBytes + static_cast<u32>(consumer * 4 + c.warp) * kStagingBytes;
  const OutputView out{&p.out, p.out_pointer, p.out_stride, p.m, p.n, p.wide_stores != 0};
  const int first_row = consumer * 64 + c.warp * 16;
  Deferred stores{out, staging, c.lane};
  for (u32 index = place.cluster; index < tiles; index += place.clusters) {
    const BlockTile tile = block_tile(p, place, index);
    float d[kFragments][kRegs];
    consume_beside(c, d, stores);
    stores.take(d[0], tile.m + first_row, tile.n);
  }
  stores.store_all();
#else
  int buffer = 0;  // of the TMA epilogue: goes round across tiles, so that the oldest box is the one waited for
  for (u32 index = place.cluster; index < tiles; index += place.clusters) {
    const BlockTile tile = block_tile(p, place, index);
    float d[kFragments][kRegs];
    consume_tile(c, tile, d);
    store_tile(p, d, tile, smem, consumer, c.warp, c.lane, buffer);
  }
#endif
  if constexpr (DG_EPILOGUE == 0) {
    if (elect_one()) store_wait_all();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) det_gemm_hopper(const __grid_constant__ HopperParams p) {
  extern __shared__ char dynamic_smem[];
  const u32 smem = (smem_address(dynamic_smem) + 1023) & ~1023u;  // equal in every block: the window's base is
  Place place{0, 0, blockIdx.x, gridDim.x};
  if constexpr (kClusterSize > 1) {
    const u32 rank = cluster_rank();
    place = {rank % DG_CLUSTER_M, rank / DG_CLUSTER_M, blockIdx.x / kClusterSize, gridDim.x / kClusterSize};
  }
  const bool producer = threadIdx.x >= kConsumerThreads;
  const u32 lane = threadIdx.x - kConsumerThreads;  // of the producer's first warp, where below 32
  if (producer && lane < 32) {
    if (lane == 0) {
      prefetch_map(&p.x);
      prefetch_map(&p.y);
      if constexpr (!DG_Y_KMAJOR && DG_TILE_N % DG_Y_ATOM != 0) prefetch_map(&p.y_tail);
      if constexpr (DG_EPILOGUE == 0) prefetch_map(&p.out);
    }
    if (lane < DG_STAGES) {
      barrier_init(full_barrier(smem, lane), 1);
      barrier_init(empty_barrier(smem, lane), DG_CONSUMERS * (DG_CLUSTER_M + DG_CLUSTER_N - 1));
    }
    fence_barrier_init();
    fence_async_proxy();
    __syncwarp();
  }
  if constexpr (kClusterSize > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    // Consumers wait for the barriers' initialisation; the producer, which did it, starts copying at once.
    constexpr int kWaiting = kConsumerThreads + 32;
    if (!producer) {
      asm volatile("barrier.cta.sync.aligned 1, %0;" ::"n"(kWaiting) : "memory");
    } else if (lane < 32) {
      asm volatile("barrier.cta.arrive.aligned 1, %0;" ::"n"(kWaiting) : "memory");
    }
  }

  // With DG_OVERLAP nothing above touches global memory but the tensor maps, which are parameters.
  if (producer) {
    if constexpr (!DG_PRODUCER_WARP) registers_shrink<DG_REGISTERS_PRODUCER>();
    // The light producer serves streams of small stages, where the time it takes shows: stages of 64×32 tiles of 64 k went from 14.8 to 12.4 µs by
    // the elected lane, of 128 k by up to 4%. Large tiles' producers wait most of the time; 512 rows lost 0.7%, the largest shapes nothing.
    if (lane < 32 && (DG_PRODUCER_WARP ? elect_one() : lane == 0)) produce(p, place, smem);
  } else {
    if constexpr (!DG_PRODUCER_WARP) registers_grow<DG_REGISTERS_CONSUMER>();
    if constexpr (DG_OVERLAP) wait_for_previous_grid();  // it may still read what is written here
    consume(p, place, smem, static_cast<int>(threadIdx.x / 128));
  }
  if constexpr (kClusterSize > 1) {  // nobody leaves while a peer may still write here or signal here
    cluster_arrive();
    cluster_wait();
  }
}
