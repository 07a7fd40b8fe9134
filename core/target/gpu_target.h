// A GPU is data: config/gpus/<name>.json, or what the driver says of the local one. Value type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace amk {

struct GpuTarget {
  std::string name;                // "h100"; for a local device the record it was matched with, or "local"
  std::string product;             // vendor's product name
  int sm_major = 9, sm_minor = 0;  // compute capability
  int sm_count = 0;
  std::int64_t smem_optin_bytes = 0;  // per block
  std::int64_t smem_per_sm_bytes = 0;
  int registers_per_sm = 65536;
  int max_threads_per_sm = 2048;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  double peak_bandwidth_gbs = 0;  // vendor's peak, 10^9 bytes per second: what bound_us uses
  double read_bandwidth_gbs = 0;  // measured by `doctor` or recorded; 0 = never measured (then predictions use a fraction of the peak)
  double peak_bf16_tflops = 0;    // dense
  double l2_latency_us = 0.6;     // one round trip under light load
  double hop_us = 1.0;            // publish -> seen by a poller, under load
  double boost_clock_mhz = 0;
  std::string source;  // where the figures come from
};

Result<GpuTarget> load_gpu_target(std::string_view name, const std::filesystem::path& gpus_dir);
std::vector<std::string> gpu_target_names(const std::filesystem::path& gpus_dir);
Json to_json(const GpuTarget& target);
Result<GpuTarget> gpu_target_from_json(const Json& json);

}  // namespace amk
