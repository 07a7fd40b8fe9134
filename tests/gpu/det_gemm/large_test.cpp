// More than 2^31 outputs: 64-bit offsets. The last rows and the rows around element 2^31 are compared with the oracle.
#include <algorithm>

#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {
namespace {

Result<std::size_t> differing_rows(Runner& runner, const Operands& o, const Config& config, const NumericClass& numeric,
                                   const std::vector<Block>& blocks) {
  AMK_TRY(plan, make_plan(o.shape, o.storage, config, runner.target()));
  AMK_TRY(gemm, runner.compile(plan));
  const cuda::Stream& stream = runner.stream();
  AMK_TRY(memory, on_device(o, stream));
  const auto& [x, y, out] = memory;
  AMK_CHECK(gemm->launch({x.pointer(), y.pointer(), out.pointer(), 0}, stream.handle()));
  std::size_t wrong = 0;
  for (const Block& block : blocks) {
    std::vector<std::uint16_t> got(static_cast<std::size_t>(block.rows * o.shape.n));
    AMK_CHECK(cuda::copy_to_host(got.data(), out.pointer() + static_cast<std::uint64_t>(block.row * o.shape.n) * 2, got.size() * 2, stream));
    AMK_CHECK(runner.synchronize());
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(block.rows * block.cols));
    oracle_block(o.inputs(), numeric, block, bits);
    const auto want = round_to_bf16(bits);
    for (std::int64_t r = 0; r < block.rows; ++r)
      for (std::int64_t c = 0; c < block.cols; ++c)
        wrong += got[static_cast<std::size_t>(r * o.shape.n + block.col + c)] != want[static_cast<std::size_t>(r * block.cols + c)];
  }
  return wrong;
}

}  // namespace

void test_large(Runner& runner, Checks& checks, const Options& options) {
  if (options.quick) return;
  const NumericClass numeric = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  const std::int64_t n = 32768, boundary = (std::int64_t{1} << 31) / n, m = boundary + 1000;
  const Operands o = make_operands({.m = m, .n = n, .k = 64}, 8);
  const std::vector<Block> blocks = {{boundary - 32, 0, 64, 64}, {boundary - 32, n - 64, 64, 64}, {m - 64, n - 64, 64, 64}, {m - 64, 0, 64, 64}};
  std::vector<Config> configs = few_configs();
  Config tma = configs[0];
  tma.epilogue = Epilogue::Tma;
  configs.push_back(tma);
  for (const Config& config : configs) {
    if (!make_plan(o.shape, o.storage, config, runner.target())) continue;
    const auto wrong = differing_rows(runner, o, config, numeric, blocks);
    checks.expect(wrong && *wrong == 0,
                  "2^31 outputs " + describe(o.shape, config) + ": " + (wrong ? std::to_string(*wrong) + " differ" : wrong.error().message));
  }
}

}  // namespace amk::det_gemm::gpu_test
