// Configs that were measured, by model and GPU: config/tuned/megakernel.json, {"schema": "amk.megakernel.tuned/1", "entries": [{"model", "gpu",
// "config", "latency_us", "evidence"[, "context"]}]}. Data for `propose` and the benchmarks; no search begins from it unless asked to.
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
  int context = 256;      // positions in the cache while it was
};

// Corrupt, naming entry, field, value and what is accepted, when the file is not such a table; Io when it cannot be read.
Result<std::vector<TunedConfig>> load_tuned_configs(const std::filesystem::path& path);

// The fastest entry of a model and GPU at each context that it was measured at, shortest context first.
std::vector<const TunedConfig*> fastest_by_context(const std::vector<TunedConfig>& entries, const std::string& model, const std::string& gpu);

}  // namespace amk
