// The GPUs of this machine as the driver describes them. Nothing is inferred from a product name except which record of config/gpus it is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/target/gpu_target.h"

namespace amk {

// What NVRTC is asked for: "sm_90a" on Hopper, the plain number elsewhere.
std::string architecture_name(int sm_major, int sm_minor);

struct GpuDevice {
  int ordinal = 0;
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string product;
  int sm_major = 0, sm_minor = 0;
  int sm_count = 0;
  std::int64_t smem_optin_bytes = 0, smem_per_sm_bytes = 0;
  int registers_per_sm = 0, max_threads_per_sm = 0, max_threads_per_block = 0;
  std::int64_t l2_bytes = 0, memory_bytes = 0;
  int clock_mhz = 0, memory_clock_mhz = 0, memory_bus_bits = 0;
  bool cooperative_launch = false;

  std::string architecture() const { return architecture_name(sm_major, sm_minor); }
  // Double data rate over the bus: what the vendor's peak is computed from. 0 when the driver does not say.
  double bus_bandwidth_gbs() const;
};

// Unavailable when there is no driver or no GPU. Creates no context: cheap, and leaves the GPU alone.
Result<std::vector<GpuDevice>> gpu_devices();

// The record of `gpus_dir` whose product is this device's, with every figure that the driver knows replaced by the driver's; without a
// match a target named "local" with the bus bandwidth as its peak.
GpuTarget local_target(const GpuDevice& device, const std::filesystem::path& gpus_dir);

}  // namespace amk
