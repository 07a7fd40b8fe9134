// What this machine has for GPU work, for `amk doctor`; and the read bandwidth, measured once per GPU.
#pragma once

#include <filesystem>
#include <span>

#include "core/base/error.h"
#include "kernels/evaluator/build_cache.h"
#include "kernels/evaluator/device.h"

namespace amk {

// {"gpus": [{uuid, product, architecture, sm_count, …, "read_bandwidth_gbs"?}], "driver", "cuda", "nvrtc", "nvml", "missing": [text]}. Never fails:
// what is absent is in "missing". `facts` is the file of measured figures (may not exist).
Json gpu_report(const std::filesystem::path& facts);

struct ReadBandwidth {
  double gbs = 0;       // 10^9 bytes a second
  bool lasting = true;  // false: the samples differ, as beside other programs on the card; the figure is of this moment
};
// The shortest of samples of so many bytes. Lasting when most of them took as long, within 5%. Unavailable when none took any time. Pure.
Result<ReadBandwidth> read_bandwidth_of(std::span<const double> samples_us, std::size_t bytes);

// Of plain loads over a buffer far larger than L2, five samples after warm-up. Needs the GPU; the caller holds its lock.
Result<ReadBandwidth> measure_read_bandwidth(const GpuDevice& device, const Compiler& compiler, const BuildCache& cache);

// Remembered by UUID in `facts` when it is lasting, measured when absent. A file that cannot be read or written costs only the memory.
Result<ReadBandwidth> read_bandwidth(const GpuDevice& device, const std::filesystem::path& facts, const Compiler& compiler, const BuildCache& cache);

}  // namespace amk
