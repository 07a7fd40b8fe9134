#include "kernels/det_gemm/workload_id.h"

#include <doctest/doctest.h>

using namespace amk;
using namespace amk::det_gemm;

TEST_CASE("workload text names op, extents, layout, output and chunk") {
  CHECK(*parse_workload("det_gemm:fwd:4096x12288x4096", {}) == Problem{.op = Op::Fwd, .M = 4096, .N = 12288, .K = 4096});
  CHECK(*parse_workload("det_gemm:da:1x2x3:nk:fp32", {}) ==
        Problem{.op = Op::Da, .M = 1, .N = 2, .K = 3, .weights = WeightLayout::NK, .out = OutType::Fp32});
  CHECK(*parse_workload("det_gemm:db:64x0x8:chunk512", {}) == Problem{.op = Op::Db, .M = 64, .N = 0, .K = 8, .chunk = 512});
  for (const char* id : {"det_gemm:fwd:4096x12288x4096", "det_gemm:da:1x2x3:nk:fp32", "det_gemm:db:64x8x8:fp32:chunk16"}) {
    CHECK(workload_id(*parse_workload(id, {})) == id);
  }
  CHECK(workload_id(*parse_workload("det_gemm:fwd:1x2x3:kn", {})) == "det_gemm:fwd:1x2x3");
}

TEST_CASE("named shapes resolve; unknown names list what is accepted") {
  const auto named = named_shapes_from_json({{"qkv", "det_gemm:fwd:4096x12288x4096"}});
  REQUIRE(named);
  CHECK(parse_workload("det_gemm:qkv", *named)->N == 12288);
  const auto unknown = parse_workload("det_gemm:qvk", *named);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message.find("det_gemm:qkv") != std::string::npos);
  CHECK_FALSE(named_shapes_from_json({{"bad", "det_gemm:fwd:1x2"}}));
  CHECK_FALSE(named_shapes_from_json({{"bad", 3}}));
}

TEST_CASE("malformed workload text is refused") {
  for (const char* text : {"",
                           "det_gemm",
                           "det_gemm:",
                           "det_gemm:fwd",
                           "det_gemm:fwd:",
                           "det_gemm:fwd:1x2",
                           "det_gemm:fwd:1x2x3x4",
                           "det_gemm:fwd:-1x2x3",
                           "det_gemm:fwd:+1x2x3",
                           "det_gemm:fwd:01x2x3",
                           "det_gemm:fwd:1x2x3:",
                           "det_gemm:fwd:1x2x3:tn",
                           "det_gemm:fwd:1x2x3:fp32:nk",
                           "det_gemm:fwd:1x2x2147483648",
                           "det_gemm:fwd:1x2x99999999999999999999",
                           "det_gemm:fwd:1x2x3:chunk64",
                           "det_gemm:db:1x2x3:chunk0",
                           "det_gemm:db:1x2x3:chunk24",
                           "det_gemm:dB:1x2x3",
                           "det_gemm:fwd:1 x2x3",
                           "llama"}) {
    CAPTURE(text);
    const auto parsed = parse_workload(text, {});
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().kind == ErrorKind::InvalidArgument);
  }
}
