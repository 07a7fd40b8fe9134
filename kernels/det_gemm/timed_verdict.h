// What samples mean for a verdict on a deterministic GEMM: floor, latency, share of the roofline, comparison. The same for the process that
// measured and for the judge, which computes all of it again. Pure.
#pragma once

#include <string>

#include "kernels/det_gemm/workload.h"
#include "kernels/evaluator/clock.h"
#include "kernels/verdict.h"

namespace amk::det_gemm {

// Overwrites every field that speaks of time. `incumbent`: the schedule_id that the samples were taken in turn with; empty: none.
void fill_timing(Verdict& verdict, const GemmWorkload& workload, const amk::Timing& timing, const std::string& incumbent);

}  // namespace amk::det_gemm
