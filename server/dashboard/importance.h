// Which knobs moved the latency, from the configs and latencies of a campaign alone. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/base/error.h"

namespace amk::dashboard {

// The share of the variance of log latency that a knob's choice explains (explained_share() of orchestrator/campaign/knob_importance.h), as
// amk_propose's knobs_that_matter. Choices are confounded in a search that moves one knob at a time: a hint, with the number of observations it rests
// on. Grows one experiment at a time, in memory that depends on the number of choices only.
class Importance {
 public:
  // A correct experiment. Knobs are the leaves of the config, named by their path ("tiling.gemv.N_tile"); a flat one names them itself.
  void add(const Json& config, double latency_us);
  // Largest first: [{"knob", "explains", "observations", "confidence", "choices": [{"value", "latency_us", "observations"}, …]}, …];
  // latency_us is the geometric mean of the choice, its choices are fastest first. Empty with fewer than 6 observations.
  Json ranked(std::size_t knobs, std::size_t choices) const;

 private:
  struct Group {
    double sum = 0;
    std::int64_t count = 0;
  };
  void add_leaves(const std::string& path, const Json& value, double y);
  void add_leaf(const std::string& path, std::string value, double y);

  std::map<std::string, std::map<std::string, Group>> knobs_;  // path -> choice as JSON text -> log latencies
  double shift_ = 0, sum_ = 0, squares_ = 0;                   // of log latency - shift_
  std::int64_t count_ = 0;
};

}  // namespace amk::dashboard
