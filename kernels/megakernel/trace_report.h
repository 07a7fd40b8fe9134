// What `amk trace` makes of one traced step: a Chrome/Perfetto trace, and where each microsecond of the token went. Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/program/program.h"
#include "kernels/megakernel/device_plan.h"

namespace amk {

// One task of the traced step, times in ns from the step's first mark. A duration that a kind of task does not have is 0.
struct TaskTrace {
  TaskId task = kNone;
  int sm = 0;
  std::int64_t start = 0, end = 0;  // until its block went on; what is published later is in `published`
  std::int64_t wait_dependency = 0, wait_weights = 0, compute = 0, publish = 0;
  std::int64_t published = 0;  // signalled
};

struct TokenTrace {
  std::vector<TaskTrace> tasks;  // by SM, then queue order
  std::int64_t span_ns = 0;      // first mark to last
};

// `marks`: [sm][longest queue][kTraceMarks] as the device wrote them (DeviceProgram::read_trace). InvalidArgument when the size is another or a task
// has no end: the step did not finish.
Result<TokenTrace> read_trace(const Program& program, const DevicePlan& plan, const std::vector<std::uint64_t>& marks);

// {"traceEvents": […]}: pid 1 = consumer warps, pid 2 = publishing warp; tid = SM; categories wait-dependency, wait-weights, compute, publish; ts,
// dur in µs.
Json chrome_trace(const Program& program, const TokenTrace& trace);

// {"span_us", "per_sm_us": {wait_dependency, wait_weights, compute, publish, idle} (means over SMs; publish overlaps what the block does next and is
// left out of the sum), "by_kind": […], "slowest_sms": […], "longest_chain": {"tasks", "us", "by_kind", "last": […]}}. "text": the same for people.
Json summarize_trace(const Program& program, const TokenTrace& trace);

}  // namespace amk
