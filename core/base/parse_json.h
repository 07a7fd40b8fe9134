// Parsing of untrusted JSON text. Thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/base/error.h"

namespace amk {

struct JsonLimits {
  std::size_t max_bytes = 16u << 20;
  int max_depth = 64;  // nesting; deeper text is refused before it can exhaust the stack
};

// Strict RFC 8259 text in UTF-8: one value, no comments, no duplicate keys, no NaN or Infinity, numbers within double range.
// `what` names the source in the error message (a path, "config", "request").
Result<Json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits = {});

// Canonical text: sorted keys, no spaces, shortest round-trip numbers, invalid UTF-8 impossible by construction.
std::string canonical_dump(const Json& value);

}  // namespace amk
