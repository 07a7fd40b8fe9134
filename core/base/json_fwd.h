#pragma once

#include <nlohmann/json_fwd.hpp>

namespace amk {
using Json = nlohmann::json;
}
