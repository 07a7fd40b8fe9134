#include "core/base/number_text.h"

#include <array>
#include <charconv>
#include <system_error>

namespace amk {
namespace {

// 309 digits before the point, a sign, the point, and more decimals than anybody asks for.
using Room = std::array<char, 512>;

std::string written(const Room& room, const std::to_chars_result& result) {
  return result.ec == std::errc() ? std::string(room.data(), static_cast<const char*>(result.ptr)) : std::string();
}

std::string formatted(double value, std::chars_format format, int precision) {
  Room room;
  return written(room, std::to_chars(room.data(), room.data() + room.size(), value, format, precision));
}

}  // namespace

std::string with_digits(double value, int digits) { return formatted(value, std::chars_format::general, digits); }
std::string with_decimals(double value, int decimals) { return formatted(value, std::chars_format::fixed, decimals); }
std::string scientific(double value, int decimals) { return formatted(value, std::chars_format::scientific, decimals); }

std::string shortest(double value) {
  Room room;
  return written(room, std::to_chars(room.data(), room.data() + room.size(), value));
}

}  // namespace amk
