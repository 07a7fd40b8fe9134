// Analytic time of a plan: which of memory, L2, copy engine, matrix units, latency and number of stages binds. docs/det-gemm.md states the model and
// how far it is from measurements. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/target/gpu_target.h"
#include "kernels/det_gemm/plan.h"

namespace amk::det_gemm {

// The physical floor: bytes beyond L2 over the vendor's peak bandwidth, or FLOPs over the vendor's peak rate, whichever is larger.
struct Floor {
  double bound_us = 0;
  std::int64_t hbm_bytes = 0;
  double flops = 0;
};
Floor floor_of(const Canonical& shape, const GpuTarget& target);

struct Estimate {
  double latency_us = 0;        // never below the floor
  double fixed_us = 0;          // launch, first bytes, last tile's epilogue
  double matrix_us = 0;         // wgmma or mma issue of the busiest SM
  double ingest_us = 0;         // bytes into the busiest SM's shared memory
  double l2_us = 0;             // all SMs' reads through L2
  double memory_us = 0;         // compulsory bytes at the sustained read bandwidth
  double latency_bound_us = 0;  // round trips that the ring is too shallow to hide
  double stages_us = 0;         // what a stage costs whatever its size
  std::string_view binds;       // the largest of the six: "matrix", "ingest", "l2", "memory", "latency", "stages"
};
Estimate estimate(const Plan& plan, const GpuTarget& target);
// `latency_us` by the shares of an estimate: {"launch": its fixed part, what binds: the rest}.
Json regions_of(const Estimate& estimate, double latency_us);

// Blocks that are resident at once: whole clusters, of which fewer fit than SM count suggests (measured: 26 of 4 on 132 SMs).
std::int64_t resident_blocks(const Plan& plan, const GpuTarget& target);

}  // namespace amk::det_gemm
