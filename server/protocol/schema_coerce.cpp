// Argument coercion: see schema.h. Kept apart from validation because it follows what models do, not what JSON Schema says.
#include <charconv>
#include <cmath>

#include "core/base/parse_json.h"
#include "server/protocol/schema.h"

namespace amk::mcp {
namespace {

constexpr int kMaxCoercedDepth = 64;

bool allows(const Json& schema, std::string_view type) {
  const auto it = schema.find("type");
  if (it == schema.end()) return false;
  if (it->is_string()) return *it == type;
  if (it->is_array())
    for (const Json& t : *it)
      if (t == type) return true;
  return false;
}

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
}

// A string that is exactly the JSON text of a value of an accepted type becomes that value.
Json from_string(const Json& schema, const Json& value) {
  const std::string_view text = trimmed(value.get_ref<const std::string&>());
  if (text.empty()) return value;
  const bool number = allows(schema, "number") || allows(schema, "integer");
  if (allows(schema, "boolean")) {
    // Python-minded models write True and False.
    if (text == "true" || text == "True") return true;
    if (text == "false" || text == "False") return false;
  }
  if (allows(schema, "null") && (text == "null" || text == "None")) return nullptr;
  const char first = text.front();
  const bool looks_right = (number && (first == '-' || (first >= '0' && first <= '9'))) || (allows(schema, "array") && first == '[') ||
                           (allows(schema, "object") && first == '{');
  if (!looks_right) return value;
  auto parsed = parse_json(text, "argument");
  return parsed ? *std::move(parsed) : value;
}

Json apply(const Json& schema, Json value, int depth) {
  if (depth > kMaxCoercedDepth || !schema.is_object()) return value;
  if (value.is_string() && !allows(schema, "string") && schema.contains("type")) value = from_string(schema, value);
  if (value.is_number() && allows(schema, "string") && !allows(schema, "number") && !allows(schema, "integer")) return value.dump();
  if (value.is_number_float() && allows(schema, "integer") && !allows(schema, "number")) {
    const double d = value.get<double>();
    if (std::floor(d) == d && std::abs(d) <= 9007199254740992.0) value = static_cast<std::int64_t>(d);
  }
  if (value.is_array()) {
    const auto items = schema.find("items");
    if (items != schema.end())
      for (Json& v : value) v = apply(*items, std::move(v), depth + 1);
    return value;
  }
  if (!value.is_object()) return value;
  const auto properties = schema.find("properties");
  if (properties == schema.end()) return value;
  const auto required = schema.find("required");
  for (const auto& [name, sub] : properties->items()) {
    auto it = value.find(name);
    if (it != value.end() && it->is_null() && sub.is_object() && sub.contains("type") && !allows(sub, "null")) {
      // Several clients send null for every argument that the model left out.
      const bool needed = required != schema.end() && std::find(required->begin(), required->end(), name) != required->end();
      if (!needed) {
        value.erase(it);
        it = value.end();
      }
    }
    if (it != value.end())
      *it = apply(sub, std::move(*it), depth + 1);
    else if (sub.is_object() && sub.contains("default"))
      value[name] = sub["default"];
  }
  return value;
}

}  // namespace

Json coerce(const Json& schema, Json value) { return apply(schema, std::move(value), 0); }

}  // namespace amk::mcp
