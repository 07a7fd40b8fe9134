// What differs between two configs. Pure.
#pragma once

#include "core/base/json.h"

namespace amk {

// {dotted path: [value in a, value in b]} of every leaf that differs; null where one lacks it. Arrays are compared whole.
Json config_diff(const Json& a, const Json& b);

}  // namespace amk
