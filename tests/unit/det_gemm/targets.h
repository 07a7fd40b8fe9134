// GPU targets by name.
#pragma once

#include <filesystem>

#include "core/target/gpu_target.h"

namespace amk::det_gemm {

inline GpuTarget gpu(const char* name = "h200") { return load_gpu_target(name, std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus").value(); }

}  // namespace amk::det_gemm
