// What NVML says of one card while something is timed on it. Without NVML every answer is "unknown". Not thread-safe.
#pragma once

#include <string>

#include "kernels/evaluator/clock.h"
#include "kernels/evaluator/nvml.h"

namespace amk {

class NvmlMonitor final : public Monitor {
 public:
  explicit NvmlMonitor(const std::string& uuid);
  std::optional<ClockReading> read() override;
  // Computing on the card besides this process; -1: unknown.
  int other_processes() const;

 private:
  const Nvml* nvml_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace amk
