// Configs of both families as text: whatever parses has one canonical form and one id, however its keys are ordered.
#include "core/base/parse_json.h"
#include "core/schedule/config.h"
#include "kernels/det_gemm/config.h"
#include "kernels/det_gemm/workload_id.h"
#include "tests/fuzz/fuzz.h"

using namespace amk;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::text_of(data, size);
  (void)det_gemm::parse_workload(text, {});
  const auto json = parse_json(text, "config");
  if (!json) return 0;
  const auto again = parse_json(fuzz::reversed_keys(*json), "config");
  require(again && *again == *json, "JSON written again reads back equal");

  if (const auto config = parse_schedule_config(*json)) {
    const Json canonical = to_json(*config);
    const auto reread = parse_schedule_config(canonical);
    require(reread && *reread == *config, "a canonical config parses to itself");
    require(canonical_dump(to_json(*reread)) == canonical_dump(canonical), "the canonical form is a fixed point");
    const auto other = parse_schedule_config(*again);
    require(other && schedule_id(*other) == schedule_id(*config), "the order of keys does not matter to the id");
    require(schedule_id(*reread) == schedule_id(*config), "a canonical config keeps its id");
  } else {
    require(!config.error().message.empty(), "a refusal says why");
  }
  if (const auto config = det_gemm::parse_config(*json)) {
    const auto reread = det_gemm::parse_config(det_gemm::to_json(*config));
    require(reread && *reread == *config, "a canonical GEMM config parses to itself");
  }
  return 0;
}
