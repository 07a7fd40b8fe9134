#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/base/json.h"
#include "core/target/gpu_target.h"
#include "kernels/registry.h"

namespace amk::test {

inline GpuTarget gpu(const char* name) { return load_gpu_target(name, std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus").value(); }

inline std::shared_ptr<const Workload> opened(const std::string& workload, const char* target) {
  auto result = open_workload(workload, gpu(target));
  REQUIRE_MESSAGE(result, (result ? "" : result.error().message));
  return *result;
}

inline Verdict judged(const Workload& workload, const Json& config) {
  auto canonical = workload.canonical(config);
  REQUIRE_MESSAGE(canonical, (canonical ? "" : canonical.error().message));
  auto verdict = workload.judge_on_cpu(*canonical, {});
  REQUIRE_MESSAGE(verdict, (verdict ? "" : verdict.error().message));
  return *verdict;
}

inline std::string fixture(const char* name) { return (std::filesystem::path(AMK_SOURCE_DIR) / "tests" / "fixtures" / "hf" / name).string(); }

}  // namespace amk::test
