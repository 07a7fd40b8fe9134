#include "tests/support/fake_server/fake_server.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

namespace amk::testing {
namespace {

using mcp::PromptResult;
using mcp::RequestContext;
using mcp::ResourceContent;
using mcp::ToolSpec;

Json object_schema(Json properties, Json required = Json::array()) {
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}, {"additionalProperties", false}};
}

ToolSpec echo() {
  ToolSpec t{.name = "echo", .title = "Echo", .description = "Returns its arguments.", .annotations = {.read_only = true}};
  const Json properties = {
      {"text", {{"type", "string"}, {"description", "any text"}}},
      {"count", {{"type", "integer"}, {"minimum", 1}, {"maximum", 10}, {"default", 1}, {"description", "1 to 10; default 1"}}},
      {"ratio", {{"type", "number"}, {"description", "any number"}}},
      {"flag", {{"type", "boolean"}, {"description", "true or false"}}},
      {"tags", {{"type", "array"}, {"items", {{"type", "string"}}}, {"description", "texts"}}},
      {"mode", {{"type", "string"}, {"enum", {"fast", "exact"}}, {"description", "fast or exact"}}},
      {"config",
       {{"type", "object"}, {"properties", {{"stages", {{"type", "integer"}}}}}, {"additionalProperties", false}, {"description", "an object"}}}};
  t.input_schema = object_schema(properties, {"text"});
  t.output_schema = object_schema(properties, {"text", "count"});
  t.call = [](const Json& args, RequestContext&) -> Result<Json> { return args; };
  return t;
}

ToolSpec slow() {
  ToolSpec t{.name = "slow", .title = "Slow", .description = "Takes its time and says so.", .annotations = {.read_only = true}};
  t.input_schema =
      object_schema({{"seconds", {{"type", "number"}, {"minimum", 0}, {"description", "how long, from 0"}}},
                     {"steps", {{"type", "integer"}, {"minimum", 0}, {"default", 0}, {"description", "progress messages, from 0; default 0"}}}},
                    {"seconds"});
  t.output_schema = object_schema({{"slept_s", {{"type", "number"}}}}, {"slept_s"});
  t.call = [](const Json& args, RequestContext& context) -> Result<Json> {
    const int steps = args["steps"];
    const std::chrono::duration<double> step(args["seconds"].get<double>() / (steps + 1));
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    for (int i = 0; i <= steps; ++i) {
      never.wait_for(lock, context.stop_token(), step, [] { return false; });
      if (context.stop_token().stop_requested()) return fail(ErrorKind::Cancelled, "slow was cancelled");
      if (i < steps) context.progress(i + 1, steps, "step " + std::to_string(i + 1));
    }
    context.log(mcp::LogLevel::Notice, "slow", "done");
    return Json{{"slept_s", args["seconds"]}};
  };
  return t;
}

ToolSpec simple(std::string name, std::function<Result<Json>(RequestContext&)> run) {
  ToolSpec t{.name = name, .title = name, .description = "For tests: " + name + ".", .annotations = {.idempotent = true}};
  t.input_schema = object_schema(Json::object());
  t.output_schema = object_schema({{"n", {{"type", "integer"}}}}, {"n"});
  t.call = [run = std::move(run)](const Json&, RequestContext& context) { return run(context); };
  return t;
}

ToolSpec big() {
  ToolSpec t{.name = "big", .title = "Big", .description = "A long text.", .annotations = {.read_only = true}};
  t.input_schema = object_schema({{"bytes", {{"type", "integer"}, {"minimum", 0}, {"description", "length, from 0"}}}}, {"bytes"});
  t.output_schema = object_schema({{"text", {{"type", "string"}}}}, {"text"});
  t.call = [](const Json& args, RequestContext&) -> Result<Json> { return Json{{"text", std::string(args["bytes"].get<std::size_t>(), 'x')}}; };
  return t;
}

// Asks the client for a name and greets it: in both eras by the same code.
ToolSpec ask() {
  ToolSpec t = simple("ask", nullptr);
  t.output_schema = object_schema({{"greeting", {{"type", "string"}}}}, {"greeting"});
  t.call = [](const Json&, RequestContext& context) -> Result<Json> {
    const Json schema = {{"type", "object"}, {"properties", {{"name", {{"type", "string"}}}}}};
    AMK_TRY(answer, context.ask_client("who", "elicitation/create", {{"message", "Who?"}, {"requestedSchema", schema}}));
    return Json{{"greeting", "hello " + answer["content"]["name"].get<std::string>()}};
  };
  return t;
}

}  // namespace

mcp::ServerDefinition fake_definition() {
  mcp::ServerDefinition d;
  d.name = "fake";
  d.title = "Fake server";
  d.version = "1.2.3";
  d.instructions = "Call echo.";
  const auto counter = std::make_shared<std::atomic<int>>(0);
  d.tools.push_back(echo());
  d.tools.push_back(slow());
  d.tools.push_back(big());
  d.tools.push_back(ask());
  d.tools.push_back(simple("counter", [counter](RequestContext&) -> Result<Json> { return Json{{"n", ++*counter}}; }));
  d.tools.push_back(simple("fails", [](RequestContext&) -> Result<Json> { return fail(ErrorKind::Rejected, "no", {{"witness", {{"task", 7}}}}); }));
  d.tools.push_back(simple("throws", [](RequestContext&) -> Result<Json> { throw std::runtime_error("boom"); }));
  d.tools.push_back(simple("nonconforming", [](RequestContext&) -> Result<Json> { return Json{{"n", "seven"}}; }));

  d.resources.push_back({.uri = "fake://static",
                         .name = "static",
                         .title = "Static",
                         .description = "A fixed text.",
                         .read = [](RequestContext&) -> Result<ResourceContent> {
                           return ResourceContent{"fixed", false, ""};
                         },
                         .ttl_ms = 1000});
  d.resources.push_back({.uri = "fake://bytes",
                         .name = "bytes",
                         .title = "Bytes",
                         .description = "Some bytes.",
                         .mime_type = "application/octet-stream",
                         .read = [](RequestContext&) -> Result<ResourceContent> {
                           return ResourceContent{std::string("\0\xff", 2), true, ""};
                         }});
  d.resource_templates.push_back(
      {.uri_template = "fake://items/{id}",
       .name = "item",
       .title = "Item",
       .description = "One item by id.",
       .read = [](const std::string&, const std::map<std::string, std::string>& v, RequestContext&) -> Result<ResourceContent> {
         if (v.at("id") == "missing") return fail(ErrorKind::NotFound, "no item missing");
         return ResourceContent{"item " + v.at("id"), false, ""};
       },
       .complete = {{"id", [](const std::string& typed, const Json&) {
                       std::vector<std::string> out;
                       for (int i = 0; i < 150; ++i)
                         if (std::to_string(i).starts_with(typed)) out.push_back(std::to_string(i));
                       return out;
                     }}}});
  d.prompts.push_back(
      {.name = "greet",
       .title = "Greet",
       .description = "Greets somebody.",
       .arguments = {{.name = "who",
                      .description = "whom",
                      .required = true,
                      .complete = [](const std::string& typed, const Json&) -> std::vector<std::string> {
                        return std::string("world").starts_with(typed) ? std::vector<std::string>{"world"} : std::vector<std::string>{};
                      }}},
       .get = [](const std::map<std::string, std::string>& args, RequestContext&) -> Result<PromptResult> {
         return PromptResult{"A greeting", Json::array({{{"role", "user"}, {"content", {{"type", "text"}, {"text", "hello " + args.at("who")}}}}})};
       }});
  return d;
}

}  // namespace amk::testing
