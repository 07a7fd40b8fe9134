#include "server/protocol/conformance_fixtures.h"

#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/parse_json.h"
#include "server/protocol/base64.h"
#include "server/protocol/conformance_questions.h"

namespace amk::mcp {
namespace {

using namespace conformance;

// A red pixel and a silent 8-bit WAV of one sample, as small as the formats allow.
constexpr const char* kPng = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
constexpr const char* kWav = "UklGRiUAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQEAAACA";

Json image() { return {{"type", "image"}, {"data", kPng}, {"mimeType", "image/png"}}; }
Json embedded(const std::string& uri, const char* mime, const std::string& text) {
  return {{"type", "resource"}, {"resource", {{"uri", uri}, {"mimeType", mime}, {"text", text}}}};
}
void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

void add_content_tools(ServerDefinition& d) {
  d.tools.push_back(
      fixture("test_simple_text", [](const Json&, RequestContext&) { return content({text("This is a simple text response for testing.")}); }));
  d.tools.push_back(fixture("test_image_content", [](const Json&, RequestContext&) { return content({image()}); }));
  d.tools.push_back(fixture("test_audio_content", [](const Json&, RequestContext&) {
    return content({{{"type", "audio"}, {"data", kWav}, {"mimeType", "audio/wav"}}});
  }));
  d.tools.push_back(fixture("test_embedded_resource", [](const Json&, RequestContext&) {
    return content({embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")});
  }));
  d.tools.push_back(fixture("test_multiple_content_types", [](const Json&, RequestContext&) {
    return content({text("Multiple content types test:"), image(),
                    embedded("test://mixed-content-resource", "application/json", R"({"test":"data","value":123})")});
  }));
  d.tools.push_back(fixture("test_error_handling", [](const Json&, RequestContext&) -> Result<Json> {
    return Json{{"isError", true}, {"content", Json::array({text("This tool intentionally returns an error for testing")})}};
  }));
}

void add_notification_tools(ServerDefinition& d, const AnnounceListChange& announce) {
  d.tools.push_back(fixture("test_tool_with_logging", [](const Json&, RequestContext& c) {
    for (const char* message : {"Tool execution started", "Tool processing data", "Tool execution completed"}) {
      c.log(LogLevel::Info, "conformance", message);
      pause();
    }
    return content({text("Logged three messages.")});
  }));
  d.tools.push_back(fixture("test_logging_tool", [](const Json&, RequestContext& c) {
    c.log(LogLevel::Info, "conformance", "a message");
    return content({text("Logged one message.")});
  }));
  d.tools.push_back(fixture("test_tool_with_progress", [](const Json&, RequestContext& c) {
    for (double done : {0.0, 50.0, 100.0}) {
      c.progress(done, 100, "at " + std::to_string(static_cast<int>(done)));
      pause();
    }
    return content({text("Reported progress three times.")});
  }));
  d.tools.push_back(fixture("test_reconnection", [](const Json&, RequestContext& c) {
    c.release_stream();
    pause();
    return content({text("Reconnected.")});
  }));
  for (const std::string list : {"tool", "prompt"})
    d.tools.push_back(fixture("test_trigger_" + list + "_change", [announce, list](const Json&, RequestContext&) {
      if (*announce) (*announce)(list + "s");
      return content({text("Announced a changed list.")});
    }));
  d.tools_change = d.prompts_change = true;
}

void add_schema_tools(ServerDefinition& d) {
  ToolSpec schema = fixture("json_schema_2020_12_tool", [](const Json&, RequestContext&) { return content({text("ok")}); });
  schema.description = "Tool with JSON Schema 2020-12 features";
  schema.opaque_input = true;
  schema.input_schema = Json::parse(R"({"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
    "$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
    "properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},
      "phone":{"type":"string"},"email":{"type":"string"}},
    "allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
    "if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
    "additionalProperties":false})");
  d.tools.push_back(std::move(schema));

  ToolSpec header =
      fixture("test_x_mcp_header", [](const Json& args, RequestContext&) { return content({text("region " + args["region"].get<std::string>())}); });
  header.input_schema["properties"]["region"] = {{"type", "string"}, {"description", "any region"}, {"x-mcp-header", "Region"}};
  header.input_schema["required"] = {"region"};
  d.tools.push_back(std::move(header));
}

void add_resources(ServerDefinition& d) {
  auto fixed = [&](const char* uri, const char* mime, std::string body, bool binary) {
    d.resources.push_back({.uri = uri,
                           .name = uri,
                           .title = uri,
                           .description = "For the conformance suite.",
                           .mime_type = mime,
                           .read = [body = std::move(body), binary](RequestContext&) -> Result<ResourceContent> {
                             return ResourceContent{body, binary, ""};
                           }});
  };
  fixed("test://static-text", "text/plain", "This is the content of the static text resource.", false);
  fixed("test://static-binary", "image/png", *base64_decode(kPng), true);
  fixed("test://watched-resource", "text/plain", "Watched.", false);
  d.resource_templates.push_back(
      {.uri_template = "test://template/{id}/data",
       .name = "template",
       .title = "Template",
       .description = "For the conformance suite.",
       .mime_type = "application/json",
       .read = [](const std::string&, const std::map<std::string, std::string>& v, RequestContext&) -> Result<ResourceContent> {
         const std::string& id = v.at("id");
         return ResourceContent{canonical_dump({{"id", id}, {"templateTest", true}, {"data", "Data for ID: " + id}}), false, ""};
       }});
}

void add_prompts(ServerDefinition& d) {
  using Args = std::map<std::string, std::string>;
  auto user = [](Json block) { return Json{{"role", "user"}, {"content", std::move(block)}}; };
  auto add = [&](std::string name, std::vector<PromptArgument> arguments, std::function<Result<Json>(const Args&, RequestContext&)> messages) {
    d.prompts.push_back({.name = std::move(name),
                         .title = "Fixture",
                         .description = "For the conformance suite.",
                         .arguments = std::move(arguments),
                         .get = [messages = std::move(messages)](const Args& args, RequestContext& c) -> Result<PromptResult> {
                           AMK_TRY(made, messages(args, c));
                           return PromptResult{"", std::move(made)};
                         }});
  };
  auto suggest = [](const std::string& typed, const Json&) {
    std::vector<std::string> out;
    for (const char* word : {"paris", "park", "party"})
      if (std::string_view(word).starts_with(typed)) out.emplace_back(word);
    return out;
  };
  add("test_simple_prompt", {},
      [user](const Args&, RequestContext&) -> Result<Json> { return Json::array({user(text("This is a simple prompt for testing."))}); });
  add("test_prompt_with_arguments",
      {{.name = "arg1", .description = "first", .required = true, .complete = suggest}, {.name = "arg2", .description = "second", .required = true}},
      [user](const Args& a, RequestContext&) -> Result<Json> {
        return Json::array({user(text("Prompt with arguments: arg1='" + a.at("arg1") + "', arg2='" + a.at("arg2") + "'"))});
      });
  add("test_prompt_with_embedded_resource", {{.name = "resourceUri", .description = "which", .required = true}},
      [user](const Args& a, RequestContext&) -> Result<Json> {
        return Json::array({user(embedded(a.at("resourceUri"), "text/plain", "Embedded resource content for testing.")),
                            user(text("Please process the embedded resource above."))});
      });
  add("test_prompt_with_image", {}, [user](const Args&, RequestContext&) -> Result<Json> {
    return Json::array({user(image()), user(text("Please analyze the image above."))});
  });
  add("test_input_required_result_prompt", {}, [user](const Args&, RequestContext& c) -> Result<Json> {
    AMK_TRY(answer, ask_for(c, "user_context", "What context should the prompt use?", "context", "string"));
    return Json::array({user(text("Use the context " + answered(answer, "context")))});
  });
}

}  // namespace

AnnounceListChange add_conformance_fixtures(ServerDefinition& definition) {
  auto announce = std::make_shared<std::function<void(const std::string&)>>();
  add_content_tools(definition);
  add_notification_tools(definition, announce);
  add_schema_tools(definition);
  add_question_tools(definition);
  add_resources(definition);
  add_prompts(definition);
  return announce;
}

}  // namespace amk::mcp
