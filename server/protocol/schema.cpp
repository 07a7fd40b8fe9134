#include "server/protocol/schema.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/parse_json.h"

namespace amk::mcp {
namespace {

constexpr int kMaxDepth = 64;  // of schemas and, since values are walked along them, of values

std::string join(std::string_view path, std::string_view name) {
  if (path.empty()) return std::string(name);
  return std::string(path) + "." + std::string(name);
}
std::string index(std::string_view path, std::size_t i) { return std::string(path.empty() ? "value" : path) + "[" + std::to_string(i) + "]"; }

bool is_integer(const Json& v) {
  if (v.is_number_integer()) return true;
  return v.is_number_float() && std::floor(v.get<double>()) == v.get<double>();
}

bool has_type(const Json& v, const std::string& type) {
  if (type == "object") return v.is_object();
  if (type == "array") return v.is_array();
  if (type == "string") return v.is_string();
  if (type == "boolean") return v.is_boolean();
  if (type == "null") return v.is_null();
  if (type == "integer") return is_integer(v);
  if (type == "number") return v.is_number();
  return false;
}

std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> types;
  const auto it = schema.find("type");
  if (it == schema.end()) return types;
  if (it->is_string()) types.push_back(*it);
  if (it->is_array())
    for (const Json& t : *it)
      if (t.is_string()) types.push_back(t);
  return types;
}

std::string number_text(const Json& n) { return n.dump(); }

// What a schema accepts, in words, for error messages.
std::string describe(const Json& schema) {
  if (!schema.is_object()) return schema == false ? "nothing" : "anything";
  if (auto it = schema.find("const"); it != schema.end()) return it->dump(-1, ' ', false, Json::error_handler_t::replace);
  if (auto it = schema.find("enum"); it != schema.end()) {
    std::string out;
    for (const Json& v : *it) out += (out.empty() ? "" : ", ") + v.dump(-1, ' ', false, Json::error_handler_t::replace);
    return "one of " + out;
  }
  std::string out;
  for (const std::string& t : types_of(schema)) out += (out.empty() ? "" : " or ") + t;
  for (const char* group : {"anyOf", "oneOf"})
    if (auto it = schema.find(group); it != schema.end() && it->is_array())
      for (const Json& s : *it) out += (out.empty() ? "" : " or ") + describe(s);
  if (out.empty()) out = "a value allowed by the schema";
  const auto lo = schema.find("minimum"), hi = schema.find("maximum");
  if (lo != schema.end() && hi != schema.end())
    out += " from " + number_text(*lo) + " to " + number_text(*hi);
  else if (lo != schema.end())
    out += " of at least " + number_text(*lo);
  else if (hi != schema.end())
    out += " of at most " + number_text(*hi);
  if (auto it = schema.find("exclusiveMinimum"); it != schema.end()) out += " above " + number_text(*it);
  if (auto it = schema.find("exclusiveMaximum"); it != schema.end()) out += " below " + number_text(*it);
  if (auto it = schema.find("multipleOf"); it != schema.end()) out += ", a multiple of " + number_text(*it);
  const bool list = out.starts_with("array");
  for (auto [lo_name, hi_name, unit] :
       {std::array<const char*, 3>{"minItems", "maxItems", "entries"}, std::array<const char*, 3>{"minLength", "maxLength", "characters"},
        std::array<const char*, 3>{"minProperties", "maxProperties", "fields"}}) {
    const auto a = schema.find(lo_name), b = schema.find(hi_name);
    if (a != schema.end() && b != schema.end())
      out += " of " + number_text(*a) + " to " + number_text(*b) + " " + unit;
    else if (a != schema.end())
      out += " of at least " + number_text(*a) + " " + unit;
    else if (b != schema.end())
      out += " of at most " + number_text(*b) + " " + unit;
  }
  if (list)
    if (auto it = schema.find("items"); it != schema.end()) out += " (each " + describe(*it) + ")";
  return out;
}

tl::unexpected<Error> refuse(std::string_view path, const Json& value, std::string_view accepted) {
  return bad_field(path.empty() ? "value" : path, value, accepted);
}

// Exact where both fit in 64 signed bits (doubles lose the low bits beyond 2^53), else as doubles.
bool fits_int64(const Json& v) {
  return v.is_number_unsigned() ? v.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
                                : v.is_number_integer();
}

int compare(const Json& a, const Json& b) {
  if (fits_int64(a) && fits_int64(b)) {
    const std::int64_t x = a.get<std::int64_t>(), y = b.get<std::int64_t>();
    return x < y ? -1 : (x > y ? 1 : 0);
  }
  const double x = a.get<double>(), y = b.get<double>();
  return x < y ? -1 : (x > y ? 1 : 0);
}

bool multiple(const Json& v, const Json& step) {
  if (fits_int64(v) && fits_int64(step)) return step != 0 && v.get<std::int64_t>() % step.get<std::int64_t>() == 0;
  const double ratio = v.get<double>() / step.get<double>();
  return std::abs(ratio - std::round(ratio)) <= 1e-9 * std::max(1.0, std::abs(ratio));
}

std::size_t code_points(const std::string& text) {
  std::size_t n = 0;
  for (unsigned char c : text) n += (c & 0xC0) != 0x80;
  return n;
}

// {"name": …} for the nearest known name, so that a typo names its cure.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

tl::unexpected<Error> unknown_field(std::string_view path, const std::string& name, const Json& value, const Json* properties) {
  std::string accepted, nearest;
  std::size_t best = 3;  // farther is no typo
  if (properties)
    for (const auto& [known, _] : properties->items()) {
      accepted += (accepted.empty() ? "" : ", ") + known;
      if (name.size() > 64) continue;
      if (const std::size_t d = edit_distance(name, known); d < best) {
        best = d;
        nearest = known;
      }
    }
  std::string what = accepted.empty() ? "no fields here" : "only the fields " + accepted;
  if (!nearest.empty()) what += " (did you mean " + nearest + "?)";
  auto problem = refuse(join(path, name), value, what);
  problem.value().message = "unknown field " + problem.value().message;
  return problem;
}

Status check(const Json& schema, const Json& value, const std::string& path, int depth);

Status check_alternatives(const Json& schema, const Json& value, const std::string& path, int depth) {
  if (auto it = schema.find("allOf"); it != schema.end())
    for (const Json& s : *it) AMK_CHECK(check(s, value, path, depth + 1));
  if (auto it = schema.find("anyOf"); it != schema.end()) {
    std::optional<Error> first;
    bool ok = false;
    for (const Json& s : *it) {
      Status status = check(s, value, path, depth + 1);
      if (status) {
        ok = true;
        break;
      }
      // The alternative of the value's own type explains best.
      const auto types = types_of(s);
      const bool same_type = std::any_of(types.begin(), types.end(), [&](const std::string& t) { return has_type(value, t); });
      if (!first || same_type) first = status.error();
    }
    if (!ok) {
      if (first) return tl::unexpected<Error>(*first);
      return refuse(path, value, describe(schema));
    }
  }
  if (auto it = schema.find("oneOf"); it != schema.end()) {
    int matches = 0;
    for (const Json& s : *it) matches += check(s, value, path, depth + 1).has_value();
    if (matches != 1) return refuse(path, value, "exactly one of: " + describe(schema));
  }
  if (auto it = schema.find("not"); it != schema.end())
    if (check(*it, value, path, depth + 1)) return refuse(path, value, "anything but " + describe(*it));
  return {};
}

Status check_number(const Json& schema, const Json& value, const std::string& path) {
  auto bound = [&](const char* keyword, auto holds) {
    const auto it = schema.find(keyword);
    return it == schema.end() || holds(*it);
  };
  const bool ok = bound("minimum", [&](const Json& b) { return compare(value, b) >= 0; }) &&
                  bound("maximum", [&](const Json& b) { return compare(value, b) <= 0; }) &&
                  bound("exclusiveMinimum", [&](const Json& b) { return compare(value, b) > 0; }) &&
                  bound("exclusiveMaximum", [&](const Json& b) { return compare(value, b) < 0; }) &&
                  bound("multipleOf", [&](const Json& b) { return multiple(value, b); });
  if (!ok) return refuse(path, value, describe(schema));
  return {};
}

Status check_size(const Json& schema, const Json& value, const std::string& path, std::size_t size, const char* least, const char* most) {
  if (auto it = schema.find(least); it != schema.end() && size < it->get<std::size_t>()) return refuse(path, value, describe(schema));
  if (auto it = schema.find(most); it != schema.end() && size > it->get<std::size_t>()) return refuse(path, value, describe(schema));
  return {};
}

Status check_array(const Json& schema, const Json& value, const std::string& path, int depth) {
  AMK_CHECK(check_size(schema, value, path, value.size(), "minItems", "maxItems"));
  std::size_t i = 0;
  if (auto it = schema.find("prefixItems"); it != schema.end())
    for (; i < it->size() && i < value.size(); ++i) AMK_CHECK(check((*it)[i], value[i], index(path, i), depth + 1));
  if (auto it = schema.find("items"); it != schema.end())
    for (; i < value.size(); ++i) AMK_CHECK(check(*it, value[i], index(path, i), depth + 1));
  return {};
}

Status check_object(const Json& schema, const Json& value, const std::string& path, int depth) {
  AMK_CHECK(check_size(schema, value, path, value.size(), "minProperties", "maxProperties"));
  const auto properties = schema.find("properties");
  const bool has_properties = properties != schema.end();
  const auto additional = schema.find("additionalProperties");
  // Unknown names first: the wrong name is the cause of the missing one.
  for (const auto& [name, v] : value.items()) {
    if (has_properties && properties->contains(name)) continue;
    if (additional == schema.end()) continue;
    if (*additional == false) return unknown_field(path, name, v, has_properties ? &*properties : nullptr);
    AMK_CHECK(check(*additional, v, join(path, name), depth + 1));
  }
  if (auto required = schema.find("required"); required != schema.end())
    for (const Json& name : *required)
      if (!value.contains(name.get<std::string>())) {
        const std::string field = join(path, name.get<std::string>());
        std::string accepted = "required";
        if (has_properties && properties->contains(name.get<std::string>())) accepted = describe((*properties)[name.get<std::string>()]);
        return fail(ErrorKind::InvalidArgument, field + " is missing; accepted: " + accepted,
                    {{"field", field}, {"value", nullptr}, {"accepted", accepted}});
      }
  if (has_properties)
    for (const auto& [name, sub] : properties->items())
      if (auto it = value.find(name); it != value.end()) AMK_CHECK(check(sub, *it, join(path, name), depth + 1));
  return {};
}

Status check(const Json& schema, const Json& value, const std::string& path, int depth) {
  if (depth > kMaxDepth) return fail(ErrorKind::InvalidArgument, path + " is nested deeper than " + std::to_string(kMaxDepth));
  if (schema.is_boolean()) {
    if (schema.get<bool>()) return {};
    return refuse(path, value, "nothing");
  }
  const auto types = types_of(schema);
  if (!types.empty()) {
    bool ok = false;
    for (const std::string& t : types) ok = ok || has_type(value, t);
    if (!ok) return refuse(path, value, describe(schema));
  }
  if (auto it = schema.find("const"); it != schema.end() && *it != value) return refuse(path, value, describe(schema));
  if (auto it = schema.find("enum"); it != schema.end()) {
    bool ok = false;
    for (const Json& v : *it) ok = ok || v == value;
    if (!ok) return refuse(path, value, describe(schema));
  }
  if (value.is_number()) AMK_CHECK(check_number(schema, value, path));
  if (value.is_string()) AMK_CHECK(check_size(schema, value, path, code_points(value.get_ref<const std::string&>()), "minLength", "maxLength"));
  if (value.is_array()) AMK_CHECK(check_array(schema, value, path, depth));
  if (value.is_object()) AMK_CHECK(check_object(schema, value, path, depth));
  return check_alternatives(schema, value, path, depth);
}

}  // namespace

Status validate(const Json& schema, const Json& value, std::string_view root) { return check(schema, value, std::string(root), 0); }

}  // namespace amk::mcp
