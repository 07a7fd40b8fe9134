// The table of priors: what a search takes with each sibling's rows as its prior, against what it takes without.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/replay/options.h"

namespace amk {

// Prints a JSON line a metric through `line`. False when no two of the spaces have the same knobs.
bool sibling_table(const std::vector<RecordedSpace>& spaces, const ReplayCommand& command,
                   const std::function<void(const std::string& metric, double value, const std::string& unit)>& line);

}  // namespace amk
