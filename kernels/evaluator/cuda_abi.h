// The part of the CUDA driver's C interface that we call, declared here so that building needs no CUDA toolkit. Values and layouts are
// fixed by the driver's ABI; tests/unit/evaluator compares them with cuda.h where a toolkit is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amk::cuda::abi {

using Result = int;  // CUresult
using Device = int;  // CUdevice
using DevicePtr = unsigned long long;
struct ContextOpaque;
struct ModuleOpaque;
struct FunctionOpaque;
struct StreamOpaque;
struct EventOpaque;
using Context = ContextOpaque*;
using Module = ModuleOpaque*;
using Function = FunctionOpaque*;
using Stream = StreamOpaque*;
using Event = EventOpaque*;
struct Uuid {
  char bytes[16];
};

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kNotFound = 500,
  kNotReady = 600,
  kCooperativeLaunchTooLarge = 720,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kLaunchFailed = 719,
};

enum class DeviceAttribute : int {
  MaxThreadsPerBlock = 1,
  MaxRegistersPerBlock = 12,
  ClockRateKhz = 13,
  MultiprocessorCount = 16,
  PciBusId = 33,
  PciDeviceId = 34,
  MemoryClockRateKhz = 36,
  MemoryBusWidthBits = 37,
  L2CacheBytes = 38,
  MaxThreadsPerMultiprocessor = 39,
  PciDomainId = 50,
  ComputeCapabilityMajor = 75,
  ComputeCapabilityMinor = 76,
  MaxSharedMemoryPerMultiprocessor = 81,
  MaxRegistersPerMultiprocessor = 82,
  CooperativeLaunch = 95,
  MaxSharedMemoryPerBlockOptin = 97,
  MaxPersistingL2Bytes = 108,
};

enum class FunctionAttribute : int {
  MaxThreadsPerBlock = 0,
  SharedBytes = 1,
  LocalBytes = 3,
  Registers = 4,
  MaxDynamicSharedBytes = 8,
};

constexpr unsigned kEventDefault = 0;
constexpr unsigned kStreamNonBlocking = 1;

enum class LaunchAttributeId : int { Cooperative = 2, ClusterDimension = 4, ProgrammaticStreamSerialization = 6 };
union LaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } cluster;
  int programmatic_stream_serialization;
};
struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[8 - sizeof(LaunchAttributeId)];
  LaunchAttributeValue value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

}  // namespace amk::cuda::abi
