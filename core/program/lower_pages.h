// Fourth part of lowering: where buffers live. Internal to core/program.
#pragma once

#include "core/program/lower_plan.h"

namespace amk::lowering {

constexpr std::int64_t kStorageAlign = 256;

// Gives every buffer of `program` its storage and offset. Two activations share bytes only where every reader and the writer of one are ordered,
// by counters, before the writer of the other.
void assign_storage(const ModelSpec& spec, const ScheduleConfig& config, const Plan& plan, Program& program);

}  // namespace amk::lowering
