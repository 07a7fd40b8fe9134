// Where the time of experiments went, summed: what the report and the page show.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/base/json_fwd.h"

namespace amk {

// Adds one experiment's {"<phase>_us": microseconds} (null: nobody measured) to `sum_s`, in seconds. Time of its `duration_us` that no phase names is
// "other", or "evaluation" when none is named; not where the caller named the rest itself ("other_us").
void add_phases(const Json& phases, std::int64_t duration_us, std::map<std::string, double>& sum_s);

}  // namespace amk
