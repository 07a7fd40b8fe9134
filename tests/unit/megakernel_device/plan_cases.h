// Plans of catalogue models, as the tests of this folder look at them.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "core/model/load.h"
#include "core/program/lower.h"
#include "kernels/megakernel/device_plan.h"

namespace amk::test {

inline const DeviceLimits kHopper{"sm_90a", 9, 132, 232448, 1024};

inline ModelSpec spec_named(const char* name) {
  ModelSources sources;
  sources.catalogue_dir = std::string(AMK_SOURCE_DIR) + "/config/models";
  const auto ref = resolve_model(name, sources);
  REQUIRE(ref);
  return ref->spec;
}

inline Result<Program> lowered(const ModelSpec& spec, const ScheduleConfig& config, const DeviceLimits& limits, int batch = 1) {
  LoweringTarget target;
  target.batch = batch;
  target.sm_count = limits.sm_count;
  target.smem_optin_bytes = limits.smem_optin_bytes;
  target.max_seq = 512;
  return lower(spec, config, target, gpu_format(spec.dtype));
}

inline std::string rule_of(const Result<DevicePlan>& plan) { return plan ? "" : plan.error().data.value("rule", "?"); }

// The number that the compiler is told under a name; -1: none.
inline int defined(const DevicePlan& plan, const std::string& name) {
  for (const std::string& o : plan.request.options)
    if (o.rfind("-DAMK_" + name + "=", 0) == 0) return std::stoi(o.substr(name.size() + 7));
  return -1;
}

}  // namespace amk::test
