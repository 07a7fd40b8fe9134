// tools/call: coercion, validation, the handler, and the two forms of its result.
#include <exception>

#include "core/base/parse_json.h"
#include "core/base/unexpected.h"
#include "server/protocol/schema.h"
#include "server/protocol/server_impl.h"

namespace amk::mcp {
namespace {

std::string unknown_tool(const Server::Impl& server, const std::string& name) {
  std::string known;
  for (const ToolSpec& t : server.definition.tools) known += (known.empty() ? "" : ", ") + t.name;
  return "unknown tool " + name + "; there are: " + known;
}

// structuredContent came with 2025-06-18; before, the text alone carries the result.
Json content_of(const Revision& revision, const Json& structured, bool is_error) {
  Json result = {{"content", Json::array({{{"type", "text"}, {"text", canonical_dump(structured)}}})}, {"isError", is_error}};
  if (revision.structured_output()) result["structuredContent"] = structured;
  return result;
}

}  // namespace

Result<Json> run_tool(const ToolSpec& tool, const Json& args, RequestContext& context) {
  Json coerced = args;
  if (!tool.opaque_input) {
    coerced = coerce(tool.input_schema, args);
    AMK_CHECK(validate(tool.input_schema, coerced));
  }
  Result<Json> value = Json();
  try {
    value = tool.call(coerced, context);
  } catch (const std::exception& e) {
    return unexpected_failure(tool.name, e);
  }
  if (!value || tool.returns_content || tool.output_schema.empty()) return value;
  // Clients refuse what does not conform, with an error that names neither tool nor field: better to say it ourselves.
  if (Status conforms = validate(tool.output_schema, *value, "result"); !conforms)
    return fail(ErrorKind::Internal, tool.name + " made a result that its schema does not allow: " + conforms.error().message, conforms.error().data);
  return value;
}

Json tool_result(const ToolSpec& tool, const Revision& revision, Result<Json> value) {
  if (!value) return content_of(revision, to_json(value.error()), true);
  if (tool.returns_content) return *std::move(value);
  return content_of(revision, *value, false);
}

MethodResult call_tool(const Server::Impl& server, const Json& params, Call& call) {
  const auto name = params.find("name");
  if (name == params.end() || !name->is_string()) return rpc_fail(RpcCode::InvalidParams, "params.name must be the name of a tool");
  const auto tool = server.tools.find(name->get<std::string>());
  if (tool == server.tools.end()) return rpc_fail(RpcCode::InvalidParams, unknown_tool(server, name->get<std::string>()), {{"name", *name}});
  Json args = Json::object();
  if (const auto given = params.find("arguments"); given != params.end() && !given->is_null()) args = coerce({{"type", "object"}}, *given);
  if (!args.is_object()) return rpc_fail(RpcCode::InvalidParams, "params.arguments must be an object");

  Result<Json> value = run_tool(*tool->second, args, call);
  if (!value && value.error().kind == ErrorKind::Internal) server.log("error", value.error().message);
  Json result = tool_result(*tool->second, call.info().revision, std::move(value));
  if (const std::size_t size = result.contains("structuredContent") ? canonical_dump(result["structuredContent"]).size() : 0;
      size > server.definition.reply_budget_bytes)
    server.log("warning", tool->first + " replied with " + std::to_string(size) + " bytes, over the budget of " +
                              std::to_string(server.definition.reply_budget_bytes));
  return result;
}

}  // namespace amk::mcp
