// The CUDA driver API (libcuda.so.1), opened at run time. Every call is checked; an error names the call, the code and the place:
// "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory; at kernels/evaluator/cuda_runtime.cpp:20", data {call, code, name, place}.
#pragma once

#include <source_location>
#include <string>

#include "core/base/error.h"
#include "kernels/evaluator/cuda_abi.h"
#include "kernels/evaluator/shared_library.h"

namespace amk::cuda {

// Entry points. Immutable after driver() returned it; thread-safe.
struct Driver {
  using R = abi::Result;
  R (*cuInit)(unsigned flags) = nullptr;
  R (*cuDriverGetVersion)(int* version) = nullptr;
  R (*cuGetErrorName)(R code, const char** text) = nullptr;
  R (*cuGetErrorString)(R code, const char** text) = nullptr;
  R (*cuDeviceGetCount)(int* count) = nullptr;
  R (*cuDeviceGet)(abi::Device* device, int ordinal) = nullptr;
  R (*cuDeviceGetName)(char* name, int bytes, abi::Device device) = nullptr;
  R (*cuDeviceGetUuid)(abi::Uuid* uuid, abi::Device device) = nullptr;
  R (*cuDeviceGetAttribute)(int* value, abi::DeviceAttribute attribute, abi::Device device) = nullptr;
  R (*cuDeviceTotalMem)(std::size_t* bytes, abi::Device device) = nullptr;
  R (*cuDevicePrimaryCtxRetain)(abi::Context* context, abi::Device device) = nullptr;
  R (*cuDevicePrimaryCtxRelease)(abi::Device device) = nullptr;
  R (*cuCtxSetCurrent)(abi::Context context) = nullptr;
  R (*cuCtxSynchronize)() = nullptr;
  R (*cuCtxResetPersistingL2Cache)() = nullptr;
  R (*cuMemGetInfo)(std::size_t* free_bytes, std::size_t* total_bytes) = nullptr;
  R (*cuMemAlloc)(abi::DevicePtr* pointer, std::size_t bytes) = nullptr;
  R (*cuMemFree)(abi::DevicePtr pointer) = nullptr;
  R (*cuMemHostAlloc)(void** pointer, std::size_t bytes, unsigned flags) = nullptr;
  R (*cuMemFreeHost)(void* pointer) = nullptr;
  R (*cuMemcpyHtoDAsync)(abi::DevicePtr to, const void* from, std::size_t bytes, abi::Stream stream) = nullptr;
  R (*cuMemcpyDtoHAsync)(void* to, abi::DevicePtr from, std::size_t bytes, abi::Stream stream) = nullptr;
  R (*cuMemcpyDtoDAsync)(abi::DevicePtr to, abi::DevicePtr from, std::size_t bytes, abi::Stream stream) = nullptr;
  R (*cuMemsetD8Async)(abi::DevicePtr to, unsigned char value, std::size_t count, abi::Stream stream) = nullptr;
  R (*cuMemsetD32Async)(abi::DevicePtr to, unsigned value, std::size_t count, abi::Stream stream) = nullptr;
  R (*cuStreamCreate)(abi::Stream* stream, unsigned flags) = nullptr;
  R (*cuStreamDestroy)(abi::Stream stream) = nullptr;
  R (*cuStreamSynchronize)(abi::Stream stream) = nullptr;
  R (*cuStreamQuery)(abi::Stream stream) = nullptr;
  R (*cuEventCreate)(abi::Event* event, unsigned flags) = nullptr;
  R (*cuEventDestroy)(abi::Event event) = nullptr;
  R (*cuEventRecord)(abi::Event event, abi::Stream stream) = nullptr;
  R (*cuEventSynchronize)(abi::Event event) = nullptr;
  R (*cuEventElapsedTime)(float* milliseconds, abi::Event start, abi::Event end) = nullptr;
  R (*cuModuleLoadData)(abi::Module* module, const void* image) = nullptr;
  R (*cuModuleUnload)(abi::Module module) = nullptr;
  R (*cuModuleGetFunction)(abi::Function* function, abi::Module module, const char* name) = nullptr;
  R (*cuModuleGetGlobal)(abi::DevicePtr* pointer, std::size_t* bytes, abi::Module module, const char* name) = nullptr;
  R (*cuFuncGetAttribute)(int* value, abi::FunctionAttribute attribute, abi::Function function) = nullptr;
  R (*cuFuncSetAttribute)(abi::Function function, abi::FunctionAttribute attribute, int value) = nullptr;
  R(*cuOccupancyMaxActiveBlocksPerMultiprocessor)
  (int* blocks, abi::Function function, int block_threads, std::size_t dynamic_shared_bytes) = nullptr;
  R (*cuLaunchKernelEx)(const abi::LaunchConfig* config, abi::Function function, void** parameters, void** extra) = nullptr;

  int version = 0;  // 13000 = CUDA 13.0: the newest CUDA version the driver supports
  SharedLibrary library;

  // Ok, or the error of `call`. Out of memory and a missing device are Unavailable; the rest is Internal with data.code for the caller.
  Status check(R code, const char* call, const std::source_location& place) const;
};

constexpr int kMinimumDriverVersion = 12000;  // cuLaunchKernelEx and sm_90 need CUDA 12's driver

// Opens and initialises the driver once per process. Unavailable: no driver, too old, or no device; the message says which.
Result<const Driver*> driver();

}  // namespace amk::cuda

// AMK_CU(drv, member, args…): calls drv.member(args…) and returns its error from the enclosing function.
#define AMK_CU(drv, member, ...) AMK_CHECK((drv).check((drv).member(__VA_ARGS__), #member, std::source_location::current()))
