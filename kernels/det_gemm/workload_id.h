// Text form of a problem: det_gemm:<fwd|da|db>:<M>x<N>x<K>[:kn|nk][:fp32][:chunk<tokens>], or det_gemm:<name> for a named shape
// (config/shapes/det_gemm.json). Pure, thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "kernels/det_gemm/problem.h"

namespace amk::det_gemm {

constexpr std::string_view kWorkloadPrefix = "det_gemm:";

// Named shapes -> problems. InvalidArgument names the entry that is wrong.
Result<std::map<std::string, Problem>> named_shapes_from_json(const Json& json);

Result<Problem> parse_workload(std::string_view text, const std::map<std::string, Problem>& named);

// Canonical: optional parts only where they differ from the default.
std::string workload_id(const Problem& problem);

}  // namespace amk::det_gemm
