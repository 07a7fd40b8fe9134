#include "kernels/device_judge.h"

#include "core/base/json.h"

namespace amk {

Result<Verdict> DeviceJudge::judge(const Workload& workload, const Json& canonical, const std::optional<Json>& incumbent, const Progress& progress) {
  return judge_against(
      workload, canonical, [&incumbent]() -> Result<std::optional<Json>> { return incumbent; }, progress);
}

}  // namespace amk
