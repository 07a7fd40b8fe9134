// Every device source compiles, in the forms that differ most, and ptxas keeps the matrix instructions asynchronous: where it finds it must wait for
// each of them (it says "serialized", which no result shows), a kernel runs at a fraction of its speed.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "kernels/det_gemm/launcher.h"
#include "tests/support/needs.h"

using namespace amk;
using namespace amk::det_gemm;

namespace {

const std::filesystem::path kKernels = std::filesystem::path(AMK_SOURCE_DIR) / "kernels";

Result<CompiledKernel> compiled(const Plan& plan) {
  AMK_TRY(request, compile_request(plan, kKernels));
  request.options.push_back("--ptxas-options=-v");
  AMK_TRY(nvrtc, Nvrtc::open());
  return nvrtc->compile(request);
}

void check_compiles(const Plan& plan, const std::string& what) {
  CAPTURE(what);
  const auto kernel = compiled(plan);
  REQUIRE_MESSAGE(kernel, (kernel ? "" : kernel.error().message + kernel.error().data.dump()));
  CHECK_FALSE(kernel->cubin.empty());
  CHECK(kernel->log.find("registers") != std::string::npos);  // ptxas speaks here: without it the next line would mean nothing
  CHECK_MESSAGE(kernel->log.find("serialized") == std::string::npos, kernel->log);
}

}  // namespace

TEST_CASE("a build has the folder's headers, in one order; a folder that is missing is named") {
  Plan bare;
  bare.source = "hopper.cu";
  bare.architecture = "sm_90a";
  const auto request = compile_request(bare, kKernels);
  REQUIRE(request);
  std::set<std::string> there, given;
  for (const auto& file : std::filesystem::directory_iterator(kKernels / "det_gemm" / "device"))
    if (file.path().extension() == ".cuh") there.insert(file.path().filename().string());
  std::vector<std::string> order;
  for (const auto& [name, text] : request->headers) given.insert(name), order.push_back(name);
  CHECK(given == there);
  CHECK(there.count("hopper_block.cuh") == 1);
  CHECK(std::is_sorted(order.begin(), order.end()));
  const auto none = compile_request(bare, kKernels / "nowhere");
  REQUIRE_FALSE(none);
  CHECK(none.error().kind == ErrorKind::Io);
  CHECK(none.error().message.find((kKernels / "nowhere").string()) != std::string::npos);
}

TEST_CASE("device sources compile, and no wgmma is serialised" * test::needs_nvrtc()) {
  const auto target = load_gpu_target("h200", std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus");
  REQUIRE(target);
  const Canonical forward{.m = 4096, .n = 4096, .k = 4096, .y_k_contiguous = false};
  Canonical chunks{.m = 4096, .n = 4096, .k = 4096, .x_k_contiguous = false, .y_k_contiguous = false, .chunk = 512};
  Canonical resumed = chunks;
  resumed.chunk = 0;
  resumed.resumed = true;
  struct Form {
    const char* what;
    Canonical shape;
    const char* config;
  };
  const Form forms[] = {
      {"wide tiles in clusters", forward, R"({"tile":{"m":128,"n":256},"cluster":{"m":2,"n":1}})"},
      {"stores deferred", forward, R"({"tile":{"m":128,"n":256},"cluster":{"m":1},"defer":true})"},
      {"columns that end within a row", forward,
       R"({"tile":{"m":128,"n":112},"stages":6,"cluster":{"m":1},"epilogue":"staged","producer":"warp","overlap":true})"},
      {"32 columns, overlapped", forward,
       R"({"tile":{"m":64,"n":32,"k":128},"stages":8,"consumers":1,"cluster":{"m":1},"epilogue":"staged","producer":"warp","overlap":true})"},
      {"swapped", forward, R"({"tile":{"m":128,"n":16},"stages":6,"cluster":{"m":1},"epilogue":"staged","swap":true})"},
      {"three warpgroups", forward, R"({"tile":{"m":192,"n":192},"consumers":3,"stages":3,"cluster":{"m":1},"epilogue":"staged"})"},
      {"most accumulators without totals", forward, R"({"tile":{"m":256,"n":192},"stages":3,"cluster":{"m":1},"epilogue":"staged"})"},
      {"widest running totals", chunks, R"({"tile":{"m":128,"n":208},"cluster":{"m":1},"epilogue":"staged"})"},
      {"running totals in two parts", chunks, R"({"tile":{"m":128,"n":192},"cluster":{"m":1},"epilogue":"staged"})"},
      {"running totals at once", chunks, R"({"tile":{"m":64,"n":64},"consumers":1,"cluster":{"m":1},"epilogue":"staged"})"},
      {"a chain resumed from sums", resumed, R"({"tile":{"m":128,"n":256},"cluster":{"m":1},"epilogue":"tma"})"},
      {"mma.sync", forward, R"({"path":"mma","tile":{"m":128,"n":128,"k":32},"stages":4,"consumers":1,"cluster":{"m":1,"n":1},"epilogue":"direct"})"},
      {"plain", forward,
       R"({"path":"plain","tile":{"m":16,"n":8,"k":32},"stages":2,"consumers":1,"cluster":{"m":1,"n":1},"epilogue":"direct","raster":{"group":1}})"},
  };
  for (const Form& form : forms) {
    const auto config = parse_config(Json::parse(form.config));
    REQUIRE(config);
    const auto plan = make_plan(form.shape, dense_storage(form.shape), *config, *target);
    REQUIRE_MESSAGE(plan, (plan ? "" : plan.error().message));
    check_compiles(*plan, form.what);
  }
  for (const char* source : {"fill.cu", "step_probe.cu"}) {
    Plan bare;
    bare.source = source;
    bare.architecture = "sm_90a";
    check_compiles(bare, source);
  }
}
