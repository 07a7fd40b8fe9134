// Configs that were measured, by model and GPU: config/tuned/megakernel.json, {"schema": "amk.megakernel.tuned/1", "entries": [{"model", "gpu",
// "config", "latency_us", "evidence"}]}. Data for `propose` and the benchmarks; no search begins from it unless asked to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"

namespace amk {

struct TunedConfig {
  std::string model;      // as the `model` argument names it, variants included
  std::string gpu;        // GpuTarget::name
  Json config;            // a schedule config; missing keys are the workload's defaults
  double latency_us = 0;  // a token, as `evidence` says
  std::string evidence;   // where it was measured, and how
};

// Corrupt, naming entry, field, value and what is accepted, when the file is not such a table; Io when it cannot be read.
Result<std::vector<TunedConfig>> load_tuned_configs(const std::filesystem::path& path);

}  // namespace amk
