#include "core/reference/dot_variants.h"

#include "core/reference/dot_kernels.inl"

namespace amk {
const DotKernels kDot_sse2 = {"sse2", gemv_any};
}
