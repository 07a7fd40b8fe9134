#include "server/protocol/schema_lint.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/fake_server/fake_server.h"

using namespace amk;
using namespace amk::mcp;

namespace {

std::vector<std::string> findings(const std::function<void(ToolSpec&)>& spoil) {
  ServerDefinition d;
  d.version = "1";
  ToolSpec t{.name = "tool", .title = "T", .description = "D"};
  t.input_schema = Json::parse(R"({"type":"object","properties":{"n":{"type":"integer","description":"n"}},"additionalProperties":false})");
  t.output_schema = Json::parse(R"({"type":"object","properties":{}})");
  t.call = [](const Json&, RequestContext&) -> Result<Json> { return Json::object(); };
  spoil(t);
  d.tools.push_back(t);
  return lint(d);
}

}  // namespace

TEST_CASE("lint: a clean definition is clean") {
  CHECK(findings([](ToolSpec&) {}).empty());
  const auto found = lint(amk::testing::fake_definition());
  CHECK_MESSAGE(found.empty(), (found.empty() ? "" : found[0]));
}

TEST_CASE("lint finds each thing that real clients choke on") {
  const std::pair<const char*, std::function<void(ToolSpec&)>> cases[] = {
      {"must be 1 to 30 characters", [](ToolSpec& t) { t.name = "Tool-Name"; }},
      {"must be 1 to 30 characters", [](ToolSpec& t) { t.name = std::string(31, 'a'); }},
      {"has no title", [](ToolSpec& t) { t.title.clear(); }},
      {"description over", [](ToolSpec& t) { t.description = std::string(1801, 'x'); }},
      {"has anyOf at the root", [](ToolSpec& t) { t.input_schema["anyOf"] = Json::parse(R"([{"required":["n"]}])"); }},
      {"must have properties", [](ToolSpec& t) { t.input_schema.erase("properties"); }},
      {"root of type object", [](ToolSpec& t) { t.input_schema.erase("type"); }},
      {"refuse unknown fields", [](ToolSpec& t) { t.input_schema.erase("additionalProperties"); }},
      {"has no type", [](ToolSpec& t) { t.input_schema["properties"]["n"].erase("type"); }},
      {"has no description", [](ToolSpec& t) { t.input_schema["properties"]["n"].erase("description"); }},
      {"does not mention", [](ToolSpec& t) { t.input_schema["properties"]["n"]["maximum"] = 64; }},
      {"does not mention", [](ToolSpec& t) { t.input_schema["properties"]["n"]["default"] = 45; }},
      {"not a keyword", [](ToolSpec& t) { t.input_schema["properties"]["n"]["$ref"] = "#"; }},
      {"which it does not define", [](ToolSpec& t) { t.input_schema["required"] = {"m"}; }},
      {"has no output schema", [](ToolSpec& t) { t.output_schema = Json::object(); }},
      {"read-only and destructive", [](ToolSpec& t) { t.annotations = {.read_only = true, .destructive = true}; }},
  };
  for (const auto& [expected, spoil] : cases) {
    CAPTURE(expected);
    const auto found = findings(spoil);
    CHECK(std::any_of(found.begin(), found.end(), [&, e = expected](const std::string& f) { return f.find(e) != std::string::npos; }));
  }
}
