#include "orchestrator/service/judge.h"

namespace amk {

Json CpuJudge::gpu_report() { return {{"gpus", Json::array()}}; }

Result<Verdict> CpuJudge::judge(const Workload& workload, const Json& canonical, Device device, const IncumbentNow&, const Progress& progress) {
  if (device == Device::Cuda)
    return fail(ErrorKind::Unavailable, "device is cuda, but no usable NVIDIA GPU was found here; accepted: cpu (or see amk doctor)");
  auto verdict = workload.judge_on_cpu(canonical, progress);
  if (verdict) verdict->device = "cpu";
  return verdict;
}

}  // namespace amk
