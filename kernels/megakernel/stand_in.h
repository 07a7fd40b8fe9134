// What the CPU executes to check a schedule. Small models are executed themselves. A large one is represented by a stand-in: the same
// architecture switches, head_dim, GQA ratio and rope with few, narrow layers and seeded weights, on proportionally fewer SMs, so that the same
// config makes tiles, tasks per SM and KV splits of the same kinds. Pure.
#pragma once

#include <cstdint>

#include "core/model/load.h"
#include "core/program/lower.h"
#include "core/schedule/config.h"

namespace amk {

// Models with more parameters are not executed on the CPU and their weights are not read.
inline constexpr std::int64_t kExecutedParametersLimit = 100'000'000;

struct Executed {
  ModelRef model;
  LoweringTarget target;
  bool stand_in = false;
};
// `target` is what the real program is lowered for.
Executed executed_on_cpu(const ModelRef& model, const LoweringTarget& target);

// The config that the stand-in is lowered with: an explicit placement names tiles and SMs that it does not have.
ScheduleConfig config_for(const Executed& executed, const ScheduleConfig& config);

}  // namespace amk
