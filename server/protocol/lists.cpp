// tools/list, resources/list, resources/templates/list, prompts/list, and what the server says of itself.
#include <charconv>

#include "server/protocol/server_impl.h"

namespace amk::mcp {
namespace {

constexpr std::string_view kCursorPrefix = "at:";  // opaque to clients

// One page of `entries` (each made only when it is on the page) under `key`.
template <class MakeEntry>
MethodResult page(const char* key, std::size_t count, int page_size, const Json& params, MakeEntry make_entry) {
  std::size_t begin = 0;
  if (const auto cursor = params.find("cursor"); cursor != params.end() && !cursor->is_null()) {
    const std::string text = cursor->is_string() ? cursor->get<std::string>() : std::string();
    const bool ours = text.starts_with(kCursorPrefix);
    const char* first = text.data() + (ours ? kCursorPrefix.size() : 0);
    const char* last = text.data() + text.size();
    const auto [end, problem] = std::from_chars(first, last, begin);
    if (!ours || problem != std::errc() || end != last || begin == 0 || begin >= count)
      return rpc_fail(RpcCode::InvalidParams, "cursor is not one that this list handed out; leave it out to start over", {{"cursor", *cursor}});
  }
  const std::size_t size = page_size < 1 ? 1 : static_cast<std::size_t>(page_size);
  const std::size_t end = std::min(count, begin + size);
  Json entries = Json::array();
  for (std::size_t i = begin; i < end; ++i) entries.push_back(make_entry(i));
  Json result = {{key, std::move(entries)}};
  if (end < count) result["nextCursor"] = std::string(kCursorPrefix) + std::to_string(end);
  return result;
}

void put(Json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

// What clients are told of a tool's result. They validate failures against it as well: hence `error`, and nothing required at the root. The parts of
// `error` are told in words: as a schema of their own they stood in every tool's entry, 2.7 KB of each list that a model reads, and clients compile
// them at a tool's first call, while its other callers wait (docs/protocol.md).
Json published_output_schema(Json schema) {
  schema.erase("required");
  schema["additionalProperties"] = true;
  schema["properties"]["error"] = {
      {"type", "object"},
      {"description",
       "present only when the call failed: kind (e.g. invalid_argument), message (what is wrong and what would be accepted), "
       "data (field, value, accepted, witness)"}};
  return schema;
}

Json tool_entry(const ToolSpec& tool, const Revision& revision) {
  Json entry = {{"name", tool.name}, {"description", tool.description}, {"inputSchema", tool.input_schema}};
  if (revision.annotations()) {
    entry["annotations"] = {{"readOnlyHint", tool.annotations.read_only},
                            {"destructiveHint", tool.annotations.destructive},
                            {"idempotentHint", tool.annotations.idempotent},
                            {"openWorldHint", tool.annotations.open_world}};
    put(entry["annotations"], "title", tool.title);
  }
  if (revision.structured_output()) {
    put(entry, "title", tool.title);
    if (!tool.output_schema.empty()) entry["outputSchema"] = published_output_schema(tool.output_schema);
  }
  return entry;
}

// ResourceSpec and ResourceTemplateSpec differ in one field only.
template <class Spec>
Json resource_entry(const Spec& spec, const Revision& revision) {
  Json entry = {{"name", spec.name}};
  if constexpr (requires { spec.uri; })
    entry["uri"] = spec.uri;
  else
    entry["uriTemplate"] = spec.uri_template;
  put(entry, "description", spec.description);
  put(entry, "mimeType", spec.mime_type);
  if (revision.structured_output()) put(entry, "title", spec.title);
  return entry;
}

Json prompt_entry(const PromptSpec& prompt, const Revision& revision) {
  Json entry = {{"name", prompt.name}};
  put(entry, "description", prompt.description);
  if (revision.structured_output()) put(entry, "title", prompt.title);
  Json arguments = Json::array();
  for (const PromptArgument& a : prompt.arguments) {
    Json argument = {{"name", a.name}, {"required", a.required}};
    put(argument, "description", a.description);
    if (revision.structured_output()) put(argument, "title", a.title);
    arguments.push_back(std::move(argument));
  }
  if (!arguments.empty()) entry["arguments"] = std::move(arguments);
  return entry;
}

}  // namespace

tl::unexpected<RpcError> rpc_fail(RpcCode code, std::string message, Json data) {
  return tl::unexpected<RpcError>(RpcError{code, std::move(message), std::move(data)});
}

MethodResult list_tools(const Server::Impl& server, const Revision& revision, const Json& params) {
  const auto& tools = server.definition.tools;
  return page("tools", tools.size(), server.definition.page_size, params, [&](std::size_t i) { return tool_entry(tools[i], revision); });
}

MethodResult list_resources(const Server::Impl& server, const Revision& revision, const Json& params) {
  const auto& fixed = server.definition.resources;
  std::vector<ResourceSpec> dynamic;
  if (server.definition.list_resources) dynamic = server.definition.list_resources();
  return page("resources", fixed.size() + dynamic.size(), server.definition.page_size, params,
              [&](std::size_t i) { return resource_entry(i < fixed.size() ? fixed[i] : dynamic[i - fixed.size()], revision); });
}

MethodResult list_resource_templates(const Server::Impl& server, const Revision& revision, const Json& params) {
  const auto& templates = server.definition.resource_templates;
  return page("resourceTemplates", templates.size(), server.definition.page_size, params,
              [&](std::size_t i) { return resource_entry(templates[i], revision); });
}

MethodResult list_prompts(const Server::Impl& server, const Revision& revision, const Json& params) {
  const auto& prompts = server.definition.prompts;
  return page("prompts", prompts.size(), server.definition.page_size, params, [&](std::size_t i) { return prompt_entry(prompts[i], revision); });
}

Json capabilities(const Server::Impl& server, const Revision& revision) {
  const ServerDefinition& d = server.definition;
  Json caps = {{"logging", Json::object()}};
  auto offered = [&](const char* name, bool any, bool changes) {
    if (!any) return;
    caps[name] = Json::object();
    if (changes) caps[name]["listChanged"] = true;
  };
  offered("tools", !d.tools.empty(), d.tools_change);
  offered("prompts", !d.prompts.empty(), d.prompts_change);
  offered("resources", !d.resources.empty() || !d.resource_templates.empty() || d.list_resources, d.resources_change);
  if (caps.contains("resources")) caps["resources"]["subscribe"] = true;
  bool completes = false;
  for (const PromptSpec& p : d.prompts)
    for (const PromptArgument& a : p.arguments) completes = completes || a.complete;
  for (const ResourceTemplateSpec& t : d.resource_templates) completes = completes || !t.complete.empty();
  if (completes && revision.completions_capability()) caps["completions"] = Json::object();
  return caps;
}

Json server_info(const Server::Impl& server, const Revision& revision) {
  const ServerDefinition& d = server.definition;
  Json info = {{"name", d.name}, {"version", d.version}};
  if (revision.structured_output()) put(info, "title", d.title);
  if (revision.at_least("2025-11-25")) put(info, "websiteUrl", d.website_url);
  return info;
}

}  // namespace amk::mcp
