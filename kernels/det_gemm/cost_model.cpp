#include "kernels/det_gemm/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/det_gemm/rules.h"

namespace amk::det_gemm {
namespace {

// Measured on H100 and H200 (docs/lab/gemm.md) unless said otherwise.
constexpr double kLaunchUs = 2.3;             // K = 64 launches in a graph, both cards
constexpr double kSharedLaunchUs = 1.4;       // the same where launches overlap and two of them fit one SM
constexpr double kRoundTripUs = 1.1;          // issue of a copy to data in shared memory, under load
constexpr double kIngestBytesPerClock = 64;   // one SM's port to L2
constexpr double kL2BytesPerClockPerSm = 40;  // all SMs reading at once
constexpr double kPowerShare = 0.76;          // share of the peak matrix rate that random data sustains at the power limit
constexpr double kSustainedShare = 0.94;      // of the peak bandwidth, where no measured figure is recorded
constexpr double kDirectStoreClocks = 40;     // per 8 columns of 16 rows and warp: half-sector stores
constexpr double kStagedStoreClocks = 10;
constexpr double kMmaShare = 0.33;  // of the wgmma rate that mma.sync reaches (241 of 753 TFLOP/s)
constexpr double kPlainShare = 0.02;

double clock_mhz(const GpuTarget& t) { return t.boost_clock_mhz > 0 ? t.boost_clock_mhz : 1500; }
double ceil_div(std::int64_t a, std::int64_t b) { return static_cast<double>((a + b - 1) / b); }

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
  double l2_bytes = stage_bytes;
  if (c.path == Path::Wgmma) {
    const int lines_y = y_lines(c, r);
    stage_bytes = static_cast<double>(tile_m + lines_y) * c.tile_k * 2;
    const double x_bytes = std::min<double>(tile_m, std::max<double>(8, static_cast<double>(r.m))) * c.tile_k * 2;
    const double y_bytes = (r.y_k_contiguous ? std::min<double>(lines_y, std::max<double>(8, static_cast<double>(r.n))) : lines_y) * c.tile_k * 2;
    l2_bytes = x_bytes / c.cluster_n + y_bytes / c.cluster_m;  // multicast: each block fetches its share
    // wgmma reads 64 rows of x and all of y from shared memory at 128 bytes a clock, while copies write into it.
    const double instructions = tile_m / 64.0 * c.tile_k / 16.0;
    matrix_clocks = std::max(matrix_clocks, instructions * (2048 + 32.0 * tile_n) / 128 + stage_bytes / 128);
  }
  e.matrix_us = turns * k_blocks * matrix_clocks * blocks_per_sm / clocks_per_us;
  e.ingest_us = turns * k_blocks * stage_bytes * blocks_per_sm / kIngestBytesPerClock / clocks_per_us;
  e.l2_us = static_cast<double>(tiles) * k_blocks * l2_bytes / (kL2BytesPerClockPerSm * std::max(1, target.sm_count)) / clocks_per_us;
  e.latency_bound_us = turns * k_blocks * kRoundTripUs / std::max(1, c.stages - 1);

  const double store = c.path != Path::Wgmma || c.epilogue == Epilogue::Direct ? kDirectStoreClocks : kStagedStoreClocks;
  const double warps_rows = tile_m / 16.0 / (c.path == Path::Wgmma ? c.consumers * 4 : 8);
  const double epilogue_us = warps_rows * tile_n / 8.0 * store / clocks_per_us;
  const bool shared = c.overlap && c.producer == Producer::Warp && 2 * (plan.smem_bytes + 1024) <= target.smem_per_sm_bytes;
  e.fixed_us = (shared ? kSharedLaunchUs : kLaunchUs) + kRoundTripUs + epilogue_us;

  const std::array<std::pair<double, std::string_view>, 5> terms = {{{e.matrix_us + (turns - 1) * epilogue_us, "matrix"},
                                                                     {e.ingest_us, "ingest"},
                                                                     {e.l2_us, "l2"},
                                                                     {e.memory_us, "memory"},
                                                                     {e.latency_bound_us, "latency"}}};
  const auto largest = *std::max_element(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // The terms overlap, but never perfectly: a tenth of the others is not hidden.
  double rest = 0;
  for (const auto& [us, name] : terms) rest += us;
  e.binds = largest.second;
  e.latency_us = std::max(e.fixed_us + largest.first + 0.03 * (rest - largest.first), floor_of(plan.shape, target).bound_us);
  return e;
}

}  // namespace amk::det_gemm
