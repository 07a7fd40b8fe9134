// Where candidates are judged: the CPU path of the family, or a GPU worker. An interface, so that loops can be tested with a fake.
#pragma once

#include <string>
#include <vector>

#include "kernels/family.h"

namespace amk {

class Judge {
 public:
  virtual ~Judge() = default;
  // The usable GPUs of this machine as targets, one of each kind; "auto" is the first. Probed lazily, at most once; thread-safe.
  virtual std::vector<GpuTarget> local_gpus() = 0;
  // What `doctor` says of GPUs, driver, NVRTC, NVML: {"gpus": […], "driver": …, …, "missing": […]}.
  virtual Json gpu_report() = 0;
  // One whole judgement; `incumbent` is asked for and compared in turn where the device measures. Error: the machinery failed.
  virtual Result<Verdict> judge(const Workload& workload, const Json& canonical, Device device, const IncumbentNow& incumbent,
                                const Progress& progress) = 0;
  // Judgements that can run at the same time on GPUs of this kind.
  virtual int lanes(const GpuTarget& /*target*/) { return 1; }
};

// Judges on the CPU; has no GPU.
class CpuJudge : public Judge {
 public:
  std::vector<GpuTarget> local_gpus() override { return {}; }
  Json gpu_report() override;
  Result<Verdict> judge(const Workload& workload, const Json& canonical, Device device, const IncumbentNow& incumbent,
                        const Progress& progress) override;
};

}  // namespace amk
