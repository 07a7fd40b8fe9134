// Request metadata of 2026-07-28: MCP-Protocol-Version, Mcp-Method, Mcp-Name and Mcp-Param-* must say what the body says.
#include <charconv>
#include <cmath>

#include "server/http/access.h"
#include "server/http/mcp_endpoint.h"
#include "server/protocol/base64.h"
#include "server/protocol/revisions.h"

namespace amk::http {
namespace {

bool plain_ascii(const std::string& s) {
  for (unsigned char c : s)
    if ((c < 0x20 && c != '\t') || c > 0x7E) return false;
  return true;
}

// The value that a header carries: as it is, or decoded from the form =?base64?…?=. nullopt: malformed.
std::optional<std::string> decode(const std::string& value) {
  constexpr std::string_view kStart = "=?base64?", kEnd = "?=";
  if (!plain_ascii(value)) return std::nullopt;
  if (!value.starts_with(kStart) || !value.ends_with(kEnd) || value.size() < kStart.size() + kEnd.size()) return value;
  return mcp::base64_decode(std::string_view(value).substr(kStart.size(), value.size() - kStart.size() - kEnd.size()));
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

std::string text_of(const Json& v) {
  if (v.is_string()) return v.get<std::string>();
  if (v.is_boolean()) return v.get<bool>() ? "true" : "false";
  return v.dump();
}

bool same_value(const std::string& header, const Json& body) {
  if (header == text_of(body)) return true;
  if (!body.is_number()) return false;
  // "42.0 and 42 are considered equal"
  double parsed = 0;
  const auto [end, problem] = std::from_chars(header.data(), header.data() + header.size(), parsed);
  return problem == std::errc() && end == header.data() + header.size() && parsed == body.get<double>();
}

// Walks the properties of a schema along with the arguments. Empty: all mirrored parameters fit.
std::string parameter_mismatch(const Request& request, const Json& schema, const Json& arguments) {
  const Json* properties = member(schema, "properties");
  if (!properties || !properties->is_object()) return {};
  for (const auto& [name, sub] : properties->items()) {
    const Json* value = member(arguments, name.c_str());
    if (const Json* mirrored = member(sub, "x-mcp-header"); mirrored && mirrored->is_string()) {
      const std::string header_name = "Mcp-Param-" + mirrored->get<std::string>();
      const std::string* header = request.header(lower(header_name));
      const bool present = value && !value->is_null();
      if (!header && present) return header_name + " is missing, but the argument " + name + " is in the body";
      if (header && !present) return header_name + " is there, but the argument " + name + " is not in the body";
      if (header) {
        const auto decoded = decode(*header);
        if (!decoded) return header_name + " is malformed";
        if (!same_value(*decoded, *value)) return header_name + " does not match the argument " + name;
      }
    }
    if (value && sub.is_object()) {
      const std::string inner = parameter_mismatch(request, sub, *value);
      if (!inner.empty()) return inner;
    }
  }
  return {};
}

}  // namespace

std::string header_mismatch(const Request& request, const Json& message, const Json* schema) {
  const Json* params = member(message, "params");
  const Json* meta = params ? member(*params, "_meta") : nullptr;
  const Json* version = meta ? member(*meta, mcp::kMetaProtocolVersion) : nullptr;
  for (const char* name : {"mcp-protocol-version", "mcp-method", "mcp-name"})
    if (request.count(name) > 1) return std::string(name) + " is there more than once";

  const std::string* version_header = request.header("mcp-protocol-version");
  if (!version_header) return "MCP-Protocol-Version is missing";
  if (version && version->is_string() && *version_header != version->get<std::string>())
    return "MCP-Protocol-Version is " + *version_header + ", the body says " + version->get<std::string>();

  const Json* method = member(message, "method");
  const std::string* method_header = request.header("mcp-method");
  if (!method_header) return "Mcp-Method is missing";
  if (!method || *method != *method_header)
    return "Mcp-Method is " + *method_header + ", the body says " + (method ? text_of(*method) : std::string("nothing"));

  const bool by_name = *method == "tools/call" || *method == "prompts/get";
  if (by_name || *method == "resources/read") {
    const char* source = by_name ? "name" : "uri";
    const Json* named = params ? member(*params, source) : nullptr;
    const std::string* name_header = request.header("mcp-name");
    if (!name_header) return "Mcp-Name is missing";
    const auto decoded = decode(*name_header);
    if (!decoded) return "Mcp-Name is malformed";
    if (!named || !named->is_string() || named->get<std::string>() != *decoded)
      return "Mcp-Name is " + *name_header + ", the body says " + (named ? text_of(*named) : std::string("nothing"));
  }
  if (schema && *method == "tools/call") {
    const Json* arguments = params ? member(*params, "arguments") : nullptr;
    return parameter_mismatch(request, *schema, arguments ? *arguments : Json::object());
  }
  return {};
}

}  // namespace amk::http
