#include "kernels/det_gemm/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/json.h"
#include "kernels/det_gemm/rules.h"

namespace amk::det_gemm {
namespace {

// Fitted to 490 schedules of 56 problems timed on two H200 (docs/lab/gemm.md, run 15), unless said otherwise. Per problem and card the order that
// they give is the measured one to a rank correlation of 0.8 to 0.97 where few tokens stream weights.
constexpr double kLaunchUs = 2.3;             // launches in a graph, one after the other
constexpr double kOverlappedLaunchUs = 1.3;   // the same where launches overlap and the next one's blocks find room
constexpr double kCrowdedLaunchUs = 3.1;      // and where they find it late, and on whichever SMs are left
constexpr double kHeavyOverlapUs = 0.5;       // a producer warpgroup's setup, which overlaps less
constexpr double kFirstTripUs = 0.8;          // issue of a copy to data in shared memory, idle
constexpr double kRoundTripUs = 1.16;         // the same under load by all SMs
constexpr double kQuietShare = 0.23;          // what of it is load: less where fewer SMs read
constexpr double kStageUs[2] = {0.10, 0.12};  // one stage's way through producer and consumers whatever its size: one producer warp, a warpgroup
constexpr double kClusterStageUs = 0.12;      // and its way through a neighbour that must have given it back
constexpr double kIngestBytesPerClock = 90;   // into one SM
constexpr double kL2BytesPerClockPerSm = 50;  // out of L2, all SMs together. Multicast does not make it less: what counts is what arrives
constexpr double kSharedBytesPerClock = 190;  // matrix instructions' reads and copies' writes
constexpr double kPowerShare = 0.76;          // share of the peak matrix rate that random data sustains at the power limit
constexpr double kSustainedShare = 0.94;      // of the peak bandwidth, where no measured figure is recorded
constexpr double kWideFetch = 1.03;           // 256 bytes a miss where lines are other blocks' columns
constexpr double kNoHints = 1.01;             // the re-read operand leaves L2 as early as the streamed one
constexpr double kUneven = 0.4;               // of the idle places in the last turn, what the stream of weights loses
constexpr double kDirectStoreClocks = 40;     // per 8 columns of 16 rows and warp: half-sector stores
constexpr double kStagedStoreClocks = 10;
constexpr double kSwitchUs = 0.5;       // from a tile to the next: the last block's drain, stores that wait for stores
constexpr double kDeferredShare = 0.2;  // of it and of the epilogue, where stores are deferred
constexpr double kDeferAloneUs = 0.4;   // and what they cost where there is no next tile
constexpr double kMmaShare = 0.33;      // of the wgmma rate that mma.sync reaches (241 of 753 TFLOP/s)
constexpr double kPlainShare = 0.02;
constexpr double kOverlapOfTerms = 4.5;  // exponent of the norm in which terms add up: the largest counts, neighbours in size add a little

double clock_mhz(const GpuTarget& t) { return t.boost_clock_mhz > 0 ? t.boost_clock_mhz : 1500; }
double ceil_div(std::int64_t a, std::int64_t b) { return static_cast<double>((a + b - 1) / b); }

// The stream's next launch waits on the SMs until this one ends. It finds room at once where two blocks fit an SM or where this launch leaves as many
// SMs idle as it takes, and the SMs in their order where each has a block; between the two its blocks stand wherever one ended first, and what they
// then read passes through some groups of SMs more than through others.
double launch_us(const Plan& plan, std::int64_t resident, const GpuTarget& target) {
  const Config& c = plan.config;
  if (!c.overlap) return kLaunchUs;
  const bool light = c.producer == Producer::Warp;
  const bool shared = light && 2 * (plan.smem_bytes + 1024) <= target.smem_per_sm_bytes;
  const bool filled = static_cast<double>(resident) >= 0.95 * target.sm_count, spare = light && 2 * resident <= target.sm_count;
  return shared || filled || spare ? kOverlappedLaunchUs + (light ? 0 : kHeavyOverlapUs) : kCrowdedLaunchUs;
}

}  // namespace

Floor floor_of(const Canonical& shape, const GpuTarget& target) {
  Floor floor;
  floor.flops = flops(shape);
  floor.hbm_bytes = std::max<std::int64_t>(0, compulsory_bytes(shape) - target.l2_bytes);
  const double memory_us = target.peak_bandwidth_gbs > 0 ? static_cast<double>(floor.hbm_bytes) / target.peak_bandwidth_gbs * 1e-3 : 0;
  const double compute_us = target.peak_bf16_tflops > 0 ? floor.flops / target.peak_bf16_tflops * 1e-6 : 0;
  floor.bound_us = std::max(memory_us, compute_us);
  return floor;
}

std::int64_t resident_blocks(const Plan& plan, const GpuTarget& target) {
  if (plan.config.path == Path::Plain) return static_cast<std::int64_t>(target.sm_count) * 8;
  std::int64_t per_sm = 1;
  if (plan.config.path == Path::Mma && plan.smem_bytes > 0) {
    per_sm = std::clamp<std::int64_t>(target.smem_per_sm_bytes / (plan.smem_bytes + 1024), 1, target.max_threads_per_sm / plan.block_threads);
    per_sm = std::min<std::int64_t>(per_sm, 2);  // 128 accumulators a thread leave room for two blocks of 256 threads
  }
  const std::int64_t blocks = per_sm * target.sm_count;
  // Clusters of more than two blocks leave SMs of a GPC over; 104 of 132 were seen.
  const std::int64_t usable = plan.cluster <= 2 ? blocks : blocks * 104 / 132;
  return std::max<std::int64_t>(plan.cluster, usable / plan.cluster * plan.cluster);
}

Estimate estimate(const Plan& plan, const GpuTarget& target) {
  const Config& c = plan.config;
  const Canonical& r = plan.roles;
  const double clocks_per_us = clock_mhz(target);
  Estimate e;
  const double bandwidth = target.read_bandwidth_gbs > 0 ? target.read_bandwidth_gbs : kSustainedShare * target.peak_bandwidth_gbs;
  e.memory_us = bandwidth > 0 ? static_cast<double>(compulsory_bytes(plan.shape)) / bandwidth * 1e-3 : 0;

  const bool plain = c.path == Path::Plain;
  const int tile_m = plain ? 16 : c.tile_m, tile_n = plain ? 8 : c.tile_n;
  const std::int64_t tiles = plan.tiles_m * plan.tiles_n * plan.cluster;
  const std::int64_t resident = std::max<std::int64_t>(1, std::min(resident_blocks(plan, target), tiles));
  const double turns = ceil_div(tiles, resident);  // tiles that the busiest block computes
  const double blocks_per_sm = std::max(1.0, static_cast<double>(resident) / std::max(1, target.sm_count));
  const double k_blocks = static_cast<double>(std::max<std::int64_t>(plan.k_blocks, 1));

  // Peak matrix rate per SM and clock, in multiply-adds.
  const double peak = target.peak_bf16_tflops * 1e6 / 2 / std::max(1, target.sm_count) / clocks_per_us;
  const double macs = static_cast<double>(tile_m) * std::max(tile_n, 16) * c.tile_k;
  const double rate = peak * kPowerShare * (plain ? kPlainShare : c.path == Path::Mma ? kMmaShare : 1.0);
  double matrix_clocks = rate > 0 ? macs / rate : 0;
  double stage_bytes = static_cast<double>(tile_m + tile_n) * c.tile_k * 2;
  double stage_us = 0;
  const bool wgmma = c.path == Path::Wgmma;
  if (wgmma) {
    const auto copied = [](int tile, bool k_contiguous, std::int64_t extent) {
      return k_contiguous ? std::min<double>(tile, std::max<double>(8, ceil_div(extent, 8) * 8)) : tile;
    };
    stage_bytes = (copied(tile_m, r.x_k_contiguous, r.m) + copied(tile_n, r.y_k_contiguous, r.n)) * c.tile_k * 2;
    // A warpgroup's chain, measured alone: 18.5 clocks a step at 8 columns, 24.5 at 32, 32.6 at 64, half the columns from there on.
    const double fragments = tile_m / 64.0, steps = c.tile_k / 16.0;
    const double chain = std::max(tile_n / 2.0, 17 + 0.24 * tile_n);
    const double issue = std::max(fragments * std::max(tile_n, 16) / 2.0, fragments / c.consumers * chain) * steps;
    // An instruction reads 64 rows of x and all of y.
    const double shared = (fragments * steps * (2048 + 32.0 * tile_n) + stage_bytes) / kSharedBytesPerClock;
    matrix_clocks = std::max({matrix_clocks, issue, shared});
    stage_us = kStageUs[c.producer == Producer::Warpgroup] + (plan.cluster > 1 ? kClusterStageUs : 0);
    // Few tokens stream weights: what lies in lines of other blocks, and what pushes tokens out of L2, costs bandwidth.
    const bool weights_k_contiguous = c.swap ? r.x_k_contiguous : r.y_k_contiguous;
    if (c.l2_fetch == 256 && !weights_k_contiguous) e.memory_us *= kWideFetch;
    if (c.l2_x == L2Hint::Normal && c.l2_y == L2Hint::Normal) e.memory_us *= kNoHints;
    if (tiles > 0) e.memory_us *= 1 + kUneven * (turns * static_cast<double>(resident) / static_cast<double>(tiles) - 1);
  }
  e.matrix_us = turns * k_blocks * matrix_clocks * blocks_per_sm / clocks_per_us;
  e.ingest_us = turns * k_blocks * stage_bytes * blocks_per_sm / kIngestBytesPerClock / clocks_per_us;
  e.l2_us = static_cast<double>(tiles) * k_blocks * stage_bytes / (kL2BytesPerClockPerSm * std::max(1, target.sm_count)) / clocks_per_us;
  const double busy = std::min(1.0, static_cast<double>(resident) / std::max(1, target.sm_count));
  e.latency_bound_us = turns * k_blocks * kRoundTripUs * (1 - kQuietShare * (1 - busy)) / std::max(1, c.stages - 1);
  e.stages_us = turns * k_blocks * stage_us;

  const double store = !wgmma || c.epilogue == Epilogue::Direct ? kDirectStoreClocks : kStagedStoreClocks;
  const double warps_rows = tile_m / 16.0 / (wgmma ? c.consumers * 4 : 8);
  const double epilogue_us = warps_rows * tile_n / 8.0 * store / clocks_per_us;
  const double between_us = wgmma ? (epilogue_us + kSwitchUs) * (c.defer ? kDeferredShare : 1) : epilogue_us;
  e.fixed_us = launch_us(plan, resident, target) + kFirstTripUs + epilogue_us + (c.defer && turns <= 1 ? kDeferAloneUs : 0);

  const std::array<std::pair<double, std::string_view>, 6> terms = {{{e.matrix_us + std::max(turns - 1, 0.0) * between_us, "matrix"},
                                                                     {e.ingest_us, "ingest"},
                                                                     {e.l2_us, "l2"},
                                                                     {e.memory_us, "memory"},
                                                                     {e.latency_bound_us, "latency"},
                                                                     {e.stages_us, "stages"}}};
  const auto largest = *std::max_element(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  double sum = 0;
  for (const auto& [us, name] : terms) sum += std::pow(us / std::max(largest.first, 1e-9), kOverlapOfTerms);
  e.binds = largest.second;
  e.latency_us = std::max(e.fixed_us + largest.first * std::pow(sum, 1 / kOverlapOfTerms), floor_of(plan.shape, target).bound_us);
  return e;
}

Json regions_of(const Estimate& e, double latency_us) {
  const double launch_us = latency_us * std::min(1.0, e.fixed_us / e.latency_us);
  return {{"launch", launch_us}, {std::string(e.binds), latency_us - launch_us}};
}

}  // namespace amk::det_gemm
