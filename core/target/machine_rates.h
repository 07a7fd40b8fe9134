// Rates and latencies of one GPU under one config: what the timeline of a step is computed from. Formulas, constants and their sources:
// docs/cost-model.md. Internal to core/target, exposed for tests. Pure.
#pragma once

#include <cstdint>

#include "core/schedule/config.h"
#include "core/target/gpu_target.h"

namespace amk {

// Fitted to measured configs of three models on an H200 (bench/cost_model, docs/cost-model.md): a constant may also carry what the timeline has no
// term for.
struct CostConstants {
  double launch_us = 7.1;             // cooperative launch, and the first instruction's descriptors
  double task_us = 0.363;             // descriptor, role hand-over and block barrier of one task …
  double task_us_per_warp = 0.00948;  // … the barrier grows with the warps
  double step_us = 0.0762;            // of a warp, for each of its segments: the look for it, its sums, from the ring …
  double turn_us = 0.0381;       // of a segment, for each group of blocks after its first: as many as a warp has registers for are loaded at once
  double unhoisted_us = 0.0802;  // where the ring is too short for a task's first segment to be opened before its wait
  double norm_us = 0.166;        // sum of squares over a block and scaling, once a task
  // gemv_path slices: no warp waits for another before its products, but each group of units has a barrier and an end.
  double slices_hop = 0.479;                     // of the hop: what is looked for is asked for before anything else
  double slices_task_us = 0.103;                 // in place of task_us
  double slices_group_us = 1.27;                 // for each group of units after a task's first
  double slices_block_us = 0.182;                // for each block of the vector after a warp's first
  double attention_o_us = 0.4;                   // attention_o: what it takes besides its tiles, two barriers more among it …
  double attention_o_round_us = 0.32;            // … and for a tile each warp
  double attention_o_registers = 112;            // in place of registers_wanted
  double slices_spill = 3.88;                    // tasks and groups grow by this power of the registers wanted over those that are there
  double consume_bytes_per_clock_warp = 11.7;    // mma on packed weights
  double shared_bytes_per_clock = 42.2;          // what an SM's shared memory delivers
  double fma_share = 0.969;                      // FMA on unpacked values against mma
  double row_share = 0.85;                       // row layout against packed: strided shared loads
  double attention_bytes_per_clock_warp = 7.62;  // K and V from L2, loads issued up front
  double ring_attention_bytes_per_clock = 32;    // K and V from the ring (docs/lab/megakernel.md, 16; not of the fit)
  double late_kv_share = 0.6;                    // of an SM's bandwidth, what loads behind the wait reach (likewise)
  double attention_us = 0.103;                   // reduction over keys and warps
  double l2_bytes_per_clock_sm = 29.9;           // sustained, all SMs at once
  double confirmed_hop = 0.866;                  // a store confirmed by its exchange, then a relaxed counter, against red.release
  double flagged_hop = 1.29;                     // poll and fetch are one round trip …
  double flagged_traffic = 0.108;                // … but every poll is traffic: share of bandwidth with 48 KB in flight, while a task is waited for
  double hop_scale = 1.19;                       // of the target's hop, a publish and one poll with 48 KB in flight
  double hop_exponent = 0.279;                   // more in flight, slower hops, by this power …
  double max_load = 1.6;                         // … up to here
  double idle_hop_us = 1.08;                     // a hop while nothing streams: rings are full, or there is nothing more to bring
  double registers_wanted = 179;                 // a thread's, below which the assembler spills …
  double spill_exponent = 2.67;                  // … and the products' rate falls by this power of the share that is there
  double lag_us = 2.08;                          // the slowest SM's stream behind the others' at the end of a stage that waits long for its bytes …
  double lag_settles_us = 4;                     // … and after how long a wait that is so, but for a third
  double stream_share = 1.02;                    // of the read bandwidth as a program by itself measures it, what a long stage reaches
  double load_latency_us = 0.627;                // of a copy from HBM under load: what one SM draws is its bytes in flight over this
  double cpasync_share = 0.493;                  // of the bandwidth, what one warp's cp.async reaches where bulk copies would do
  double unmeasured_read_share = 0.93;           // read bandwidth over the vendor's peak, where it was never measured
};

struct MachineRates {
  double clock_mhz = 0;
  double memory_bytes_per_us = 0;          // weights from where they live (HBM or L2), at this chunk size …
  double waiting_share = 1;                // … of which, while tasks wait, so much
  double total_bytes_per_us = 0;           // the same, as far as this window reaches
  double sm_bytes_per_us = 0;              // most that one SM can draw: window over latency …
  double sm_ahead_bytes_per_us = 0;        // … and ahead of the task at hand, where the window is one copy less
  double warp_bytes_per_us = 0;            // one warp of consumers, while all are at work …
  double lone_warp_bytes_per_us = 0;       // … and alone
  double step_us = 0;                      // of each of its segments, besides …
  double turn_us = 0;                      // … and of each of a segment's groups of blocks after the first
  double unhoisted_us = 0;                 // of a task, before its products
  double l2_sm_bytes_per_us = 0;           // one SM fetching activations
  double attention_bytes_per_us = 0;       // one SM walking K and V
  double ring_attention_bytes_per_us = 0;  // likewise, where the ring brings them
  double late_kv_share = 1;                // of an SM's bandwidth, where they are loaded behind the wait
  double ring_keys = 0;                    // keys of a split below which it does not
  double lag_us = 0, lag_settles_us = 1;   // of the slowest SM's stream, a stage, at most
  double fetch_us = 0;                     // one load round trip under this load
  double hop_us = 0;                       // signal -> seen by the waiter, while its stream runs
  double idle_hop_us = 0;                  // … while it does not
  double task_us = 0;
  double norm_us = 0;
  double attention_us = 0;
  double launch_us = 0;
  double group_us = 0;      // gemv_path slices: of each group of units after a task's first; else 0
  double block_us = 0;      // likewise of each block of the vector after a warp's first
  double head_us = 0;       // attention_o: besides its tiles …
  double round_us = 0;      // … and for a tile each warp
  double staged_bytes = 0;  // of a head's cache that is in shared memory before the task
  int warps = 0;            // of consumers
  int columns = 0;          // of a warp's segment at most
  bool packed = false;
  bool ring = false;  // weights run ahead through the ring; else loads start when the task does
  std::int64_t ring_bytes = 0;
  std::int64_t chunk_bytes = 0;
};

// `l2_share` of the step's bytes come from L2 instead of HBM.
MachineRates machine_rates(const ScheduleConfig& config, const GpuTarget& target, double l2_share, const CostConstants& constants = {});

// What both allow: the lower, and a little less where they are alike.
double lower_of(double a, double b);

// Read bandwidth over the best, by size of one copy: measured on H200 at 4, 8, 16 and 32 KB, log-linear between, proportional below.
double chunk_efficiency(double chunk_bytes);

}  // namespace amk
