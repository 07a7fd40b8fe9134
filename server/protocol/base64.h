// Base64 (RFC 4648, with padding). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace amk::mcp {

std::string base64_encode(std::string_view bytes);
// Strict: nullopt for other characters, wrong length or padding, or bits set after the end.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace amk::mcp
