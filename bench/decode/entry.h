// A config to be decoded with, what it was built to, and what was found of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/model/load.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/workload.h"

namespace amk::bench {

struct Entry {
  std::string name;
  ScheduleConfig config;
  int batch = 1;
  int launch = 0;     // steps of a launch; 0: as many as the program has
  int ring_from = 0;  // PlanOptions::cache_ring_from
  bool traced = false;
  int staged = 0;  // PlanOptions::staged_rows
  BuiltCandidate built;
  std::unique_ptr<DeviceProgram> program;
  std::string error;
  double max_abs = 0, mean_abs = 0;
  int agree = 0, checked = 0;
  bool repeatable = true, written = true;
  std::vector<std::vector<double>> token_us;  // of each range of positions
};

PlanOptions options_of(const Entry& e);

// The lines of a file of configs (decode_bench.cpp); no file: the default that fits, of each size of batch.
Result<std::vector<Entry>> read_entries(const std::string& path, const ModelRef& ref, const GpuTarget& target);

// Adds, to the first entry, every config that differs from it in one knob and that the space allows.
Status add_neighbours(std::vector<Entry>& entries, const ModelSpec& spec, const GpuTarget& target);

}  // namespace amk::bench
