#include "orchestrator/service/workloads.h"

#include <algorithm>

#include "kernels/registry.h"

namespace amk {
namespace {

constexpr std::size_t kKeptOpen = 8;

}  // namespace

Result<Device> device_from(std::string_view text) {
  if (text == "auto") return Device::Auto;
  if (text == "cuda") return Device::Cuda;
  if (text == "cpu") return Device::Cpu;
  return bad_field("device", std::string(text), "auto, cuda, cpu");
}

Result<GpuTarget> Workloads::target(const std::string& gpu) {
  if (gpu != "auto") return load_gpu_target(gpu, gpus_dir_);
  if (auto local = judge_.local_gpus(); !local.empty()) return local.front();
  return load_gpu_target("rtx5090", gpus_dir_);
}

Result<Opened> Workloads::open(const std::string& model, const std::string& gpu, const std::string& device) {
  AMK_TRY(wanted, device_from(device));
  AMK_TRY(target_gpu, target(gpu));
  Opened out;
  if (wanted == Device::Cpu) {
    out.device = Device::Cpu;
  } else {
    const auto here = judge_.local_gpus();
    const auto local = std::find_if(here.begin(), here.end(), [&](const GpuTarget& g) { return g.name == target_gpu.name; });
    const bool is_local = local != here.end();
    if (wanted == Device::Cuda && !is_local) {
      if (here.empty())
        return fail(ErrorKind::Unavailable,
                    "device is cuda, but no usable NVIDIA GPU was found on this machine (amk doctor says why); accepted here: cpu",
                    {{"field", "device"}, {"value", "cuda"}, {"accepted", "cpu"}});
      std::string names;
      for (const GpuTarget& g : here) names += (names.empty() ? "" : ", ") + g.name;
      return bad_field("gpu", gpu, "auto, or of the GPUs of this machine, when device is cuda: " + names);
    }
    out.device = is_local ? Device::Cuda : Device::Cpu;
    if (is_local) target_gpu = *local;  // as the driver describes it
  }

  const std::string key = model + "\n" + target_gpu.name;
  {
    std::lock_guard lock(mutex_);
    const auto at = std::find_if(open_.begin(), open_.end(), [&](const Entry& e) { return e.key == key; });
    if (at != open_.end()) {
      open_.splice(open_.begin(), open_, at);
      out.workload = open_.front().workload;
    }
  }
  // A checkpoint that was written anew since is opened anew.
  if (out.workload && out.workload->unchanged()) return out;
  // Opened without the lock: it may take a while. Two threads may open the same one; the second result is dropped.
  AMK_TRY(workload, open_workload(model, target_gpu));
  std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const Entry& e) { return e.key == key; });
  open_.push_front({key, workload});
  if (open_.size() > kKeptOpen) open_.pop_back();
  out.workload = std::move(workload);
  return out;
}

}  // namespace amk
