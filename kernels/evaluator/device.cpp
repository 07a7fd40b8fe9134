#include "kernels/evaluator/device.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "kernels/evaluator/cuda_driver.h"

namespace amk {
namespace {

using cuda::abi::DeviceAttribute;

std::string uuid_text(const cuda::abi::Uuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += hex.data();
  }
  return text;
}

Result<GpuDevice> describe(const cuda::Driver& d, int ordinal) {
  GpuDevice gpu;
  gpu.ordinal = ordinal;
  cuda::abi::Device device = 0;
  AMK_CU(d, cuDeviceGet, &device, ordinal);
  std::array<char, 256> name{};
  AMK_CU(d, cuDeviceGetName, name.data(), static_cast<int>(name.size()), device);
  gpu.product = name.data();
  cuda::abi::Uuid uuid{};
  AMK_CU(d, cuDeviceGetUuid, &uuid, device);
  gpu.uuid = uuid_text(uuid);
  std::size_t memory = 0;
  AMK_CU(d, cuDeviceTotalMem, &memory, device);
  gpu.memory_bytes = static_cast<std::int64_t>(memory);
  const auto read = [&](DeviceAttribute attribute) -> Result<int> {
    int value = 0;
    AMK_CU(d, cuDeviceGetAttribute, &value, attribute, device);
    return value;
  };
  AMK_TRY(major, read(DeviceAttribute::ComputeCapabilityMajor));
  AMK_TRY(minor, read(DeviceAttribute::ComputeCapabilityMinor));
  AMK_TRY(sms, read(DeviceAttribute::MultiprocessorCount));
  AMK_TRY(optin, read(DeviceAttribute::MaxSharedMemoryPerBlockOptin));
  AMK_TRY(per_sm, read(DeviceAttribute::MaxSharedMemoryPerMultiprocessor));
  AMK_TRY(registers, read(DeviceAttribute::MaxRegistersPerMultiprocessor));
  AMK_TRY(threads_sm, read(DeviceAttribute::MaxThreadsPerMultiprocessor));
  AMK_TRY(threads_block, read(DeviceAttribute::MaxThreadsPerBlock));
  AMK_TRY(l2, read(DeviceAttribute::L2CacheBytes));
  AMK_TRY(clock, read(DeviceAttribute::ClockRateKhz));
  AMK_TRY(memory_clock, read(DeviceAttribute::MemoryClockRateKhz));
  AMK_TRY(bus, read(DeviceAttribute::MemoryBusWidthBits));
  AMK_TRY(cooperative, read(DeviceAttribute::CooperativeLaunch));
  gpu.sm_major = major;
  gpu.sm_minor = minor;
  gpu.sm_count = sms;
  gpu.smem_optin_bytes = optin;
  gpu.smem_per_sm_bytes = per_sm;
  gpu.registers_per_sm = registers;
  gpu.max_threads_per_sm = threads_sm;
  gpu.max_threads_per_block = threads_block;
  gpu.l2_bytes = l2;
  gpu.clock_mhz = clock / 1000;
  gpu.memory_clock_mhz = memory_clock / 1000;
  gpu.memory_bus_bits = bus;
  gpu.cooperative_launch = cooperative != 0;
  return gpu;
}

// "NVIDIA H100 80GB HBM3" -> "h100 80gb hbm3": how records and drivers write the vendor varies.
std::string plain_product(std::string_view product) {
  std::string text(product);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::string_view kVendor = "nvidia ";
  if (text.rfind(kVendor, 0) == 0) text.erase(0, kVendor.size());
  return text;
}

}  // namespace

std::string architecture_name(int sm_major, int sm_minor) {
  const std::string number = "sm_" + std::to_string(sm_major * 10 + sm_minor);
  return sm_major == 9 ? number + "a" : number;
}

double GpuDevice::bus_bandwidth_gbs() const { return 2.0 * memory_clock_mhz * 1e6 * (memory_bus_bits / 8.0) / 1e9; }

Result<std::vector<GpuDevice>> gpu_devices() {
  AMK_TRY(d, cuda::driver());
  int count = 0;
  AMK_CU(*d, cuDeviceGetCount, &count);
  if (count == 0) return fail(ErrorKind::Unavailable, "the NVIDIA driver shows no GPU");
  std::vector<GpuDevice> gpus;
  for (int i = 0; i < count; ++i) {
    AMK_TRY(gpu, describe(*d, i));
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

GpuTarget local_target(const GpuDevice& device, const std::filesystem::path& gpus_dir) {
  GpuTarget target;
  target.name = "local";
  target.peak_bandwidth_gbs = device.bus_bandwidth_gbs();
  target.source = "driver";
  const std::string product = plain_product(device.product);
  for (const std::string& name : gpu_target_names(gpus_dir)) {
    Result<GpuTarget> record = load_gpu_target(name, gpus_dir);
    if (!record || plain_product(record->product) != product || record->sm_major != device.sm_major) continue;
    target = std::move(*record);
    break;
  }
  target.product = device.product;
  target.sm_major = device.sm_major;
  target.sm_minor = device.sm_minor;
  target.sm_count = device.sm_count;
  target.smem_optin_bytes = device.smem_optin_bytes;
  target.smem_per_sm_bytes = device.smem_per_sm_bytes;
  target.registers_per_sm = device.registers_per_sm;
  target.max_threads_per_sm = device.max_threads_per_sm;
  target.l2_bytes = device.l2_bytes;
  target.memory_bytes = device.memory_bytes;
  target.boost_clock_mhz = device.clock_mhz;
  return target;
}

}  // namespace amk
