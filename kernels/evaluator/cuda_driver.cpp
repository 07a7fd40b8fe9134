#include "kernels/evaluator/cuda_driver.h"

namespace amk::cuda {
namespace {

// Versioned names are those that cuda.h of CUDA 12 and 13 maps the plain ones to.
Status load_entry_points(const SharedLibrary& library, Driver& d) {
  AMK_CHECK(library.load(d.cuInit, "cuInit"));
  AMK_CHECK(library.load(d.cuDriverGetVersion, "cuDriverGetVersion"));
  AMK_CHECK(library.load(d.cuGetErrorName, "cuGetErrorName"));
  AMK_CHECK(library.load(d.cuGetErrorString, "cuGetErrorString"));
  AMK_CHECK(library.load(d.cuDeviceGetCount, "cuDeviceGetCount"));
  AMK_CHECK(library.load(d.cuDeviceGet, "cuDeviceGet"));
  AMK_CHECK(library.load(d.cuDeviceGetName, "cuDeviceGetName"));
  AMK_CHECK(library.load(d.cuDeviceGetUuid, "cuDeviceGetUuid_v2"));
  AMK_CHECK(library.load(d.cuDeviceGetAttribute, "cuDeviceGetAttribute"));
  AMK_CHECK(library.load(d.cuDeviceTotalMem, "cuDeviceTotalMem_v2"));
  AMK_CHECK(library.load(d.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"));
  AMK_CHECK(library.load(d.cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2"));
  AMK_CHECK(library.load(d.cuCtxSetCurrent, "cuCtxSetCurrent"));
  AMK_CHECK(library.load(d.cuCtxSynchronize, "cuCtxSynchronize"));
  AMK_CHECK(library.load(d.cuCtxResetPersistingL2Cache, "cuCtxResetPersistingL2Cache"));
  AMK_CHECK(library.load(d.cuMemGetInfo, "cuMemGetInfo_v2"));
  AMK_CHECK(library.load(d.cuMemAlloc, "cuMemAlloc_v2"));
  AMK_CHECK(library.load(d.cuMemFree, "cuMemFree_v2"));
  AMK_CHECK(library.load(d.cuMemHostAlloc, "cuMemHostAlloc"));
  AMK_CHECK(library.load(d.cuMemFreeHost, "cuMemFreeHost"));
  AMK_CHECK(library.load(d.cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"));
  AMK_CHECK(library.load(d.cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2"));
  AMK_CHECK(library.load(d.cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2"));
  AMK_CHECK(library.load(d.cuMemsetD8Async, "cuMemsetD8Async"));
  AMK_CHECK(library.load(d.cuMemsetD32Async, "cuMemsetD32Async"));
  AMK_CHECK(library.load(d.cuStreamCreate, "cuStreamCreate"));
  AMK_CHECK(library.load(d.cuStreamDestroy, "cuStreamDestroy_v2"));
  AMK_CHECK(library.load(d.cuStreamSynchronize, "cuStreamSynchronize"));
  AMK_CHECK(library.load(d.cuStreamQuery, "cuStreamQuery"));
  AMK_CHECK(library.load(d.cuEventCreate, "cuEventCreate"));
  AMK_CHECK(library.load(d.cuEventDestroy, "cuEventDestroy_v2"));
  AMK_CHECK(library.load(d.cuEventRecord, "cuEventRecord"));
  AMK_CHECK(library.load(d.cuEventSynchronize, "cuEventSynchronize"));
  AMK_CHECK(library.load(d.cuEventElapsedTime, "cuEventElapsedTime"));
  AMK_CHECK(library.load(d.cuModuleLoadData, "cuModuleLoadData"));
  AMK_CHECK(library.load(d.cuModuleUnload, "cuModuleUnload"));
  AMK_CHECK(library.load(d.cuModuleGetFunction, "cuModuleGetFunction"));
  AMK_CHECK(library.load(d.cuModuleGetGlobal, "cuModuleGetGlobal_v2"));
  AMK_CHECK(library.load(d.cuFuncGetAttribute, "cuFuncGetAttribute"));
  AMK_CHECK(library.load(d.cuFuncSetAttribute, "cuFuncSetAttribute"));
  AMK_CHECK(library.load(d.cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  AMK_CHECK(library.load(d.cuLaunchKernelEx, "cuLaunchKernelEx"));
  return {};
}

Result<Driver> open_driver() {
  Driver d;
  AMK_TRY(library, SharedLibrary::open("the NVIDIA driver library", {"libcuda.so.1"}));
  AMK_CHECK(load_entry_points(library, d));
  d.library = std::move(library);
  AMK_CU(d, cuDriverGetVersion, &d.version);
  if (d.version < kMinimumDriverVersion) {
    return fail(ErrorKind::Unavailable,
                "the NVIDIA driver supports CUDA " + std::to_string(d.version / 1000) + "." + std::to_string(d.version % 1000 / 10) +
                    "; 12.0 or newer is needed",
                {{"driver_version", d.version}, {"accepted", kMinimumDriverVersion}});
  }
  AMK_CU(d, cuInit, 0);
  return d;
}

}  // namespace

Status Driver::check(R code, const char* call, const std::source_location& place) const {
  if (code == abi::kSuccess) return {};
  const char* name = "unknown error";
  const char* text = "";
  if (cuGetErrorName != nullptr) cuGetErrorName(code, &name);
  if (cuGetErrorString != nullptr) cuGetErrorString(code, &text);
  if (name == nullptr) name = "unknown error";
  if (text == nullptr) text = "";
  std::string_view file = place.file_name();
  if (const auto at = file.rfind("kernels/"); at != std::string_view::npos) file.remove_prefix(at);  // no build folders in messages
  const std::string where = std::string(file) + ":" + std::to_string(place.line());
  const bool machine = code == abi::kOutOfMemory || code == abi::kNoDevice;
  return fail(machine ? ErrorKind::Unavailable : ErrorKind::Internal,
              std::string(call) + ": " + name + " (" + std::to_string(code) + "), " + text + "; at " + where,
              {{"call", call}, {"code", code}, {"name", name}, {"place", where}});
}

Result<const Driver*> driver() {
  static const Result<Driver> opened = open_driver();
  if (!opened) return tl::unexpected<Error>(opened.error());
  return &*opened;
}

}  // namespace amk::cuda
