#include "core/reference/dot_kernels.h"

#include <array>

#include "core/reference/dot_variants.h"

namespace amk {
namespace {

struct Table {
  std::array<DotKernels, 3> kernels{};
  std::size_t count = 0;
  Table() {
    kernels[count++] = kDot_sse2;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) kernels[count++] = kDot_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) kernels[count++] = kDot_avx512;
#endif
  }
};

const Table& table() {
  static const Table t;
  return t;
}

}  // namespace

const DotKernels& dot_kernels() { return table().kernels[table().count - 1]; }
std::span<const DotKernels> all_dot_kernels() { return {table().kernels.data(), table().count}; }

}  // namespace amk
