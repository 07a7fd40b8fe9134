// How many evaluations a strategy needs, on real hardware, from the plain default to the best config known.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/det_gemm/config.h"
#include "kernels/det_gemm/runner.h"

namespace amk::det_gemm {

struct SearchRun {
  std::string workload, strategy;
  int evaluations = 60;
  std::uint64_t seed = 1;
  std::vector<Config> known;  // raced against what was found, at the end
};

struct SearchResult {
  std::vector<double> best_us;  // after each evaluation
  Json best_config;
  int rejected = 0, incorrect = 0;
  double best_known_us = 0, found_us = 0;  // raced in turn
  int to_97_percent = -1;                  // evaluations until best ≤ best known / 0.97; -1: never
};

Result<SearchResult> run_search(Runner& runner, const SearchRun& run, const Resources& resources, const std::filesystem::path& cache);

}  // namespace amk::det_gemm
