// A known-good program: tells a broken GPU or driver from a broken candidate.
#pragma once

#include "kernels/evaluator/cuda_runtime.h"

namespace amk {

// Copies a pattern to the GPU, there, and back, and compares. Unavailable when it comes back changed; else the driver's error.
Status probe_gpu(const cuda::Context& context);

}  // namespace amk
