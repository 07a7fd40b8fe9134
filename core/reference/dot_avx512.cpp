#include "core/reference/dot_variants.h"
#ifdef __AVX512F__
#include "core/reference/dot_kernels.inl"

namespace amk {
const DotKernels kDot_avx512 = {"avx512", gemv_any};
}
#endif
