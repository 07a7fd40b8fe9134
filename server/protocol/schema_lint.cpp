#include "server/protocol/schema_lint.h"

#include <set>

#include "core/base/parse_json.h"
#include "server/protocol/schema.h"

namespace amk::mcp {
namespace {

constexpr std::size_t kMaxName = 30;            // clients prefix names with the server's and cut at 64
constexpr std::size_t kMaxDescription = 1'800;  // clients cut at 2,048, some count characters, some bytes
constexpr std::size_t kMaxToolListBytes = 48 * 1024;

class Linter {
 public:
  explicit Linter(const ServerDefinition& d) : d_(d) {}

  std::vector<std::string> run() {
    std::set<std::string> names;
    for (const ToolSpec& t : d_.tools) {
      if (!names.insert(t.name).second) say(t.name, "is defined twice");
      tool(t);
    }
    names.clear();
    for (const PromptSpec& p : d_.prompts) {
      if (!names.insert(p.name).second) say(p.name, "is defined twice");
      name(p.name);
      texts(p.name, p.title, p.description);
      for (const PromptArgument& a : p.arguments) {
        if (a.description.empty()) say(p.name, "argument " + a.name + " has no description");
      }
      if (!p.get) say(p.name, "has no handler");
    }
    names.clear();
    for (const ResourceSpec& r : d_.resources) {
      if (!names.insert(r.uri).second) say(r.uri, "is defined twice");
      if (r.uri.find("://") == std::string::npos) say(r.uri, "is not a URI with a scheme");
      texts(r.uri, r.name, r.description);
      if (!r.read) say(r.uri, "has no handler");
    }
    for (const ResourceTemplateSpec& r : d_.resource_templates) {
      if (r.uri_template.find('{') == std::string::npos) say(r.uri_template, "is a template without a variable");
      texts(r.uri_template, r.name, r.description);
      if (!r.read) say(r.uri_template, "has no handler");
    }
    if (d_.version.empty()) say("server", "has no version");
    if (d_.instructions.size() > kMaxDescription) say("server", "instructions are over " + std::to_string(kMaxDescription) + " bytes");
    return std::move(findings_);
  }

 private:
  void say(const std::string& who, const std::string& what) { findings_.push_back(who + " " + what); }

  void name(const std::string& n) {
    bool ok = !n.empty() && n.size() <= kMaxName && n[0] >= 'a' && n[0] <= 'z';
    for (char c : n) ok = ok && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
    if (!ok) say(n, "must be 1 to 30 characters of a-z, 0-9 and _, starting with a letter");
  }

  void texts(const std::string& who, const std::string& title, const std::string& description) {
    if (title.empty()) say(who, "has no title");
    if (description.empty()) say(who, "has no description");
    if (description.size() > kMaxDescription) say(who, "has a description over " + std::to_string(kMaxDescription) + " bytes");
  }

  void tool(const ToolSpec& t) {
    name(t.name);
    texts(t.name, t.title, t.description);
    if (!t.call) say(t.name, "has no handler");
    if (t.annotations.read_only && t.annotations.destructive) say(t.name, "is annotated both read-only and destructive");
    if (t.opaque_input) say(t.name, "has an input schema that is not checked");
    root(t.name, "input schema", t.input_schema);
    if (t.input_schema.value("additionalProperties", Json()) != false)
      say(t.name, "input schema must refuse unknown fields (additionalProperties: false)");
    if (t.output_schema.empty()) {
      if (!t.returns_content) say(t.name, "has no output schema");
    } else {
      root(t.name, "output schema", t.output_schema);
    }
  }

  void root(const std::string& who, const std::string& which, const Json& schema) {
    if (Status ok = check_schema(schema, which); !ok) return say(who, ok.error().message);
    if (schema.value("type", Json()) != "object") say(who, which + " must have a root of type object");
    // Some clients drop a tool without properties, others one with alternatives at the root.
    if (!schema.contains("properties")) say(who, which + " must have properties, if only {}");
    for (const char* k : {"anyOf", "oneOf", "allOf", "not"})
      if (schema.contains(k)) say(who, which + " has " + k + " at the root");
    if (const auto required = schema.find("required"); required != schema.end())
      for (const Json& r : *required)
        if (!schema.value("properties", Json::object()).contains(r.get<std::string>()))
          say(who, which + " requires " + r.get<std::string>() + ", which it does not define");
    properties(who, which, schema, 0);
  }

  void properties(const std::string& who, const std::string& path, const Json& schema, int depth) {
    if (depth > 8) return say(who, path + " is nested deeper than 8");
    if (!schema.is_object()) return;
    if (const auto sub = schema.find("properties"); sub != schema.end())
      for (const auto& [n, p] : sub->items()) property(who, path + "." + n, p, depth);
    if (const auto items = schema.find("items"); items != schema.end()) property(who, path + "[]", *items, depth);
    if (const auto more = schema.find("additionalProperties"); more != schema.end() && more->is_object())
      properties(who, path + ".*", *more, depth + 1);
  }

  void property(const std::string& who, const std::string& path, const Json& p, int depth) {
    if (!p.is_object()) return;
    if (!p.contains("type") && !p.contains("enum") && !p.contains("const")) say(who, path + " has no type");
    const bool input = path.starts_with("input");
    const std::string text = p.value("description", std::string());
    if (input && depth == 0 && text.empty()) say(who, path + " has no description");
    // Clients strip these keywords before the model sees the schema: what they say must stand in the text.
    if (input)
      for (const char* k : {"minimum", "maximum", "default"})
        if (const auto it = p.find(k); it != p.end()) {
          std::string value = it->is_string() ? it->get<std::string>() : canonical_dump(*it);
          if (!value.empty() && value != "[]" && value != "{}" && text.find(value) == std::string::npos)
            say(who, path + " has " + k + " " + value + ", which its description does not mention");
        }
    properties(who, path, p, depth + 1);
  }

  const ServerDefinition& d_;
  std::vector<std::string> findings_;
};

}  // namespace

std::vector<std::string> lint(const ServerDefinition& definition) {
  std::vector<std::string> findings = Linter(definition).run();
  std::size_t bytes = 0;
  for (const ToolSpec& t : definition.tools)
    bytes += t.description.size() + canonical_dump(t.input_schema).size() + canonical_dump(t.output_schema).size();
  if (bytes > kMaxToolListBytes)
    findings.push_back("the tools' definitions are " + std::to_string(bytes) + " bytes, more than models should be given");
  return findings;
}

}  // namespace amk::mcp
