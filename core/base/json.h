// JSON values. Objects keep their keys sorted, so dump() of equal values is equal text on every machine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/json_fwd.h"
