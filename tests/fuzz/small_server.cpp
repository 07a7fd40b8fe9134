#include "tests/fuzz/small_server.h"

namespace amk::fuzz {

mcp::ServerDefinition small_definition() {
  mcp::ServerDefinition d;
  d.title = "small";
  d.version = "1";
  mcp::ToolSpec echo{.name = "echo", .title = "Echo", .description = "Returns its arguments.", .annotations = {.read_only = true}};
  const Json properties = {{"text", {{"type", "string"}, {"maxLength", 100}, {"description", "a text"}}},
                           {"count", {{"type", "integer"}, {"minimum", 1}, {"maximum", 10}, {"default", 1}, {"description", "1 to 10"}}},
                           {"ratio", {{"type", "number"}, {"description", "a number"}}},
                           {"flag", {{"type", "boolean"}, {"description", "yes or no"}}},
                           {"tags", {{"type", "array"}, {"items", {{"type", "string"}}}, {"description", "texts"}}}};
  echo.input_schema = {{"type", "object"}, {"properties", properties}, {"required", {"text"}}, {"additionalProperties", false}};
  echo.output_schema = {{"type", "object"}, {"properties", properties}, {"required", {"text"}}, {"additionalProperties", false}};
  echo.call = [](const Json& args, mcp::RequestContext& context) -> Result<Json> {
    context.progress(1, 2, "half");
    context.log(mcp::LogLevel::Notice, "echo", args);
    return args;
  };
  mcp::ToolSpec ask = echo;
  ask.name = "ask";
  ask.call = [](const Json& args, mcp::RequestContext& context) -> Result<Json> {
    if (!context.client_supports("elicitation")) return fail(ErrorKind::Unsupported, "no elicitation");
    context.set_request_state(args["text"].get<std::string>());
    AMK_TRY(answer, context.ask_client("name", "elicitation/create", {{"message", "name?"}}));
    return Json{{"text", answer.dump(-1, ' ', false, Json::error_handler_t::replace)}};
  };
  d.tools = {echo, ask};
  mcp::ResourceSpec readme{.uri = "small://readme", .name = "readme", .title = "Readme", .description = "A text."};
  readme.read = [](mcp::RequestContext&) -> Result<mcp::ResourceContent> { return mcp::ResourceContent{.text = "text"}; };
  d.resources = {readme};
  mcp::ResourceTemplateSpec item{.uri_template = "small://items/{id}", .name = "item", .title = "Item", .description = "One item."};
  item.read = [](const std::string& uri, const std::map<std::string, std::string>& variables, mcp::RequestContext&) -> Result<mcp::ResourceContent> {
    return mcp::ResourceContent{.text = uri + " " + variables.at("id")};
  };
  item.complete["id"] = [](const std::string& typed, const Json&) { return std::vector<std::string>{typed + "1"}; };
  d.resource_templates = {item};
  mcp::PromptSpec prompt{.name = "greet", .title = "Greet", .description = "A greeting."};
  prompt.arguments = {mcp::PromptArgument{.name = "who", .title = "Who", .description = "a name", .required = true}};
  prompt.get = [](const std::map<std::string, std::string>& arguments, mcp::RequestContext&) -> Result<mcp::PromptResult> {
    mcp::PromptResult result;
    result.messages = Json::array({{{"role", "user"}, {"content", {{"type", "text"}, {"text", arguments.at("who")}}}}});
    return result;
  };
  d.prompts = {prompt};
  return d;
}

}  // namespace amk::fuzz
