// Rates and latencies of one GPU under one config: what the timeline of a step is computed from. Formulas, constants and their sources:
// docs/cost-model.md. Internal to core/target, exposed for tests. Pure.
#pragma once

#include <cstdint>

#include "core/schedule/config.h"
#include "core/target/gpu_target.h"

namespace amk {

// What a careful implementation is expected to reach; the defaults are fitted to measurements on H200 and H100 (docs/cost-model.md).
struct CostConstants {
  double launch_us = 4.0;                       // cooperative launch, and the first instruction's descriptors
  double task_us = 0.20;                        // descriptor, role hand-over and block barrier of one task …
  double task_us_per_warp = 0.008;              // … the barrier grows with the warps
  double chunk_us = 0.04;                       // mbarrier wait, release and re-arm of one ring chunk
  double norm_us = 0.25;                        // sum of squares over a block and scaling, once a task
  double consume_bytes_per_clock_warp = 12.0;   // mma on packed weights
  double shared_bytes_per_clock = 128.0;        // what an SM's shared memory delivers
  double fma_share = 0.45;                      // FMA on unpacked values against mma
  double row_share = 0.85;                      // row layout against packed: strided shared loads
  double attention_bytes_per_clock_warp = 4.0;  // K and V from L2, loads issued up front
  double attention_us = 0.6;                    // reduction over keys and warps
  double l2_bytes_per_clock_sm = 20.0;          // sustained, all SMs at once
  double confirmed_hop = 0.65;                  // a store confirmed by its exchange, then a relaxed counter, against red.release
  double flagged_hop = 0.75;                    // poll and fetch are one round trip …
  double flagged_traffic = 0.08;                // … but every poll is traffic: share of bandwidth at a window of 32 KB
  double max_load = 1.7;                        // a wide window's hops, over those at 32 KB: while SMs wait their rings fill, and the load ends
  double idle_hop_us = 0.90;                    // a hop on an idle memory system: no window makes it shorter
  double unmeasured_read_share = 0.93;          // read bandwidth over the vendor's peak, where it was never measured
};

struct MachineRates {
  double clock_mhz = 0;
  double total_bytes_per_us = 0;      // all SMs: weights from where they live (HBM or L2), at this chunk size and window
  double sm_bytes_per_us = 0;         // most that one SM can draw: window over latency
  double consume_bytes_per_us = 0;    // one SM's consumers, chunk overhead included
  double l2_sm_bytes_per_us = 0;      // one SM fetching activations
  double attention_bytes_per_us = 0;  // one SM walking K and V
  double fetch_us = 0;                // one load round trip under this load
  double hop_us = 0;                  // signal -> seen by the waiter
  double task_us = 0;
  double norm_us = 0;
  double attention_us = 0;
  double launch_us = 0;
  bool ring = false;  // weights run ahead through the ring; else loads start when the task does
  std::int64_t ring_bytes = 0;
  std::int64_t chunk_bytes = 0;
};

// `l2_share` of the step's bytes come from L2 instead of HBM.
MachineRates machine_rates(const ScheduleConfig& config, const GpuTarget& target, double l2_share, const CostConstants& constants = {});

// Read bandwidth over the best, by size of one copy: measured on H200 at 4, 8, 16 and 32 KB, log-linear between, proportional below.
double chunk_efficiency(double chunk_bytes);

}  // namespace amk
