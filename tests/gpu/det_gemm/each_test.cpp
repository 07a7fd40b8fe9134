// Every kernel variant once, on the smallest problem that has several tiles, a partial one at each edge and more k blocks than a turn of a short
// ring: what compute-sanitizer, which slows a launch by three orders of magnitude, can get through.
#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {

void test_each(Runner& runner, Checks& checks, const Options&) {
  const NumericClass base = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  std::vector<Config> configs = all_configs();
  Config totals = configs[0];
  totals.cluster_m = 1, totals.tile_n = 176;
  configs.push_back(totals);
  totals.tile_m = 192, totals.consumers = 3, totals.tile_n = 120;
  configs.push_back(totals);
  struct Case {
    Operands operands;
    const Config* config;
    NumericClass numeric;
  };
  std::vector<Case> cases;
  std::vector<Plan> plans;
  for (std::size_t index = 0; index < configs.size(); ++index) {
    for (const int mode : {0, 1, 2}) {  // one chain; in chunks; a chain resumed from sums
      const bool chunks = mode == 1, resumed = mode == 2;
      // Edges anywhere, or where a swizzled row of 64 ends.
      Canonical shape{.m = 264, .n = 328, .k = 200};
      if ((index / 2 + static_cast<std::size_t>(mode)) % 2 == 1) shape = {.m = 320, .n = 384, .k = 320};
      shape.x_k_contiguous = mode == 0 && index % 2 == 0;  // layouts and outputs in turn
      shape.y_k_contiguous = mode == 0 && index % 3 == 0;
      shape.out = index % 4 == 0 ? OutType::Fp32 : OutType::Bf16;
      shape.chunk = chunks ? 64 : 0;
      shape.resumed = resumed;
      auto plan = make_plan(shape, dense_storage(shape), configs[index], runner.target());
      if (!plan) continue;
      plans.push_back(std::move(*plan));
      cases.push_back({make_operands(shape, 900 + index, 4), &configs[index], chunks ? *chunked(base, shape.chunk) : base});
    }
  }
  checks.expect(cases.size() > configs.size(), "most variants serve the problem, alone, in chunks and resumed: " + std::to_string(cases.size()));
  if (const auto resources = find_resources()) (void)Runner::prebuild(plans, *resources, cache_folder(), 0);
  for (const Case& c : cases) {
    // Fewer blocks than tiles: rings go on from tile to tile. Sums of +0 are what any chain starts from.
    const std::vector<float> sums(c.operands.shape.resumed ? static_cast<std::size_t>(c.operands.shape.m * c.operands.shape.n) : 0);
    const auto got = run_case(runner, c.operands, *c.config, 8, sums);
    checks.expect(got && *got == expected(c.operands, c.numeric),
                  "each " + describe(c.operands.shape, *c.config) + (got ? "" : ": " + got.error().message));
  }
}

}  // namespace amk::det_gemm::gpu_test
