// GPU tests of the deterministic GEMM. Usage: gpu_det_gemm [--only steps,…] [--dump DIR] [--quick]. Exit 0 when all passed, 1 otherwise, 77 without a
// GPU.
#include <cstdio>
#include <utility>

#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

using namespace amk;
using namespace amk::det_gemm;
using namespace amk::det_gemm::gpu_test;

void Checks::report(const std::string& what) const {
  std::printf("FAILED %s\n", what.c_str());
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  Options options;
  std::string only;
  bool hash = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick")
      options.quick = true;
    else if (argument == "--dump" && i + 1 < argc)
      options.dump = argv[++i];
    else if (argument == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (argument == "--hash")
      hash = true;
    else
      return std::fprintf(stderr, "unknown argument %s; accepted: --only NAME, --dump DIR, --quick, --hash\n", argument.c_str()), 2;
  }
  const auto resources = find_resources();
  if (!resources) return std::fprintf(stderr, "%s\n", resources.error().message.c_str()), 3;
  const auto runner = Runner::open(0, *resources, cache_folder());
  if (!runner) return std::fprintf(stderr, "skipped: %s\n", runner.error().message.c_str()), 77;
  if (hash) return std::printf("%s\n", fixed_problem_hash(**runner).c_str()), 0;
  Checks checks;
  const std::pair<const char*, void (*)(Runner&, Checks&, const Options&)> tests[] = {
      {"steps", test_steps},   {"layouts", test_layouts}, {"rows", test_rows},   {"order", test_order},
      {"chunks", test_chunks}, {"repeats", test_repeats}, {"large", test_large}, {"wrong", test_wrong},
      {"errors", test_errors}, {"each", test_each},       {"capi", test_capi},
  };
  for (const auto& [name, test] : tests) {
    if (!only.empty() && only != name) continue;
    const int passed = checks.passed(), failed = checks.failed();
    test(**runner, checks, options);
    std::printf("%s: %d passed, %d failed\n", name, checks.passed() - passed, checks.failed() - failed);
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed\n", checks.passed(), checks.failed());
  return checks.failed() == 0 ? 0 : 1;
}
