// Wrong arithmetic must be told from right: split-K, k8 steps, reversed K, bf16 partials, atomics. Most of them stay within the error bound
// that a tolerance would allow, which is why the gate compares bits.
#include <bit>

#include "kernels/det_gemm/error_bound.h"
#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {
namespace {

// K contiguous in both operands, m a multiple of 16, n of 8, k of 512; one warp per 16×8 outputs; fp32 out.
constexpr const char* kSource = R"(
#include "types.cuh"
__device__ __forceinline__ u32 pair(const u16* p) { return p[0] | static_cast<u32>(p[1]) << 16; }
__device__ __forceinline__ void step16(float (&d)[4], const u16* x, const u16* y, i64 stride, int k) {
  const int group = threadIdx.x / 4, quad = threadIdx.x % 4;
  u32 a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = pair(x + (group + i % 2 * 8) * stride + k + quad * 2 + i / 2 * 8);
  for (int i = 0; i < 2; ++i) b[i] = pair(y + group * stride + k + quad * 2 + i * 8);
#if WRONG == 2
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#else
  mma_k16(d, a, b);
#endif
}
extern "C" __global__ void wrong(const u16* x, const u16* y, float* out, int n, int k) {
  const int group = threadIdx.x / 4, quad = threadIdx.x % 4;
  x += static_cast<i64>(blockIdx.y) * 16 * k;
  y += static_cast<i64>(blockIdx.x) * 8 * k;
  float d[4] = {0, 0, 0, 0};
#if WRONG == 1 || WRONG == 5
  float e[4] = {0, 0, 0, 0};
  for (int at = 0; at < k / 2; at += 16) step16(d, x, y, k, at);
  for (int at = k / 2; at < k; at += 16) step16(e, x, y, k, at);
#elif WRONG == 3
  for (int at = k - 16; at >= 0; at -= 16) step16(d, x, y, k, at);
#else
  for (int at = 0; at < k; at += 16) {
    step16(d, x, y, k, at);
#if WRONG == 4
    if (at % 64 == 48) for (int i = 0; i < 4; ++i) d[i] = __uint_as_float(static_cast<u32>(round_bf16(d[i])) << 16);
#endif
  }
#endif
  for (int i = 0; i < 4; ++i) {
    float* to = out + (static_cast<i64>(blockIdx.y) * 16 + group + i / 2 * 8) * n + blockIdx.x * 8 + quad * 2 + i % 2;
#if WRONG == 1
    *to = d[i] + e[i];
#elif WRONG == 5
    atomicAdd(to, d[i]);
    atomicAdd(to, e[i]);
#else
    *to = d[i];
#endif
  }
}
)";

Result<std::vector<float>> run_wrong(Runner& runner, const Operands& o, int which) {
  AMK_TRY(kernel, runner.helper_text("wrong.cu", kSource, "wrong", {"-DWRONG=" + std::to_string(which)}));
  AMK_TRY(x, cuda::Memory::allocate(o.x.size() * 2));
  AMK_TRY(y, cuda::Memory::allocate(o.y.size() * 2));
  std::vector<float> out(static_cast<std::size_t>(o.shape.m * o.shape.n));
  AMK_TRY(result, cuda::Memory::allocate(out.size() * 4));
  const cuda::Stream& stream = runner.stream();
  AMK_CHECK(cuda::copy_to_device(x.pointer(), o.x.data(), x.bytes(), stream));
  AMK_CHECK(cuda::copy_to_device(y.pointer(), o.y.data(), y.bytes(), stream));
  AMK_CHECK(cuda::fill_u8(result.pointer(), 0, result.bytes(), stream));
  const int n = static_cast<int>(o.shape.n), k = static_cast<int>(o.shape.k);
  const cuda::Launch how{.grid = {static_cast<unsigned>(o.shape.n / 8), static_cast<unsigned>(o.shape.m / 16)}, .block = {32}, .cluster = {}};
  AMK_CHECK(kernel(how, stream, x.pointer(), y.pointer(), result.pointer(), n, k));
  AMK_CHECK(cuda::copy_to_host(out.data(), result.pointer(), result.bytes(), stream));
  AMK_CHECK(runner.synchronize());
  return out;
}

}  // namespace

void test_wrong(Runner& runner, Checks& checks, const Options&) {
  const NumericClass numeric = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  const Operands o = make_operands({.m = 64, .n = 64, .k = 2048, .out = OutType::Fp32}, 61);
  const auto want = expected(o, numeric);
  const auto guard = fp64_guard(o.inputs(), numeric, {0, 0, 64, 64});
  const char* names[] = {"right", "split-K", "k8 steps", "reversed K", "bf16 partials", "atomics"};
  for (int which = 0; which <= 5; ++which) {
    const auto got = run_wrong(runner, o, which);
    checks.expect_ok(got, names[which]);
    if (!got) continue;
    std::size_t differ = 0;
    for (std::size_t i = 0; i < want.size(); ++i) differ += std::bit_cast<std::uint32_t>((*got)[i]) != want[i];
    if (which == 0)
      checks.expect(differ == 0, "the right arithmetic passes: " + std::to_string(differ) + " differ");
    else
      checks.expect(differ > want.size() / 4, std::string(names[which]) + " differs in only " + std::to_string(differ) + " elements");
    if (which != 4) checks.expect(first_violation(guard, *got) == -1, std::string(names[which]) + " is within the error bound");
  }
}

}  // namespace amk::det_gemm::gpu_test
