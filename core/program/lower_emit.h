// Third part of lowering: tasks with their regions, waits and signals. Internal to core/program.
#pragma once

#include <vector>

#include "core/program/lower_place.h"

namespace amk::lowering {

// Fills instructions, counters, tasks, queues and streams of `program`, whose scalars (sm_count, max_seq, ring, attention) are set and whose
// buffers have their sizes.
void emit_tasks(const ModelSpec& spec, const Plan& plan, const std::vector<std::vector<Run>>& runs, Program& program);

// Behind it: the edges from a step to the next, where one launch has several.
void order_steps(const ScheduleConfig& config, Program& program);

}  // namespace amk::lowering
