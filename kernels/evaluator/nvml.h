// NVML, the management library of NVIDIA's driver, opened at run time: clocks, throttle reasons, other processes. Read-only: amk never
// changes a card's settings. Absent NVML is no error for timing: readings are then missing and the verdict says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace amk {

// nvml.h: nvmlClocksEventReason* (formerly nvmlClocksThrottleReason*).
enum ThrottleReason : std::uint64_t {
  kThrottleIdle = 0x1,
  kThrottleApplicationClocks = 0x2,
  kThrottleSoftwarePower = 0x4,
  kThrottleHardwareSlowdown = 0x8,
  kThrottleSyncBoost = 0x10,
  kThrottleSoftwareThermal = 0x20,
  kThrottleHardwareThermal = 0x40,
  kThrottlePowerBrake = 0x80,
};
// Reasons that make a sample unfair: the card ran slower than it would cool and fully powered. Idle and set clocks are not among them.
constexpr std::uint64_t kThrottleUnfair =
    kThrottleSoftwarePower | kThrottleHardwareSlowdown | kThrottleSoftwareThermal | kThrottleHardwareThermal | kThrottlePowerBrake;
std::string throttle_text(std::uint64_t reasons);  // "software-power, hardware-thermal"; "none"

struct GpuReading {
  int sm_mhz = 0, memory_mhz = 0;
  std::uint64_t throttle_reasons = 0;
  std::optional<int> temperature_c;
  std::optional<double> power_w;
};

class Nvml {
 public:
  static Result<const Nvml*> open();  // once per process
  // Handle of a GPU by the driver's UUID text ("GPU-…"). Valid for the process.
  Result<void*> device(const std::string& uuid) const;
  Result<GpuReading> read(void* device) const;
  Result<int> max_sm_mhz(void* device) const;
  // Processes that hold a compute context on the GPU, ours included. Ids are those of the host: inside a container they may be unknown.
  Result<std::vector<std::uint32_t>> compute_processes(void* device) const;
  Result<std::string> driver_version() const;

 private:
  struct Api;
  friend struct NvmlLoader;
  const Api* api_ = nullptr;
};

}  // namespace amk
