// Single k16 steps: mma.sync and wgmma against the CPU's definition, over every family of step_cases.h.
#include <bit>
#include <cstdio>
#include <fstream>

#include "kernels/det_gemm/chain_step.h"
#include "kernels/det_gemm/step_cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {
namespace {

constexpr std::size_t kUnits = 32;

struct Batch {
  std::vector<std::uint16_t> a, b;
  std::vector<std::uint32_t> c;
};

Batch make_batch(StepFamily family) {
  Batch batch;
  for (std::size_t i = 0; i < kUnits; ++i) {
    const StepUnit unit = step_unit(family, i);
    batch.a.insert(batch.a.end(), unit.a.begin(), unit.a.end());
    batch.b.insert(batch.b.end(), unit.b.begin(), unit.b.end());
    batch.c.insert(batch.c.end(), unit.c.begin(), unit.c.end());
  }
  return batch;
}

Result<std::vector<std::uint32_t>> run_step(Runner& runner, const Batch& batch, int variant) {
  AMK_TRY(kernel, runner.helper("step_probe.cu", "det_gemm_step_probe", {"-DDG_PROBE_WGMMA=" + std::to_string(variant)}));
  AMK_TRY(a, cuda::Memory::allocate(batch.a.size() * 2));
  AMK_TRY(b, cuda::Memory::allocate(batch.b.size() * 2));
  AMK_TRY(c, cuda::Memory::allocate(batch.c.size() * 4));
  AMK_TRY(d, cuda::Memory::allocate(batch.c.size() * 4));
  const cuda::Stream& stream = runner.stream();
  AMK_CHECK(cuda::copy_to_device(a.pointer(), batch.a.data(), batch.a.size() * 2, stream));
  AMK_CHECK(cuda::copy_to_device(b.pointer(), batch.b.data(), batch.b.size() * 2, stream));
  AMK_CHECK(cuda::copy_to_device(c.pointer(), batch.c.data(), batch.c.size() * 4, stream));
  AMK_CHECK(kernel({.grid = {kUnits}, .block = {128}, .cluster = {}}, stream, a.pointer(), b.pointer(), c.pointer(), d.pointer()));
  std::vector<std::uint32_t> out(batch.c.size());
  AMK_CHECK(cuda::copy_to_host(out.data(), d.pointer(), out.size() * 4, stream));
  AMK_CHECK(runner.synchronize());
  return out;
}

void compare(const Batch& batch, const std::vector<std::uint32_t>& got, const ChainStep& step, bool use_c, const std::string& what, Checks& checks) {
  int wrong = 0;
  std::string first;
  for (std::size_t u = 0; u < kUnits; ++u) {
    for (std::size_t i = 0; i < 64; ++i) {
      for (std::size_t j = 0; j < 8; ++j) {
        const std::size_t at = u * 512 + i * 8 + j;
        const std::uint32_t want = chain_step(use_c ? batch.c[at] : 0, &batch.a[(u * 64 + i) * 16], &batch.b[(u * 8 + j) * 16], step);
        if (want == got[at]) continue;
        if (wrong++ < 3) {
          char text[96];
          std::snprintf(text, sizeof text, " [unit %zu row %zu col %zu: c %08x want %08x got %08x]", u, i, j, batch.c[at], want, got[at]);
          first += text;
        }
      }
    }
  }
  checks.expect(wrong == 0, what + ": " + std::to_string(wrong) + " of " + std::to_string(got.size()) + " differ" + first);
}

void dump(const Options& options, const std::string& name, const std::vector<std::uint32_t>& values) {
  if (options.dump.empty()) return;
  std::ofstream file(options.dump + "/" + name + ".bin", std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * 4));
}

}  // namespace

void test_steps(Runner& runner, Checks& checks, const Options& options) {
  const auto numeric = numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  if (!numeric || numeric->step.k_step != 16) return;  // other classes are not modelled as one k16 step
  const int variants = runner.target().sm_major == 9 ? 3 : 1;
  std::vector<std::uint32_t> all;
  for (int f = 0; f < kStepFamilies; ++f) {
    const auto family = static_cast<StepFamily>(f);
    const Batch batch = make_batch(family);
    for (int variant = 0; variant < variants; ++variant) {
      const std::string what = "step " + std::string(to_string(family)) + (variant == 0 ? " mma" : variant == 1 ? " wgmma" : " wgmma without c");
      const auto got = run_step(runner, batch, variant);
      checks.expect_ok(got, what);
      if (!got) continue;
      compare(batch, *got, numeric->step, variant != 2, what, checks);
      all.insert(all.end(), got->begin(), got->end());
    }
  }
  dump(options, "steps", all);
}

}  // namespace amk::det_gemm::gpu_test
