#include "core/target/machine_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace amk {
namespace {

constexpr double kKiB = 1024.0;
// Of shared memory, for all but the ring and the cache's rows: kernels/megakernel/device_shared.cpp. Sums take more the fewer columns a warp has.
std::int64_t attention_o_room(int warps, int columns) { return 16896 + 1150 * warps + (columns <= 128 ? 5120 : columns <= 256 ? 3072 : 0); }
constexpr double kShortVectorBytes = 8192;      // of packets, twice a vector's bytes: kernels/megakernel/device/stage.cuh
constexpr double kReferenceWindow = 40 * kKiB;  // hop_us of a target is the one with this many bytes in flight per SM, between a task and the next
constexpr double kSharingSharpness = 8;         // how sharply "limited by the window" turns into "limited by the memory"

int consumer_warps(const ScheduleConfig& config) { return std::max(1, config.threads_per_block / 32 - 1); }

// cp.async groups: the commit and wait of a group cost what moving 512 bytes costs.
double cpasync_efficiency(const ScheduleConfig& config) {
  const double group = config.kernel.cpa_cols * 2.0 * 8;
  return 0.97 * group / (group + 512.0);
}

bool uses_cpasync(const ScheduleConfig& config, const GpuTarget& target) { return config.kernel.cpasync || target.sm_major < 9; }

// Of one SM's ring: copies in flight ahead of the task at hand, and one more while consumers sit in it, as far as there are slots beside those that
// its warps read from (kernels/megakernel/device_shapes.cpp, shape_ring).
struct Window {
  double ahead_bytes = 0, bytes = 0;
  bool hoisted = true;  // a task's first segment is in registers when its wait ends
};

Window window_of(const ScheduleConfig& config, const GpuTarget& target) {
  const int warps = consumer_warps(config);
  if (config.smem_bytes_per_block == 0) {  // a warp's segment of 4 KB, loaded before the one at hand is multiplied
    const double bytes = warps * 32 * 16.0 * 8;
    return {bytes, bytes, true};
  }
  const int chunk = config.kernel.chunk_bytes, slots = std::max<int>(1, static_cast<int>(config.smem_bytes_per_block) / chunk);
  const int segments = std::max(1, chunk / (config.kernel.cols_per_warp * 16)), read_from = (warps + segments - 1) / segments;
  int ahead = config.kernel.inflight_chunks;
  if (uses_cpasync(config, target)) ahead = std::min(ahead, config.kernel.cpa_stages);
  const int boost = uses_cpasync(config, target) ? 0 : std::clamp(slots - read_from - ahead, 0, 1);
  const double most = std::max(1, slots - read_from);
  return {std::min<double>(ahead, most) * chunk, std::min<double>(ahead + boost, most) * chunk, slots >= 2 * read_from + ahead + boost + 1};
}

double fma_column_share(int cols_per_warp) { return std::max(0.5, 1.0 - 0.08 * std::abs(std::log2(cols_per_warp / 256.0))); }

}  // namespace

int registers_of(int threads, const GpuTarget& target) {
  constexpr int kSchedulers = 4, kWarp = 32, kMost = 255;
  const int warps = (threads + kWarp - 1) / kWarp, fullest = (warps + kSchedulers - 1) / kSchedulers;
  return std::min(kMost, static_cast<int>(target.registers_per_sm) / kSchedulers / (fullest * kWarp) / 8 * 8);
}

double lower_of(double a, double b) {
  const double least = std::min(a, b), most = std::max(a, b);
  return least / std::pow(1.0 + std::pow(least / most, kSharingSharpness), 1.0 / kSharingSharpness);
}

double chunk_efficiency(double chunk_bytes) {
  constexpr std::array<std::pair<double, double>, 4> kMeasured = {
      {{4 * kKiB, 2.4 / 4.58}, {8 * kKiB, 4.3 / 4.58}, {16 * kKiB, 4.55 / 4.58}, {32 * kKiB, 1.0}}};
  if (chunk_bytes <= kMeasured.front().first) return kMeasured.front().second * chunk_bytes / kMeasured.front().first;
  for (std::size_t i = 1; i < kMeasured.size(); ++i) {
    if (chunk_bytes > kMeasured[i].first) continue;
    const double at = std::log2(chunk_bytes / kMeasured[i - 1].first) / std::log2(kMeasured[i].first / kMeasured[i - 1].first);
    return kMeasured[i - 1].second + at * (kMeasured[i].second - kMeasured[i - 1].second);
  }
  return 1.0;
}

MachineRates machine_rates(const ScheduleConfig& config, const GpuTarget& target, double l2_share, const CostConstants& k) {
  MachineRates rates;
  const bool slices = rates.slices = config.kernel.gemv_path == GemvPath::Slices;
  const double warps = consumer_warps(config);
  rates.clock_mhz = target.boost_clock_mhz > 0 ? target.boost_clock_mhz : 1800;
  rates.ring = config.smem_bytes_per_block > 0;
  rates.ring_bytes = config.smem_bytes_per_block;
  rates.chunk_bytes = rates.ring ? config.kernel.chunk_bytes : 2048;

  // Load on the memory system stretches every request: hops, polls, fetches.
  const Window window = window_of(config, target);
  // Of slices, a stage brings less than any window would hold.
  const double load = slices ? 1.0 : std::min(k.max_load, std::pow((window.ahead_bytes + window.bytes) / 2 / kReferenceWindow, k.hop_exponent));
  rates.sight_us = k.busy_sight_us * load;
  rates.idle_sight_us = k.sight_us;
  switch (config.kernel.publish) {
    case Publish::Release:
      rates.lone_publish_us = k.lone_release_us;
      rates.idle_publish_us = k.release_us;
      rates.publish_us = std::max(k.release_us, (target.hop_us * k.hop_scale - k.busy_sight_us) * load);
      break;
    case Publish::Confirmed:
      rates.idle_publish_us = k.confirmed_us;
      rates.lone_publish_us = k.lone_confirmed_us;
      rates.publish_us = k.confirmed_us + k.busy_publish_us * load;
      break;
    case Publish::Flagged:
      rates.idle_publish_us = rates.lone_publish_us = slices ? k.slices_publish_us : k.flagged_us;
      rates.publish_us = rates.idle_publish_us + (slices ? 0.0 : k.busy_publish_us * load);
      rates.fetched_bytes = k.packet_fetch;
      rates.looked_for_bytes = slices ? 1e12 : kShortVectorBytes * k.packet_fetch / 2;
      break;
  }
  rates.idle_fetch_us = target.l2_latency_us;
  rates.fetch_us = target.l2_latency_us * std::max(1.0, load);

  // Where the weights come from.
  const double hbm =
      (target.read_bandwidth_gbs > 0 ? target.read_bandwidth_gbs : target.peak_bandwidth_gbs * k.unmeasured_read_share) * k.stream_share * 1e3;
  const double l2 = std::max(hbm, k.l2_bytes_per_clock_sm * rates.clock_mhz * target.sm_count);
  double bandwidth = 1.0 / (l2_share / l2 + (1.0 - l2_share) / hbm);
  if (rates.ring) bandwidth *= chunk_efficiency(config.kernel.chunk_bytes);
  if (uses_cpasync(config, target) && rates.ring) bandwidth *= cpasync_efficiency(config) * (target.sm_major >= 9 ? k.cpasync_share : 1.0);
  if (config.kernel.publish == Publish::Flagged) rates.waiting_share = 1.0 - std::min(0.5, k.flagged_traffic * load);
  const double latency_us = l2_share * target.l2_latency_us + (1.0 - l2_share) * k.load_latency_us;
  rates.load_latency_us = latency_us;
  rates.opened_bytes = window.bytes;
  rates.sm_bytes_per_us = window.bytes / latency_us;
  rates.sm_ahead_bytes_per_us = window.ahead_bytes / latency_us;
  rates.memory_bytes_per_us = bandwidth;
  rates.total_bytes_per_us = lower_of(rates.sm_bytes_per_us, bandwidth / target.sm_count) * target.sm_count;

  // How fast an SM eats what has landed.
  const double cap = (slices ? k.slices_bytes_per_clock : k.shared_bytes_per_clock) * rates.clock_mhz;
  double per_warp = k.consume_bytes_per_clock_warp * rates.clock_mhz;
  if (config.kernel.gemv_path == GemvPath::Fma) per_warp *= k.fma_share * fma_column_share(config.kernel.cols_per_warp);
  if (config.kernel.weight_layout == WeightLayout::Row) per_warp *= k.row_share;
  const double registers = registers_of(config.threads_per_block, target);
  double raw = cap * (1.0 - std::exp(-warps * per_warp / cap));
  const double spilt = slices ? 1.0 : std::pow(std::min(1.0, registers / k.registers_wanted), k.spill_exponent);
  raw *= spilt;
  rates.warp_bytes_per_us = raw / warps;
  rates.lone_warp_bytes_per_us = per_warp * spilt;
  rates.step_us = k.step_us;
  if (config.kernel.gemv_path == GemvPath::Fma) rates.fma_us_per_byte = k.fma_us_per_kb / kKiB;
  rates.odd_step_us = k.odd_step_us;
  rates.turn_us = k.turn_us;
  rates.last_turn_us = k.last_turn_us;
  rates.unhoisted_us = window.hoisted ? 0.0 : k.unhoisted_us;
  rates.columns = config.kernel.cols_per_warp;
  rates.packed = config.kernel.weight_layout == WeightLayout::Packed;

  rates.l2_sm_bytes_per_us = std::min(2.0 * k.l2_bytes_per_clock_sm, 4.0 * warps) * rates.clock_mhz;
  rates.attention_bytes_per_us = std::min(2.0 * k.l2_bytes_per_clock_sm, k.attention_bytes_per_clock_warp * warps) * rates.clock_mhz;
  rates.ring_attention_bytes_per_us = k.ring_attention_bytes_per_clock * rates.clock_mhz;
  rates.late_kv_share = k.late_kv_share;
  rates.ring_keys = (warps + 1) * 16;
  rates.task_us = k.task_us + k.task_us_per_warp * warps;
  const auto spilt_us = [&](double wanted, double us) { return us * (std::pow(std::max(1.0, wanted / registers), k.slices_spill) - 1); };
  rates.attention_spill_us = spilt_us(k.attention_registers, k.attention_spill_us);
  if (slices) {
    rates.task_us = k.slices_task_us + spilt_us(k.slices_registers, k.slices_spill_us) + k.slices_quad_us * std::max(0.0, std::ceil(warps / 4) - 3);
    rates.attention_spill_us = spilt_us(k.slices_attention_registers, k.slices_attention_spill_us);
    rates.group_us = k.slices_group_us;
    rates.slices_turn_us = k.slices_turn_us;
    rates.poll_us = k.slices_poll_us;
    rates.attention_o_turn_us = k.attention_o_turn_us;
    rates.block_us = k.slices_block_us;
    rates.head_us = k.attention_o_us;
    rates.round_us = k.attention_o_round_us;
    rates.late_us = k.attention_o_late_us;
    rates.late_bytes_per_us = k.attention_o_late_bytes_per_clock * rates.clock_mhz;
    if (!rates.ring) rates.slices_direct_us = k.slices_direct_us;
    if (!rates.ring) rates.unit_us = k.slices_unit_us;
    rates.slices_head_us = k.slices_head_us + (attention_in_o(config.fusion) ? 0.0 : rates.attention_spill_us);
    const std::int64_t room =
        target.smem_optin_bytes - config.smem_bytes_per_block - attention_o_room(consumer_warps(config), config.kernel.cols_per_warp);
    if (!uses_cpasync(config, target)) rates.staged_bytes = static_cast<double>(std::max<std::int64_t>(0, room));
  }
  rates.warps = static_cast<int>(warps);
  rates.norm_us = k.norm_us;
  rates.lag_us = k.lag_us;
  rates.soon_lag_us = k.soon_lag_us;
  rates.attention_us = slices ? k.slices_attention_us : k.attention_us;
  rates.merge_us = slices ? k.slices_merge_us : k.merge_us;
  rates.asked_share = k.asked_share;
  rates.append_us = config.kernel.publish == Publish::Confirmed ? k.append_us : 0.0;
  if (config.kernel.publish == Publish::Flagged && !slices) {
    rates.row_us = k.flagged_row_us;
    rates.row_looks = k.flagged_row_looks;
  }
  if (config.kernel.publish == Publish::Confirmed) rates.publish_us_per_byte = k.confirmed_us_per_kb / kKiB;
  rates.launch_us = k.launch_us;
  return rates;
}

}  // namespace amk
