#include "kernels/det_gemm/timed_verdict.h"

#include "kernels/det_gemm/cost_model.h"

namespace amk::det_gemm {

void fill_timing(Verdict& verdict, const GemmWorkload& workload, const amk::Timing& timing, const std::string& incumbent) {
  const Floor floor = floor_of(workload.shape(), workload.target());
  verdict.bound_us = floor.bound_us;
  verdict.noise = Noise{.mad_us = timing.mad_us, .samples = static_cast<std::int64_t>(timing.candidate_us.size()), .rounds = timing.rounds};
  verdict.latency_us.reset();
  verdict.latency_kind = LatencyKind::None;
  verdict.pct_of_roofline.reset();
  verdict.read_bandwidth_gbs.reset();
  verdict.versus.reset();
  verdict.withheld.clear();
  if (timing.latency_us < floor.bound_us) {
    verdict.withheld = "below-floor";
    return;
  }
  verdict.latency_us = timing.latency_us;
  verdict.latency_kind = LatencyKind::MeasuredGpu;
  verdict.pct_of_roofline = 100.0 * floor.bound_us / timing.latency_us;
  verdict.read_bandwidth_gbs = static_cast<double>(compulsory_bytes(workload.shape())) / timing.latency_us * 1e-3;
  if (timing.versus && !incumbent.empty())
    verdict.versus = Versus{incumbent, timing.versus->ratio, timing.versus->ci_low, timing.versus->ci_high, decision_of(timing.decision)};
}

}  // namespace amk::det_gemm
