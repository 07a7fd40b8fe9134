// Is a schema within the subset that validate() understands? See schema.h.
#include <string>

#include "server/protocol/schema.h"

namespace amk::mcp {
namespace {

enum class Shape { Annotation, Type, Schema, SchemaOrBool, SchemaMap, SchemaList, List, Names, Number, Count, Any };

struct Keyword {
  std::string_view name;
  Shape shape;
};

constexpr Keyword kKeywords[] = {
    {"$schema", Shape::Annotation},
    {"$id", Shape::Annotation},
    {"title", Shape::Annotation},
    {"description", Shape::Annotation},
    {"default", Shape::Annotation},
    {"examples", Shape::Annotation},
    {"deprecated", Shape::Annotation},
    {"format", Shape::Annotation},
    {"readOnly", Shape::Annotation},
    {"$comment", Shape::Annotation},
    {"type", Shape::Type},
    {"enum", Shape::List},
    {"const", Shape::Any},
    {"properties", Shape::SchemaMap},
    {"required", Shape::Names},
    {"additionalProperties", Shape::SchemaOrBool},
    {"items", Shape::SchemaOrBool},
    {"prefixItems", Shape::SchemaList},
    {"minItems", Shape::Count},
    {"maxItems", Shape::Count},
    {"minLength", Shape::Count},
    {"maxLength", Shape::Count},
    {"minProperties", Shape::Count},
    {"maxProperties", Shape::Count},
    {"minimum", Shape::Number},
    {"maximum", Shape::Number},
    {"exclusiveMinimum", Shape::Number},
    {"exclusiveMaximum", Shape::Number},
    {"multipleOf", Shape::Number},
    {"anyOf", Shape::SchemaList},
    {"oneOf", Shape::SchemaList},
    {"allOf", Shape::SchemaList},
    {"not", Shape::SchemaOrBool},
};

tl::unexpected<Error> wrong(const std::string& where, std::string_view what) { return fail(ErrorKind::Internal, where + " " + std::string(what)); }

bool is_type_name(const Json& v) {
  for (std::string_view t : {"object", "array", "string", "number", "integer", "boolean", "null"})
    if (v == t) return true;
  return false;
}

Status check_keyword(Shape shape, const Json& v, const std::string& where, int depth);

Status check_one(const Json& schema, const std::string& where, int depth) {
  if (depth > 32) return wrong(where, "is nested deeper than 32");
  if (schema.is_boolean()) return {};
  if (!schema.is_object()) return wrong(where, "is not a schema (an object, true or false)");
  for (const auto& [name, v] : schema.items()) {
    if (name.starts_with("x-")) continue;
    const Keyword* found = nullptr;
    for (const Keyword& k : kKeywords)
      if (k.name == name) found = &k;
    if (!found) return wrong(where + "." + name, "is not a keyword that this program understands");
    AMK_CHECK(check_keyword(found->shape, v, where + "." + name, depth));
  }
  return {};
}

Status check_keyword(Shape shape, const Json& v, const std::string& where, int depth) {
  switch (shape) {
    case Shape::Annotation:
    case Shape::Any:
      return {};
    case Shape::Type:
      if (is_type_name(v)) return {};
      if (!v.is_array() || v.empty()) return wrong(where, "is not a type name or a list of them");
      for (const Json& t : v)
        if (!is_type_name(t)) return wrong(where, "is not a type name or a list of them");
      return {};
    case Shape::List:
      return v.is_array() && !v.empty() ? Status{} : wrong(where, "is not a list of values");
    case Shape::Names:
      if (!v.is_array()) return wrong(where, "is not a list of names");
      for (const Json& n : v)
        if (!n.is_string()) return wrong(where, "is not a list of names");
      return {};
    case Shape::Number:
      return v.is_number() ? Status{} : wrong(where, "is not a number");
    case Shape::Count:
      return v.is_number_unsigned() || (v.is_number_integer() && v >= 0) ? Status{} : wrong(where, "is not a count");
    case Shape::Schema:
    case Shape::SchemaOrBool:
      return check_one(v, where, depth + 1);
    case Shape::SchemaMap:
      if (!v.is_object()) return wrong(where, "is not an object");
      for (const auto& [name, sub] : v.items()) AMK_CHECK(check_one(sub, where + "." + name, depth + 1));
      return {};
    case Shape::SchemaList:
      if (!v.is_array() || v.empty()) return wrong(where, "is not a list of schemas");
      for (std::size_t i = 0; i < v.size(); ++i) AMK_CHECK(check_one(v[i], where + "[" + std::to_string(i) + "]", depth + 1));
      return {};
  }
  return {};
}

}  // namespace

Status check_schema(const Json& schema, std::string_view root) { return check_one(schema, std::string(root), 0); }

}  // namespace amk::mcp
