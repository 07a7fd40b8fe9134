// Rates and latencies of one GPU under one config: what the timeline of a step is computed from. Formulas, constants and their sources:
// docs/cost-model.md. Internal to core/target, exposed for tests. Pure.
#pragma once

#include <cstdint>

#include "core/schedule/config.h"
#include "core/target/gpu_target.h"

namespace amk {

// Fitted to 119 measured configs of three models on an H200 (bench/cost_model, docs/cost-model.md): a constant may also carry what the timeline has
// no term for.
struct CostConstants {
  double launch_us = 21.7;          // cooperative launch, and the first instruction's descriptors
  double task_us = 0.77;            // descriptor, role hand-over and block barrier of one task …
  double task_us_per_warp = 0.012;  // … the barrier grows with the warps
  double chunk_us = 0.11;           // mbarrier wait, release and re-arm of one ring chunk
  double norm_us = 0.14;            // sum of squares over a block and scaling, once a task
  // gemv_path slices: no warp waits for another before its products, but each group of units has a barrier and an end.
  double slices_hop = 0.9;                      // of the hop: what is looked for is asked for before anything else
  double slices_task_us = 0.11;                 // in place of task_us
  double slices_group_us = 0.98;                // for each group of units after a task's first
  double slices_block_us = 0.21;                // for each block of the vector after a warp's first
  double slices_spill = 3.0;                    // tasks and groups grow by this power of the registers wanted over those that are there
  double consume_bytes_per_clock_warp = 9.45;   // mma on packed weights
  double shared_bytes_per_clock = 90.5;         // what an SM's shared memory delivers
  double fma_share = 0.71;                      // FMA on unpacked values against mma
  double row_share = 0.85;                      // row layout against packed: strided shared loads
  double attention_bytes_per_clock_warp = 3.5;  // K and V from L2, loads issued up front
  double ring_attention_bytes_per_clock = 32;   // K and V from the ring (docs/lab/megakernel.md, 16; not of the fit)
  double late_kv_share = 0.6;                   // of an SM's bandwidth, what loads behind the wait reach (likewise)
  double attention_us = 0.26;                   // reduction over keys and warps
  double l2_bytes_per_clock_sm = 27.6;          // sustained, all SMs at once
  double confirmed_hop = 0.65;                  // a store confirmed by its exchange, then a relaxed counter, against red.release
  double flagged_hop = 0.75;                    // poll and fetch are one round trip …
  double flagged_traffic = 0.074;               // … but every poll is traffic: share of bandwidth with 48 KB in flight
  double hop_scale = 1.0;                       // of the target's hop, a publish and one poll with 48 KB in flight
  double hop_exponent = 0.16;                   // more in flight, slower hops, by this power …
  double max_load = 1.12;                       // … up to here: while SMs wait their rings fill, and the load ends
  double idle_hop_us = 0.90;                    // a hop on an idle memory system: no window makes it shorter
  double registers_wanted = 200;                // a thread's, below which the assembler spills …
  double spill_exponent = 3.3;                  // … and the products' rate falls by this power of the share that is there
  double load_latency_us = 0.78;                // of a copy from HBM under load: what one SM draws is its bytes in flight over this
  double cpasync_share = 0.58;                  // of the bandwidth, what one warp's cp.async reaches where bulk copies would do
  double unmeasured_read_share = 0.93;          // read bandwidth over the vendor's peak, where it was never measured
};

struct MachineRates {
  double clock_mhz = 0;
  double total_bytes_per_us = 0;           // all SMs: weights from where they live (HBM or L2), at this chunk size and window
  double sm_bytes_per_us = 0;              // most that one SM can draw: window over latency
  double consume_bytes_per_us = 0;         // one SM's consumers, chunk overhead included
  double l2_sm_bytes_per_us = 0;           // one SM fetching activations
  double attention_bytes_per_us = 0;       // one SM walking K and V
  double ring_attention_bytes_per_us = 0;  // likewise, where the ring brings them
  double late_kv_share = 1;                // of an SM's bandwidth, where they are loaded behind the wait
  double ring_keys = 0;                    // keys of a split below which it does not
  double fetch_us = 0;                     // one load round trip under this load
  double hop_us = 0;                       // signal -> seen by the waiter
  double task_us = 0;
  double norm_us = 0;
  double attention_us = 0;
  double launch_us = 0;
  double group_us = 0;  // gemv_path slices: of each group of units after a task's first; else 0
  double block_us = 0;  // likewise of each block of the vector after a warp's first
  int warps = 0;        // of consumers
  bool ring = false;    // weights run ahead through the ring; else loads start when the task does
  std::int64_t ring_bytes = 0;
  std::int64_t chunk_bytes = 0;
};

// `l2_share` of the step's bytes come from L2 instead of HBM.
MachineRates machine_rates(const ScheduleConfig& config, const GpuTarget& target, double l2_share, const CostConstants& constants = {});

// Read bandwidth over the best, by size of one copy: measured on H200 at 4, 8, 16 and 32 KB, log-linear between, proportional below.
double chunk_efficiency(double chunk_bytes);

}  // namespace amk
