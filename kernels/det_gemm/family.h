// The deterministic GEMM family: batch-invariant bf16 products whose bits do not depend on the schedule; the schedule is searched.
#pragma once

#include <memory>

#include "kernels/family.h"

namespace amk {

// Accepts "det_gemm:…": det_gemm:<fwd|da|db>:<M>x<N>x<K>[:kn|nk][:fp32][:chunk<tokens>] or a name of config/shapes/det_gemm.json.
std::unique_ptr<KernelFamily> make_det_gemm_family();

}  // namespace amk
