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
  double launch_us = 0.973;           // cooperative launch, and the first instruction's descriptors
  double task_us = 0.345;             // descriptor, role hand-over and block barrier of one task …
  double task_us_per_warp = 0.00802;  // … the barrier grows with the warps
  double step_us = 0.206;             // of a warp, for each of its segments: the look for it, its sums, from the ring …
  double fma_us_per_kb = 0.01;        // … fma, more …
  double odd_step_us = 0.112;         // a warp's steps go by twos: of one more
  double turn_us = 0.0735;      // of a segment, for each group of blocks after its first: as many as a warp has registers for are loaded at once
  double last_turn_us = 0.583;  // likewise of a task's last segment, when nothing else is left to do meanwhile
  double unhoisted_us = 0.258;  // where the ring is too short for a task's first segment to be opened before its wait
  double norm_us = 0.0379;      // sum of squares over a block and scaling, once a task
  // gemv_path slices: no warp waits for another before its products, but each group of units has a barrier and an end.
  double slices_sight_us = 0.1;                    // what is looked for is asked for before anything else, and comes with the look
  double slices_publish_us = 1.08;                 // in place of flagged_us
  double slices_poll_us = 0.19;                    // of attention, while the producer has room and no leave: it asks again and again
  double slices_task_us = 0.0146;                  // in place of task_us
  double slices_direct_us = 0.365;                 // without a ring: from a block's own publish until the weights of its next task are there
  double slices_group_us = 1.33;                   // for each group of units after a task's first
  double slices_turn_us = 0.0673;                  // from a block's own publish until it looks for what its next task waits for …
  double attention_o_turn_us = 0.191;              // … and after attention_o
  double slices_block_us = 0.0806;                 // for each block of the vector after a warp's first
  double attention_o_us = 1.41;                    // attention_o: what it takes besides its tiles, two barriers more among it …
  double attention_o_round_us = 0.139;             // … and for a tile each warp after the first ones …
  double attention_o_late_us = 0.282;              // … and where shared memory has no room for all rows of the head …
  double attention_o_late_bytes_per_clock = 23.5;  // … which then come at this rate
  double slices_unit_us = 0.15;                    // without a ring: for each unit of rows after a task's first
  double slices_head_us = 0.486;                   // the LM head: of its end
  double slices_merge_us = 0.158;                  // in place of merge_us
  double slices_attention_us = 0.451;              // in place of attention_us
  double slices_bytes_per_clock = 244;             // in place of shared_bytes_per_clock: most of a task's weights are in registers when it begins
  double slices_quad_us = 0.128;                   // of a task, for each four warps after the twelfth, whose sums are added up too
  double slices_registers = 124;                   // a thread's, as the assembler says where it has as many as it likes …
  double slices_attention_registers = 162;         // … and attention's, where that is a task of its own …
  double slices_spill = 4;                         // … of which this power, over those that are there, is above one by …
  double slices_spill_us = 0.159;                  // … so many of these in a task …
  double slices_attention_spill_us = 0.44;         // … and of these in attention's
  double consume_bytes_per_clock_warp = 39.2;      // mma on packed weights
  double shared_bytes_per_clock = 70.1;            // what an SM's shared memory delivers
  double fma_share = 0.96;                         // FMA on unpacked values against mma
  double row_share = 0.85;                         // row layout against packed: strided shared loads
  double attention_bytes_per_clock_warp = 3.19;    // K and V from L2, loads issued up front
  double ring_attention_bytes_per_clock = 28.3;    // K and V from the ring (docs/lab/megakernel.md, 16; not of the fit)
  double late_kv_share = 0.492;                    // of an SM's bandwidth, what loads behind the wait reach (likewise)
  double append_us = 0.38;                         // of a publish behind an append to the cache, for each 64 dimensions of a head
  double asked_share = 1.02;                       // of a publish, behind what attention's warps have asked for of the cache: so much of its time
  double flagged_row_us = 0.168;                   // packets: of this step's row, which the split that has it looks for by itself …
  double flagged_row_looks = 1.65;                 // … behind what its warps have asked for, so many times
  double confirmed_us_per_kb = 0.26;               // confirmed: of a publish, for each KB of attention's result
  double merge_us = 0.196;                         // of a merge, for each doubling of the splits
  double attention_registers = 162;                // a thread's, as attention would have them where it is a task of its own, and a share of …
  double attention_spill_us = 0.211;               // … so much in each, as of slices (slices_spill)
  double attention_us = 0.165;                     // of a task, what is not its tiles' and not its row's
  double l2_bytes_per_clock_sm = 38.3;             // sustained, all SMs at once
  // A hop: what a publisher takes until others can see its task's output, and a waiter until it has. Traces say each by itself
  // (docs/lab/megakernel.md, 27).
  double lone_release_us = 0.978;       // red.release by the thread that looks for the next task's signals …
  double release_us = 1.5;              // … and by a GEMV's last warp, beside another's looks, while the SM's ring is full …
  double hop_scale = 1.34;              // … and while it fills: of the target's hop, a publish and one poll, less the poll
  double confirmed_us = 1.04;           // stores confirmed by their exchanges' replies, then a relaxed counter
  double lone_confirmed_us = 0.835;     // … and by the thread that looks next
  double flagged_us = 1.25;             // a store
  double busy_publish_us = 0.403;       // what either takes longer while the SM's ring fills with 48 KB in flight
  double sight_us = 0.0381;             // of a signal, by the last of the waiters, while its ring is full …
  double busy_sight_us = 0.129;         // … and while it fills with 48 KB in flight
  double packet_fetch = 2.22;           // flagged: what is fetched of a vector, with its tags …
  double flagged_traffic = 0.101;       // polls are traffic: share of bandwidth with 48 KB in flight, while a task is waited for
  double hop_exponent = 0.74;           // more in flight, slower hops, by this power …
  double max_load = 1.97;               // … up to here
  double registers_wanted = 134;        // a thread's, below which the assembler spills …
  double spill_exponent = 4.4;          // … and the products' rate falls by this power of the share that is there
  double lag_us = 0.297;                // the slowest SM's stream behind the others', times the root of a stage's wait for its bytes in µs …
  double soon_lag_us = 0.712;           // … and so much more, soon
  double stream_share = 1.03;           // of the read bandwidth as a program by itself measures it, what a long stage reaches
  double load_latency_us = 0.696;       // of a copy from HBM under load: what one SM draws is its bytes in flight over this
  double cpasync_share = 0.497;         // of the bandwidth, what one warp's cp.async reaches where bulk copies would do
  double unmeasured_read_share = 0.93;  // read bandwidth over the vendor's peak, where it was never measured
};

struct MachineRates {
  double clock_mhz = 0;
  double memory_bytes_per_us = 0;          // weights from where they live (HBM or L2), at this chunk size …
  double waiting_share = 1;                // … of which, while tasks wait, so much
  double total_bytes_per_us = 0;           // the same, as far as this window reaches
  double load_latency_us = 0;              // of one copy
  double opened_bytes = 0;                 // without a ring: of a task's weights, asked for before its wait
  double sm_bytes_per_us = 0;              // most that one SM can draw: window over latency …
  double sm_ahead_bytes_per_us = 0;        // … and ahead of the task at hand, where the window is one copy less
  double warp_bytes_per_us = 0;            // one warp of consumers, while all are at work …
  double lone_warp_bytes_per_us = 0;       // … and alone
  double step_us = 0;                      // of each of its segments, besides …
  double fma_us_per_byte = 0;              // … gemv_path fma: of its bytes, more …
  double odd_step_us = 0;                  // … of one that is left of pairs …
  double turn_us = 0;                      // … and of each of a segment's groups of blocks after the first …
  double last_turn_us = 0;                 // … and of the last segment's
  double unhoisted_us = 0;                 // of a task, before its products
  double l2_sm_bytes_per_us = 0;           // one SM fetching activations
  double attention_bytes_per_us = 0;       // one SM walking K and V
  double ring_attention_bytes_per_us = 0;  // likewise, where the ring brings them
  double late_kv_share = 1;                // of an SM's bandwidth, where they are loaded behind the wait
  double ring_keys = 0;                    // keys of a split below which it does not
  double soon_lag_us = 0;                  // … and what it is before long
  double lag_us = 0;                       // of the slowest SM's stream, times the root of a stage's wait for it
  double fetch_us = 0;                     // one load's trip, while the SM's stream runs …
  double idle_fetch_us = 0;                // … and while it does not
  double publish_us = 0;                   // from a task's end to its signal, while the SM's stream runs …
  double idle_publish_us = 0;              // … and while it does not …
  double lone_publish_us = 0;              // … and of what is no GEMV
  double sight_us = 0;                     // signal -> seen by the waiter, likewise …
  double idle_sight_us = 0;                // … and likewise
  double fetched_bytes = 1;                // for each of a vector, where packets are fetched
  double looked_for_bytes = 0;             // up to so many a vector's readers look for it at once, and fetch nothing
  double task_us = 0;
  double norm_us = 0;
  double merge_us = 0;      // of a merge, for each doubling of the splits
  double attention_us = 0;  // of a task, what is not its tiles' and not its row's
  double launch_us = 0;
  bool slices = false;               // gemv_path slices
  double group_us = 0;               // of slices: of each group of units after a task's first
  double poll_us = 0;                // likewise of a task that the producer is too far ahead to begin
  double slices_turn_us = 0;         // likewise from a block's own publish to its next look …
  double attention_o_turn_us = 0;    // … and after attention_o
  double block_us = 0;               // likewise of each block of the vector after a warp's first
  double head_us = 0;                // attention_o: besides its tiles …
  double round_us = 0;               // … and for a tile each warp …
  double attention_spill_us = 0;     // gemv_path slices: of attention's tasks
  double slices_direct_us = 0;       // likewise, without a ring: from a block's own publish until the weights of its next task are there
  double unit_us = 0;                // gemv_path slices without a ring: of each unit of rows after a task's first
  double slices_head_us = 0;         // likewise of the LM head's end
  double late_bytes_per_us = 0;      // attention_o: rows of the cache that come during the task
  double late_us = 0;                // … and where a head's cache is not all there before the task
  double append_us = 0;              // of a publish behind an append to the cache, for each 64 dimensions of a head
  double asked_share = 0;            // of the time of what warps have asked for of the cache, what a publish behind it takes longer
  double row_us = 0, row_looks = 1;  // of this step's row, in the split that has it
  double publish_us_per_byte = 0;    // of attention's result
  double staged_bytes = 0;           // of a head's cache that is in shared memory before the task
  int warps = 0;                     // of consumers
  int columns = 0;                   // of a warp's segment at most
  bool packed = false;
  bool ring = false;  // weights run ahead through the ring; else loads start when the task does
  std::int64_t ring_bytes = 0;
  std::int64_t chunk_bytes = 0;
};

// `l2_share` of the step's bytes come from L2 instead of HBM.
MachineRates machine_rates(const ScheduleConfig& config, const GpuTarget& target, double l2_share, const CostConstants& constants = {});

// Of a thread at most: each of the four schedulers has a quarter of the file for its warps, a thread's registers come eight by eight.
int registers_of(int threads, const GpuTarget& target);

// What both allow: the lower, and a little less where they are alike.
double lower_of(double a, double b);

// Read bandwidth over the best, by size of one copy: measured on H200 at 4, 8, 16 and 32 KB, log-linear between, proportional below.
double chunk_efficiency(double chunk_bytes);

}  // namespace amk
