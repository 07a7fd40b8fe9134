// What must fail before a launch does, with a clear error.
#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {

void test_errors(Runner& runner, Checks& checks, const Options&) {
  const Canonical shape{.m = 128, .n = 128, .k = 64};
  Config config = few_configs()[0];
  config.cluster_m = 1;
  const auto plan = make_plan(shape, dense_storage(shape), config, runner.target());
  checks.expect_ok(plan, "plan");
  if (!plan) return;
  const auto gemm = runner.compile(*plan);
  checks.expect_ok(gemm, "compile");
  if (!gemm) return;
  const auto memory = cuda::Memory::allocate(1 << 20);
  checks.expect_ok(memory, "allocate");
  if (!memory) return;
  const auto at = memory->pointer();
  const Status off = (*gemm)->launch({at + 2, at + 65536, at + 131072, 0}, runner.stream().handle());
  checks.expect(!off && off.error().kind == ErrorKind::InvalidArgument, "a base off by 2 bytes is refused before launch");
  const Status fine = (*gemm)->launch({at, at + 65536, at + 131072, 0}, runner.stream().handle());
  checks.expect(fine.has_value(), "an aligned base is accepted");
  checks.expect_ok(runner.synchronize().has_value() ? Result<int>(0) : Result<int>(fail(ErrorKind::Internal, "launch failed")), "synchronize");

  Canonical odd = shape;
  odd.k = 51;
  const auto refused = make_plan(odd, dense_storage(odd), config, runner.target());
  checks.expect(!refused && refused.error().message.rfind("tma_alignment:", 0) == 0, "an odd stride is refused by TMA paths, with the rule's name");
}

}  // namespace amk::det_gemm::gpu_test
