// The leaves of a config: what a knob importance counts. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace amk {

// Every leaf as (dotted path, text); lists are leaves.
std::vector<std::pair<std::string, std::string>> config_leaves(const Json& config);

// The same of a config's canonical text, in the same order, without building the value: a report looks at tens of thousands. `visit` gets views
// that live until it returns. False when the text is not what canonical_dump writes, or has escapes in a key; `visit` may have been called by then.
bool scan_leaves(std::string_view canonical, const std::function<void(std::string_view path, std::string_view text)>& visit);

}  // namespace amk
