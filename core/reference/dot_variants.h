// The variants that were compiled in. Internal to core/reference.
#pragma once

#include "core/reference/dot_kernels.h"

namespace amk {

extern const DotKernels kDot_sse2;
extern const DotKernels kDot_avx2;    // x86-64 only
extern const DotKernels kDot_avx512;  // x86-64 only

}  // namespace amk
