#include "kernels/det_gemm/family.h"

#include <fstream>
#include <iterator>

#include "core/base/parse_json.h"
#include "core/base/resources.h"
#include "kernels/det_gemm/remote_judge.h"
#include "kernels/det_gemm/service.h"
#include "kernels/det_gemm/workload.h"
#include "kernels/det_gemm/workload_id.h"

namespace amk {
namespace {

using namespace det_gemm;

Result<std::map<std::string, Problem>> load_named_shapes() {
  AMK_TRY(resources, find_resources());
  const std::filesystem::path path = resources.config() / "shapes" / "det_gemm.json";
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return fail(ErrorKind::Io, "cannot read the named shapes " + path.string(), {{"path", path.string()}});
  AMK_TRY(json, parse_json(text, path.string()));
  return named_shapes_from_json(json);
}

class DetGemmFamily final : public KernelFamily {
 public:
  std::string_view name() const override { return "det_gemm"; }
  bool accepts(std::string_view workload) const override { return workload.substr(0, kWorkloadPrefix.size()) == kWorkloadPrefix; }

  Result<std::shared_ptr<const Workload>> open(std::string_view workload, const GpuTarget& target) const override {
    AMK_TRY(named, load_named_shapes());
    AMK_TRY(problem, parse_workload(workload, named));
    AMK_TRY(opened, GemmWorkload::create(problem, target));
    return std::shared_ptr<const Workload>(std::move(opened));
  }

  std::vector<std::string> known_workloads() const override {
    std::vector<std::string> names;
    if (const auto named = load_named_shapes()) {
      for (const auto& [name, problem] : *named) names.push_back(std::string(kWorkloadPrefix) + name);
    }
    return names;
  }

  std::unique_ptr<DeviceJudge> device_judge(const GpuDevice& device, const DeviceJudgeOptions& options, WorkerLink& link) const override {
    return std::make_unique<RemoteJudge>(device, options, link);
  }
  std::unique_ptr<DeviceService> device_service(bool faults) const override { return std::make_unique<GemmService>(faults); }
};

}  // namespace

std::unique_ptr<KernelFamily> make_det_gemm_family() { return std::make_unique<DetGemmFamily>(); }

}  // namespace amk
