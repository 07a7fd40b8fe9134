// What this machine has for GPU work, for `amk doctor`; and the read bandwidth, measured once per GPU.
#pragma once

#include <filesystem>

#include "core/base/error.h"
#include "kernels/evaluator/build_cache.h"
#include "kernels/evaluator/device.h"

namespace amk {

// {"gpus": [{uuid, product, architecture, sm_count, …, "read_bandwidth_gbs"?}], "driver", "cuda", "nvrtc", "nvml", "missing": [text]}. Never fails:
// what is absent is in "missing". `facts` is the file of measured figures (may not exist).
Json gpu_report(const std::filesystem::path& facts);

// Measured bandwidth of plain loads over a buffer far larger than L2, 10^9 bytes per second: the best of five, after warm-up. Needs the GPU; the
// caller holds its lock.
Result<double> measure_read_bandwidth(const GpuDevice& device, const Compiler& compiler, const BuildCache& cache);

// Remembered by UUID in `facts`, measured when absent. A file that cannot be read or written costs only the memory.
Result<double> read_bandwidth(const GpuDevice& device, const std::filesystem::path& facts, const Compiler& compiler, const BuildCache& cache);

}  // namespace amk
