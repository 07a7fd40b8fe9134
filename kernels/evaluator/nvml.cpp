#include "kernels/evaluator/nvml.h"

#include <array>
#include <memory>

#include "kernels/evaluator/shared_library.h"

namespace amk {
namespace {

constexpr int kClockSm = 1, kClockMemory = 2;  // nvmlClockType_t
constexpr int kTemperatureGpu = 0;             // nvmlTemperatureSensors_t
constexpr int kInsufficientSize = 7;           // NVML_ERROR_INSUFFICIENT_SIZE

struct ProcessInfo {  // nvmlProcessInfo_t of the _v3 call
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

struct Nvml::Api {
  using Device = void*;
  int (*init)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*clock)(Device, int type, unsigned* mhz) = nullptr;
  int (*max_clock)(Device, int type, unsigned* mhz) = nullptr;
  int (*reasons)(Device, unsigned long long*) = nullptr;
  int (*temperature)(Device, int sensor, unsigned*) = nullptr;
  int (*power)(Device, unsigned* milliwatts) = nullptr;
  int (*processes)(Device, unsigned* count, ProcessInfo*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  SharedLibrary library;

  Status check(int code, const char* call) const {
    if (code == 0) return {};
    return fail(ErrorKind::Unavailable, std::string(call) + ": " + error_string(code) + " (" + std::to_string(code) + ")",
                {{"call", call}, {"code", code}});
  }
};

struct NvmlLoader {
  static Result<Nvml> open() {
    AMK_TRY(library, SharedLibrary::open("NVML, the NVIDIA management library,", {"libnvidia-ml.so.1"}));
    auto api = std::make_unique<Nvml::Api>();
    AMK_CHECK(library.load(api->init, "nvmlInit_v2"));
    AMK_CHECK(library.load(api->error_string, "nvmlErrorString"));
    AMK_CHECK(library.load(api->by_uuid, "nvmlDeviceGetHandleByUUID"));
    AMK_CHECK(library.load(api->clock, "nvmlDeviceGetClockInfo"));
    AMK_CHECK(library.load(api->max_clock, "nvmlDeviceGetMaxClockInfo"));
    if (!library.load(api->reasons, "nvmlDeviceGetCurrentClocksEventReasons")) {  // the name since driver 535
      AMK_CHECK(library.load(api->reasons, "nvmlDeviceGetCurrentClocksThrottleReasons"));
    }
    AMK_CHECK(library.load(api->temperature, "nvmlDeviceGetTemperature"));
    AMK_CHECK(library.load(api->power, "nvmlDeviceGetPowerUsage"));
    AMK_CHECK(library.load(api->processes, "nvmlDeviceGetComputeRunningProcesses_v3"));
    AMK_CHECK(library.load(api->driver_version, "nvmlSystemGetDriverVersion"));
    AMK_CHECK(api->check(api->init(), "nvmlInit_v2"));
    api->library = std::move(library);
    Nvml nvml;
    nvml.api_ = api.release();  // lives as long as the process, like the library
    return nvml;
  }
};

Result<const Nvml*> Nvml::open() {
  static const Result<Nvml> opened = NvmlLoader::open();
  if (!opened) return tl::unexpected<Error>(opened.error());
  return &*opened;
}

Result<void*> Nvml::device(const std::string& uuid) const {
  void* device = nullptr;
  AMK_CHECK(api_->check(api_->by_uuid(uuid.c_str(), &device), "nvmlDeviceGetHandleByUUID"));
  return device;
}

Result<GpuReading> Nvml::read(void* device) const {
  GpuReading reading;
  unsigned value = 0;
  unsigned long long reasons = 0;
  AMK_CHECK(api_->check(api_->clock(device, kClockSm, &value), "nvmlDeviceGetClockInfo"));
  reading.sm_mhz = static_cast<int>(value);
  AMK_CHECK(api_->check(api_->clock(device, kClockMemory, &value), "nvmlDeviceGetClockInfo"));
  reading.memory_mhz = static_cast<int>(value);
  AMK_CHECK(api_->check(api_->reasons(device, &reasons), "nvmlDeviceGetCurrentClocksEventReasons"));
  reading.throttle_reasons = reasons;
  if (api_->temperature(device, kTemperatureGpu, &value) == 0) reading.temperature_c = static_cast<int>(value);
  if (api_->power(device, &value) == 0) reading.power_w = value / 1000.0;
  return reading;
}

Result<int> Nvml::max_sm_mhz(void* device) const {
  unsigned value = 0;
  AMK_CHECK(api_->check(api_->max_clock(device, kClockSm, &value), "nvmlDeviceGetMaxClockInfo"));
  return static_cast<int>(value);
}

Result<std::vector<std::uint32_t>> Nvml::compute_processes(void* device) const {
  std::vector<ProcessInfo> infos(16);
  for (int attempt = 0; attempt < 4; ++attempt) {  // the list may grow between the calls
    unsigned count = static_cast<unsigned>(infos.size());
    const int code = api_->processes(device, &count, infos.data());
    if (code == kInsufficientSize) {
      infos.resize(count + 16);
      continue;
    }
    AMK_CHECK(api_->check(code, "nvmlDeviceGetComputeRunningProcesses_v3"));
    std::vector<std::uint32_t> pids;
    for (unsigned i = 0; i < count && i < infos.size(); ++i) pids.push_back(infos[i].pid);
    return pids;
  }
  return fail(ErrorKind::Unavailable, "nvmlDeviceGetComputeRunningProcesses_v3: the list of processes kept growing");
}

Result<std::string> Nvml::driver_version() const {
  std::array<char, 96> text{};
  AMK_CHECK(api_->check(api_->driver_version(text.data(), static_cast<unsigned>(text.size())), "nvmlSystemGetDriverVersion"));
  return std::string(text.data());
}

std::string throttle_text(std::uint64_t reasons) {
  static constexpr std::array<std::pair<std::uint64_t, const char*>, 8> kNames = {{{kThrottleIdle, "idle"},
                                                                                   {kThrottleApplicationClocks, "application-clocks"},
                                                                                   {kThrottleSoftwarePower, "software-power"},
                                                                                   {kThrottleHardwareSlowdown, "hardware-slowdown"},
                                                                                   {kThrottleSyncBoost, "sync-boost"},
                                                                                   {kThrottleSoftwareThermal, "software-thermal"},
                                                                                   {kThrottleHardwareThermal, "hardware-thermal"},
                                                                                   {kThrottlePowerBrake, "power-brake"}}};
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if ((reasons & bit) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text.empty() ? "none" : text;
}

}  // namespace amk
