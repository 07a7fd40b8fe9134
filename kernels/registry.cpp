#include "kernels/registry.h"

#include "core/base/json.h"
#include "kernels/det_gemm/family.h"
#include "kernels/megakernel/family.h"

namespace amk {
namespace {

std::vector<std::unique_ptr<KernelFamily>> make_families() {
  std::vector<std::unique_ptr<KernelFamily>> families;
  families.push_back(make_det_gemm_family());
  families.push_back(make_megakernel_family());  // accepts whatever names a model: it is asked last
  return families;
}

}  // namespace

const std::vector<std::unique_ptr<KernelFamily>>& kernel_families() {
  static const std::vector<std::unique_ptr<KernelFamily>> families = make_families();
  return families;
}

Result<std::shared_ptr<const Workload>> open_workload(std::string_view name, const GpuTarget& target) {
  for (const auto& family : kernel_families())
    if (family->accepts(name)) return family->open(name, target);
  return bad_field("model", std::string(name),
                   "a catalogue name, a checkpoint folder, org/name in the local HuggingFace cache, or det_gemm:<op>:<M>x<N>x<K>");
}

std::vector<std::string> known_workloads() {
  std::vector<std::string> out;
  for (const auto& family : kernel_families())
    for (std::string& name : family->known_workloads()) out.push_back(std::move(name));
  return out;
}

}  // namespace amk
