// GPU targets and workloads by name; a test fails where one does not open.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/base/json.h"
#include "core/schedule/random_config.h"
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

// Draws until a config runs on the workload's GPU: those that its virtual machine cannot hold are refused with a rule.
template <class Draw>
Json runnable(const Workload& workload, Draw draw) {
  for (int i = 0; i < 1000; ++i) {
    Json config = draw();
    const auto canonical = workload.canonical(config);
    REQUIRE_MESSAGE(canonical, (canonical ? "" : canonical.error().message));
    const auto us = workload.predict_us(*canonical);
    if (us) return config;
    REQUIRE_MESSAGE(us.error().kind == ErrorKind::Rejected, us.error().message);
    REQUIRE(us.error().data.contains("rule"));
  }
  FAIL("no config runs");
  return {};
}

// The default and two configs by lot, each judged: right.
inline void judged_right(const Workload& workload, Rng& rng) {
  for (int i = 0; i < 3; ++i) {
    const Json config = i == 0 ? Json::object() : runnable(workload, [&] { return to_json(random_config(workload.space(), rng)); });
    const Verdict v = judged(workload, config);
    const std::string text = to_json(v).dump();
    CAPTURE(text);
    CHECK(v.status == VerdictStatus::Ok);
    CHECK(v.correct);
  }
}

inline std::string fixture(const char* name) { return (std::filesystem::path(AMK_SOURCE_DIR) / "tests" / "fixtures" / "hf" / name).string(); }

}  // namespace amk::test
