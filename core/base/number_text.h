// Numbers as text with a point, whatever the locale: libraries of ours run in programs that set one, and printf, std::to_string and streams follow
// it. The same digits as printf's in the "C" locale (C++20, [charconv]). Pure, thread-safe. Reading: std::from_chars.
#pragma once

#include <string>

namespace amk {

std::string with_digits(double value, int digits);      // %.*g
std::string with_decimals(double value, int decimals);  // %.*f
std::string scientific(double value, int decimals);     // %.*e
std::string shortest(double value);                     // the fewest digits that read back equal

}  // namespace amk
