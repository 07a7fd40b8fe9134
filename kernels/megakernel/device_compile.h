// A plan's compilation: the device sources, and model, knobs and shapes as their -D. Pure. Internal to kernels/megakernel.
#pragma once

#include <cstdint>

#include "kernels/evaluator/nvrtc.h"
#include "kernels/megakernel/device_shapes.h"

namespace amk {

// `kv_now`: where this step's k and v rows lie (publish flagged), else 0.
CompileRequest compile_request(const PlanInput& in, const DeviceShapes& shapes, std::int64_t kv_now);

}  // namespace amk
