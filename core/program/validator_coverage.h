// What the host, or a later step, reads must be written by every step at every position: outputs, inputs that a step feeds back to the
// next, and the launch position's row of every KV head.
// Internal to core/program.
#pragma once

#include "core/program/validator_report.h"

namespace amk::validation {

// "unwritten-output". Exact for programs without double writes: then areas (bytes × positions) add up.
Verdict check_coverage(const Program& program);

}  // namespace amk::validation
