// What this virtual machine refuses before anything is shaped: pairs of program, config and device that its code paths do not cover. Rules that
// follow from shapes (ring, shared memory) are where those are made (device_shapes.h).
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/program/program.h"
#include "core/schedule/config.h"
#include "kernels/megakernel/device_plan.h"

namespace amk {

// {"rule", "message", "witness"} in data.
tl::unexpected<Error> reject_plan(const std::string& rule, const std::string& message, Json witness);

Status check_device_rules(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits);

// Publish flagged, several steps a launch: the tasks whose signals are releases, for what the next step sees of this one.
std::vector<TaskId> signals_of_steps(const Program& program, const ScheduleConfig& config);

// Numbers that the rules share with the plan.
constexpr int kBatchUnitsMax = 16;                // device/base.cuh
constexpr int kMostSums = 4;                      // device/slice_task.cuh: sums of one residual, as attention_o leaves them
constexpr int kSliceBlocks = 4, kSliceRows = 32;  // device/slice_task.cuh: of a warp; of a group

}  // namespace amk
