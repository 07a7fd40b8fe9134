// A point of a campaign's course as numbers: what plots are drawn from (Results::series). No texts, no configs: a hundred thousand experiments are a
// few megabytes.
#pragma once

#include <cstdint>
#include <optional>

#include "orchestrator/store/types.h"

namespace amk {

// One ended experiment. Latencies are there only with a correctness PASS.
struct SeriesPoint {
  std::int64_t end_seq = 0;  // order of ends in the whole store
  ExperimentId experiment{};
  Outcome outcome = Outcome::Lost;
  std::optional<double> latency_us, bound_us;
  std::optional<double> mad_us;  // the verdict's noise; of kept experiments only, and only when it was measured
  bool predicted = false;
  bool quarantined = false;  // faster than physics allows: no point of a plot
};

}  // namespace amk
