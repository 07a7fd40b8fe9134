// Validation of JSON values against the subset of JSON Schema 2020-12 that this program's schemas use:
// type (one or a list), enum, const, properties, required, additionalProperties, items, prefixItems, minItems, maxItems,
// minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, minProperties, maxProperties, anyOf, oneOf,
// allOf, not. Annotations (title, description, default, examples, deprecated, format, x-…) are ignored.
// An unknown keyword in a schema is an error of the schema, never ignored: check_schema finds it. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk::mcp {

// Ok, or InvalidArgument naming the field (dotted path from `root`, e.g. "config.stages" or "items[3]"), its value and what is accepted.
// One violation is reported: an unknown field before a missing one (the wrong name is the cause), then in the order of names.
Status validate(const Json& schema, const Json& value, std::string_view root = "");

// Whether `schema` itself stays within the subset above; Internal error otherwise.
Status check_schema(const Json& schema, std::string_view root = "schema");

// What models send in spite of the schema, turned into what the schema asks for, where that is unambiguous:
// "3" -> 3, "true" -> true, "[1,2]" -> [1,2], "{\"a\":1}" -> {"a":1}, 3 -> "3" where only a string is accepted, 3.0 -> 3 where
// integers are, null for an optional property -> absent. Everything else is left for validate() to refuse.
// Also fills in `default`s of absent properties.
Json coerce(const Json& schema, Json value);

}  // namespace amk::mcp
