// The kernel families of this build. A new family is one folder beside this file and one line in registry.cpp. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/family.h"

namespace amk {

const std::vector<std::unique_ptr<KernelFamily>>& kernel_families();

// Opens a workload with the family that accepts its name. Errors name the field `model`.
Result<std::shared_ptr<const Workload>> open_workload(std::string_view name, const GpuTarget& target);

// Names for completion: every family's, catalogue names first.
std::vector<std::string> known_workloads();

}  // namespace amk
