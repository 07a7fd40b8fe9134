// Every layout, op, output type, path and edge against the CPU oracle, bit for bit.
#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {
namespace {

std::size_t differing(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  if (a.size() != b.size()) return a.size() + b.size();
  std::size_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += a[i] != b[i];
  return n;
}

void check_all(Runner& runner, Checks& checks, const Operands& operands, const std::vector<Config>& configs, const NumericClass& numeric,
               const std::string& note) {
  const auto want = expected(operands, numeric);
  bool served = false;
  for (const Config& config : configs) {
    if (!make_plan(operands.shape, operands.storage, config, runner.target())) continue;
    served = true;
    const auto got = run_case(runner, operands, config);
    const std::string what = note + " " + describe(operands.shape, config);
    checks.expect_ok(got, what);
    if (got) checks.expect(differing(*got, want) == 0, what + ": " + std::to_string(differing(*got, want)) + " elements differ");
  }
  checks.expect(served, note + " " + describe(operands.shape, configs[0]) + ": no config serves this shape");
}

}  // namespace

void test_layouts(Runner& runner, Checks& checks, const Options& options) {
  const NumericClass numeric = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  std::vector<Canonical> shapes;
  for (bool x_k : {true, false})
    for (bool y_k : {true, false})
      for (OutType out : {OutType::Bf16, OutType::Fp32}) {
        shapes.push_back({.m = 264, .n = 328, .k = 200, .x_k_contiguous = x_k, .y_k_contiguous = y_k, .out = out});
        if (!options.quick) shapes.push_back({.m = 520, .n = 72, .k = 1048, .x_k_contiguous = x_k, .y_k_contiguous = y_k, .out = out});
      }
  std::vector<std::pair<Canonical, Storage>> with_storage;
  // Columns that 112 and 24 divide: column tiles with padding of their own.
  for (const OutType out : {OutType::Bf16, OutType::Fp32}) shapes.push_back({.m = 136, .n = 336, .k = 200, .y_k_contiguous = false, .out = out});
  for (const Canonical& s : shapes) with_storage.emplace_back(s, dense_storage(s));
  prebuild(runner, with_storage, options.quick ? few_configs() : all_configs());
  std::uint64_t seed = 100;
  for (const Canonical& shape : shapes) {
    check_all(runner, checks, make_operands(shape, seed++, 4), options.quick ? few_configs() : all_configs(), numeric, "layout");
  }

  // Small, odd, strided, misaligned: every layout. All are built at once before the first runs.
  std::vector<std::pair<std::string, Operands>> small;
  for (bool x_k : {true, false}) {
    for (bool y_k : {true, false}) {
      for (const auto& [m, n, k] :
           {std::array{1, 8, 8}, std::array{17, 24, 40}, std::array{33, 45, 51}, std::array{5, 3, 1}, std::array{70, 9, 130}}) {
        Canonical shape{
            .m = m, .n = n, .k = k, .x_k_contiguous = x_k, .y_k_contiguous = y_k, .out = (m + n) % 2 == 0 ? OutType::Bf16 : OutType::Fp32};
        small.emplace_back("small", make_operands(shape, seed++, 4));
        small.emplace_back("strided", make_operands(shape, seed++, 4, 8));
        small.emplace_back("odd stride", make_operands(shape, seed++, 4, 3));
        Operands shifted = make_operands(shape, seed++, 4, 8);
        misalign(shifted, 1);
        small.emplace_back("base off by one element", std::move(shifted));
      }
    }
  }
  with_storage.clear();
  for (const auto& [note, operands] : small) with_storage.emplace_back(operands.shape, operands.storage);
  prebuild(runner, with_storage, few_configs());
  for (const auto& [note, operands] : small) check_all(runner, checks, operands, few_configs(), numeric, note);

  // Empty contraction: zeros, from the paths that serve it.
  check_all(runner, checks, make_operands({.m = 20, .n = 24, .k = 0}, 1), few_configs(), numeric, "empty contraction");
  // Empty output: nothing happens.
  const auto nothing = run_case(runner, make_operands({.m = 0, .n = 24, .k = 16}, 1), plain_kernel_config());
  checks.expect(nothing && nothing->empty(), "empty output");

  // Small integers are exact, one-hot rows copy.
  Operands integers = make_operands({.m = 136, .n = 136, .k = 512, .out = OutType::Fp32}, 7);
  Rng rng(3);
  for (auto* values : {&integers.x, &integers.y})
    for (auto& v : *values) v = float_to_bf16(static_cast<float>(static_cast<int>(rng.below(9)) - 4));
  check_all(runner, checks, integers, few_configs(), numeric, "integers");
}

}  // namespace amk::det_gemm::gpu_test
