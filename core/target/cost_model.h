// Analytic prediction of a decode step's time. The written model: docs/cost-model.md. Pure, thread-safe, touches no weights.
#pragma once

#include <string_view>

#include "core/program/program.h"
#include "core/schedule/config.h"
#include "core/target/gpu_target.h"

namespace amk {

struct Breakdown {       // microseconds; sums to latency_us
  double attention = 0;  // QKV, attention, combine, O
  double mlp = 0;        // gate/up, down
  double lm_head = 0;    // final norm, head, argmax
  double sync = 0;       // hops that the weight stream does not hide
  double other = 0;      // embedding, launch
};

struct Prediction {
  double latency_us = 0;
  double bound_us = 0;         // roofline(): never more than latency_us
  std::int64_t hbm_bytes = 0;  // bytes beyond L2
  Breakdown regions;
};

// The physical floor: max over (bytes that exceed L2 / vendor's peak bandwidth, FLOPs / peak rate). `position` = KV entries read.
struct Roofline {
  double bound_us = 0;
  std::int64_t hbm_bytes = 0;
  double flops = 0;
};
// `batch` sequences, each with that many entries: weights are read once for all.
Roofline decode_roofline(const ModelSpec& spec, const GpuTarget& target, int position, int kv_bytes_per_element = 2, int batch = 1);

// Of one instruction kind (core/program/lower_instruction.h) in every layer: its matrices, and for attention the cache.
Roofline instruction_roofline(const ModelSpec& spec, std::string_view op, const GpuTarget& target, int position, int kv_bytes_per_element = 2);

// Share of the cache's bytes that a step reads from HBM. A cache that fits beside weights which are evicted first stays in L2 from step to step;
// `cached`: the share of everything that does.
double kv_from_hbm(const Program& program, const GpuTarget& target, int entries, double cached);

Prediction predict(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int position);
// Its latency_us alone, for half of the work.
double predict_us(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int position);
// About what predict_us() says of the same model with `layers` layers, from a program of kFewLayers or more: layers are alike, so that each further
// one takes what those behind the program's second take on average.
constexpr int kFewLayers = 6;
double predict_deeper_us(const Program& program, int layers, const ScheduleConfig& config, const GpuTarget& target, int position);
// Of a part of a step whose floor is given; nothing is in L2 beforehand, as between two steps.
Prediction predict_part(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int position, const Roofline& floor);

}  // namespace amk
