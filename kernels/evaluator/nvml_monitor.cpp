#include "kernels/evaluator/nvml_monitor.h"

#include <unistd.h>

#include <algorithm>

namespace amk {

NvmlMonitor::NvmlMonitor(const std::string& uuid) {
  const auto nvml = Nvml::open();
  if (!nvml) return;
  auto device = (*nvml)->device(uuid);
  if (!device) return;
  nvml_ = *nvml;
  device_ = *device;
}

std::optional<ClockReading> NvmlMonitor::read() {
  if (nvml_ == nullptr) return std::nullopt;
  const auto reading = nvml_->read(device_);
  if (!reading) return std::nullopt;
  return ClockReading{static_cast<double>(reading->sm_mhz), reading->throttle_reasons};
}

int NvmlMonitor::other_processes() const {
  if (nvml_ == nullptr) return -1;
  const auto pids = nvml_->compute_processes(device_);
  if (!pids) return -1;
  // Ids are the host's, so in a container ours may not be among them: then one is taken as ours.
  const auto own = static_cast<std::uint32_t>(getpid());
  const auto others = static_cast<int>(std::count_if(pids->begin(), pids->end(), [own](std::uint32_t pid) { return pid != own; }));
  const bool found = others < static_cast<int>(pids->size());
  return found ? others : std::max(0, others - 1);
}

}  // namespace amk
