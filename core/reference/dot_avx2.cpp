#include "core/reference/dot_variants.h"
#ifdef __AVX2__
#include "core/reference/dot_kernels.inl"

namespace amk {
const DotKernels kDot_avx2 = {"avx2", gemv_any};
}
#endif
