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
#include "hopper_chunks.cuh"
#include "hopper_consume.cuh"
#include "hopper_defer.cuh"
#include "hopper_produce.cuh"
#include "hopper_sums.cuh"

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
