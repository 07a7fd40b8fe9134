// Integer arithmetic that the language leaves out. Pure.
#pragma once

#include <cstdint>

namespace amk {

// a / b rounded up; a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace amk
