// Second part of lowering: which SM computes which rows. Internal to core/program.
#pragma once

#include <vector>

#include "core/program/lower_plan.h"

namespace amk::lowering {

// Neighbouring tiles of one instruction on one SM: one task. Cut where a grouped instruction passes from one kv head to the next.
struct Run {
  std::int32_t row_begin = 0;
  std::int32_t row_end = 0;
  std::int32_t sm = 0;
  std::int32_t group = 0;  // kv head when the instruction is grouped
};

// [instruction]: runs in row order, every row of every segment in exactly one. Rejected: an explicit map that names no tile of this program or an
// SM out of range; more than kMaxTasks tasks.
Result<std::vector<std::vector<Run>>> place(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const Plan& plan);

constexpr std::int64_t kMaxTasks = 4'000'000;

}  // namespace amk::lowering
