// Which implementation serves a call: tuned table, defaults, or one asked for by name. Only schedules are chosen here; every choice has the
// same numeric class, and a class is never changed silently. Pure, thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "kernels/det_gemm/tuned_table.h"

namespace amk::det_gemm {

struct Choice {
  Plan plan;
  std::string implementation;         // "tuned", "default", "wgmma", "mma", "plain"
  std::string origin;                 // "exact bucket m16 n16384 k4096", "nearest bucket …", "default"
  bool exact = false;                 // a tuned entry of the call's own bucket
  std::vector<std::string> warnings;  // why earlier ones of the list could not serve
};

// `order`: implementation names, tried in turn. One name: fails fast with its reason if it cannot serve. Several: each failure is a warning,
// and an error names them all if none can. Empty means kDefaultOrder. "strict" alone pins one schedule per problem kind, whatever M:
// for those who want no shape-dependent choice at all.
Result<Choice> choose(const Problem& problem, const Storage& storage, const GpuTarget& target, const TunedTable& table,
                      std::span<const std::string> order);

std::span<const std::string_view> implementation_names();

}  // namespace amk::det_gemm
