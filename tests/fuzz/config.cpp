// A checkpoint's config.json, and what is computed from it before any weight is read: counts, space, floor, lowering of small ones.
#include <cmath>

#include "core/base/parse_json.h"
#include "core/model/import.h"
#include "core/model/tensor_table.h"
#include "core/target/cost_model.h"
#include "kernels/megakernel/workload.h"
#include "tests/fuzz/fuzz.h"

using namespace amk;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const GpuTarget target = load_gpu_target("h100", std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus").value();
  const auto json = parse_json(fuzz::text_of(data, size), "config.json");
  if (!json) return 0;
  const auto spec = import_config(*json, "fuzzed", DType::BF16);
  if (!spec) {
    require(!spec.error().message.empty(), "a refusal says why");
    return 0;
  }
  require(spec->heads > 0 && spec->kv_heads > 0 && spec->heads % spec->kv_heads == 0, "heads divide into groups");
  require(spec->decode_weight_bytes() > 0 && spec->parameters() > 0, "counts are positive: nothing overflowed");
  const Roofline floor = decode_roofline(*spec, target, kPredictPosition);
  require(std::isfinite(floor.bound_us) && floor.bound_us > 0, "the floor is a time");
  (void)canonical_dump(to_json(*spec));
  if (spec->layers > 64) return 0;
  std::int64_t elements = 0;
  for (const TensorShape& shape : tensor_table(*spec)) elements += shape.rows * shape.cols;
  require(elements > 0, "tensors have elements");
  ModelRef ref;
  ref.spec = *spec;
  ref.source = ModelRef::Source::Directory;
  const auto workload = MegakernelWorkload::create(ref, target);
  if (!workload) return 0;
  (void)(*workload)->features();
  // Lowering is linear in the tasks: only what a fuzzer can afford.
  if (elements > 3'000'000 || spec->layers > 4) return 0;
  if (const auto us = (*workload)->predict_us((*workload)->default_config())) require(std::isfinite(*us) && *us > 0, "a prediction is a time");
  return 0;
}
