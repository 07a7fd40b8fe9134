// Our declarations of the driver's interface against cuda.h, where a toolkit is installed.
#include <doctest/doctest.h>

#include "kernels/evaluator/cuda_abi.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace abi = amk::cuda::abi;

TEST_CASE("cuda abi: values equal cuda.h's") {
  const auto attribute = [](abi::DeviceAttribute a) { return static_cast<int>(a); };
  CHECK(attribute(abi::DeviceAttribute::MaxThreadsPerBlock) == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  CHECK(attribute(abi::DeviceAttribute::MaxRegistersPerBlock) == CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  CHECK(attribute(abi::DeviceAttribute::ClockRateKhz) == CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  CHECK(attribute(abi::DeviceAttribute::MultiprocessorCount) == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  CHECK(attribute(abi::DeviceAttribute::PciBusId) == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  CHECK(attribute(abi::DeviceAttribute::PciDeviceId) == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  CHECK(attribute(abi::DeviceAttribute::PciDomainId) == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  CHECK(attribute(abi::DeviceAttribute::MemoryClockRateKhz) == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  CHECK(attribute(abi::DeviceAttribute::MemoryBusWidthBits) == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  CHECK(attribute(abi::DeviceAttribute::L2CacheBytes) == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  CHECK(attribute(abi::DeviceAttribute::MaxThreadsPerMultiprocessor) == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  CHECK(attribute(abi::DeviceAttribute::ComputeCapabilityMajor) == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  CHECK(attribute(abi::DeviceAttribute::ComputeCapabilityMinor) == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  CHECK(attribute(abi::DeviceAttribute::MaxSharedMemoryPerMultiprocessor) == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  CHECK(attribute(abi::DeviceAttribute::MaxRegistersPerMultiprocessor) == CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  CHECK(attribute(abi::DeviceAttribute::CooperativeLaunch) == CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  CHECK(attribute(abi::DeviceAttribute::MaxSharedMemoryPerBlockOptin) == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  CHECK(attribute(abi::DeviceAttribute::MaxPersistingL2Bytes) == CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE);
  CHECK(static_cast<int>(abi::FunctionAttribute::MaxThreadsPerBlock) == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  CHECK(static_cast<int>(abi::FunctionAttribute::SharedBytes) == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  CHECK(static_cast<int>(abi::FunctionAttribute::LocalBytes) == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  CHECK(static_cast<int>(abi::FunctionAttribute::Registers) == CU_FUNC_ATTRIBUTE_NUM_REGS);
  CHECK(static_cast<int>(abi::FunctionAttribute::MaxDynamicSharedBytes) == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  CHECK(abi::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(abi::kNoDevice == CUDA_ERROR_NO_DEVICE);
  CHECK(abi::kNotReady == CUDA_ERROR_NOT_READY);
  CHECK(abi::kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(abi::kLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT);
  CHECK(abi::kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(abi::kCooperativeLaunchTooLarge == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CHECK(abi::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
  CHECK(static_cast<int>(abi::LaunchAttributeId::Cooperative) == CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  CHECK(static_cast<int>(abi::LaunchAttributeId::ClusterDimension) == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  CHECK(static_cast<int>(abi::LaunchAttributeId::ProgrammaticStreamSerialization) == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
}

TEST_CASE("cuda abi: layouts equal cuda.h's") {
  CHECK(sizeof(abi::LaunchConfig) == sizeof(CUlaunchConfig));
  CHECK(offsetof(abi::LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
  CHECK(offsetof(abi::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
  CHECK(offsetof(abi::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
  CHECK(offsetof(abi::LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
  CHECK(sizeof(abi::LaunchAttribute) == sizeof(CUlaunchAttribute));
  CHECK(offsetof(abi::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
  CHECK(sizeof(abi::Uuid) == sizeof(CUuuid));
  CHECK(sizeof(abi::DevicePtr) == sizeof(CUdeviceptr));
}
#endif
