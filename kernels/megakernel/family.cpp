#include "kernels/megakernel/family.h"

#include <filesystem>
#include <system_error>

#include "core/base/resources.h"
#include "core/model/load.h"
#include "kernels/megakernel/gpu_judge.h"
#include "kernels/megakernel/gpu_service.h"
#include "kernels/megakernel/workload.h"

namespace amk {
namespace {

class MegakernelFamily final : public KernelFamily {
 public:
  std::string_view name() const override { return "megakernel"; }
  bool accepts(std::string_view workload) const override { return workload.find(':') == std::string_view::npos; }

  Result<std::shared_ptr<const Workload>> open(std::string_view workload, const GpuTarget& target) const override {
    AMK_TRY(resources, find_resources());
    AMK_TRY(ref, resolve_model(workload, ModelSources::from_environment(resources.config())));
    // One checkpoint, one id, however the path was written; org/name stays as it is.
    std::error_code failed;
    if (ref.source == ModelRef::Source::Directory && std::filesystem::is_directory(workload, failed)) {
      const std::filesystem::path canonical = std::filesystem::canonical(workload, failed);
      if (!failed) ref.spec.name = canonical.string();
    }
    AMK_TRY(opened, MegakernelWorkload::create(ref, target));
    return std::shared_ptr<const Workload>(std::move(opened));
  }

  std::vector<std::string> known_workloads() const override {
    const auto resources = find_resources();
    return resources ? catalogue_names(ModelSources::from_environment(resources->config())) : std::vector<std::string>{};
  }

  std::unique_ptr<DeviceJudge> device_judge(const GpuDevice& device, const DeviceJudgeOptions& options, WorkerLink& link) const override {
    return std::make_unique<GpuJudge>(device, options, link);
  }
  std::unique_ptr<DeviceService> device_service(bool faults) const override { return std::make_unique<GpuService>(faults); }
};

}  // namespace

std::unique_ptr<KernelFamily> make_megakernel_family() { return std::make_unique<MegakernelFamily>(); }

}  // namespace amk
