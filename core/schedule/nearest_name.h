// "Did you mean …?": the known name closest to a mistyped one. Pure, thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace amk {

// Fewest insertions, deletions and replacements (Levenshtein 1966), letter case ignored; nullptr when none is near enough to be a typing slip
// (more than a third of the longer name differs) or `name` is absurdly long. The first among equals.
const std::string* nearest_name(std::string_view name, std::span<const std::string> known);

}  // namespace amk
