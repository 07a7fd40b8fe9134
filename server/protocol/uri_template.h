// URI templates of RFC 6570 level 1: literal text and {variables}. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace amk::mcp {

// nullopt if an escape is malformed or decodes to a NUL byte.
std::optional<std::string> percent_decode(std::string_view text);

// The variables' values, percent-decoded, if `uri` matches; each variable takes one or more characters other than '/', the first
// ones as few as possible. nullopt if it does not match, or if an escape is malformed or decodes to a NUL byte.
std::optional<std::map<std::string, std::string>> match_uri_template(std::string_view uri_template, std::string_view uri);

}  // namespace amk::mcp
