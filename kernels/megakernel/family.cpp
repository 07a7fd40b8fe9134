#include "kernels/megakernel/family.h"

#include <filesystem>
#include <system_error>

#include "core/base/resources.h"
#include "core/model/load.h"
#include "core/model/model_variant.h"
#include "core/program/lower_instruction.h"
#include "kernels/megakernel/gpu_judge.h"
#include "kernels/megakernel/gpu_service.h"
#include "kernels/megakernel/instruction_workload.h"

namespace amk {
namespace {

class MegakernelFamily final : public KernelFamily {
 public:
  std::string_view name() const override { return "megakernel"; }
  bool accepts(std::string_view workload) const override { return workload.find(':') == std::string_view::npos; }

  Result<std::shared_ptr<const Workload>> open(std::string_view workload, const GpuTarget& target) const override {
    // "MODEL#op": one instruction kind. The last '#' that an op follows; a folder of that very name is the model itself.
    std::error_code failed;
    if (const std::size_t at = workload.rfind('#'); at != std::string_view::npos && !std::filesystem::exists(workload, failed)) {
      const std::string_view op = workload.substr(at + 1);
      if (!is_instruction_op(op)) return bad_field("model", std::string(workload), "MODEL#op with op one of: " + accepted_instruction_ops());
      AMK_TRY(whole, open_model(workload.substr(0, at), target));
      if (whole->batch() != 1) return bad_field("model", std::string(workload), "MODEL#op of one sequence: an instruction alone has no batch");
      AMK_TRY(alone, InstructionWorkload::create(std::move(whole), op));
      return std::shared_ptr<const Workload>(std::move(alone));
    }
    AMK_TRY(whole, open_model(workload, target));
    return std::shared_ptr<const Workload>(std::move(whole));
  }

  static Result<std::shared_ptr<const MegakernelWorkload>> open_model(std::string_view workload, const GpuTarget& target) {
    AMK_TRY(resources, find_resources());
    AMK_TRY(ref, resolve_model(workload, ModelSources::from_environment(resources.config())));
    // One checkpoint, one id, however the path was written; org/name stays as it is.
    std::error_code failed;
    AMK_TRY(variant, parse_model_variant(workload));
    if (ref.source == ModelRef::Source::Directory && std::filesystem::is_directory(variant.model, failed)) {
      const std::filesystem::path canonical = std::filesystem::canonical(variant.model, failed);
      if (!failed) {
        variant.model = canonical.string();
        ref.spec.name = to_string(variant);
      }
    }
    return MegakernelWorkload::create(ref, target);
  }

  std::vector<std::string> known_workloads() const override {
    const auto resources = find_resources();
    return resources ? catalogue_names(ModelSources::from_environment(resources->config())) : std::vector<std::string>{};
  }

  std::unique_ptr<DeviceJudge> device_judge(const GpuDevice& device, const DeviceJudgeOptions& options, WorkerLink& link) const override {
    return std::make_unique<GpuJudge>(device, options, link, references_);
  }
  std::unique_ptr<DeviceService> device_service(bool faults) const override { return std::make_unique<GpuService>(faults); }

 private:
  std::shared_ptr<GpuReferences> references_ = std::make_shared<GpuReferences>();  // of this process's GPUs
};

}  // namespace

std::unique_ptr<KernelFamily> make_megakernel_family() { return std::make_unique<MegakernelFamily>(); }

}  // namespace amk
