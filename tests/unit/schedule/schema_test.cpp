// schemas/schedule_config.schema.json says what parsing accepts: kept in step by comparing it with the table of fields.
#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "core/base/parse_json.h"
#include "core/schedule/fields.h"
#include "core/schedule/fusion.h"

using namespace amk;

namespace {

Json load(const std::string& path) {
  std::ifstream in(std::string(AMK_SOURCE_DIR) + "/" + path);
  REQUIRE(in);
  std::stringstream text;
  text << in.rdbuf();
  return parse_json(text.str(), path).value();
}

void same_keys(const Json& schema, const Json& value, const std::string& path) {
  CAPTURE(path);
  REQUIRE(schema["type"] == "object");
  CHECK(schema["additionalProperties"] == false);
  std::set<std::string> described, emitted;
  for (const auto& [key, unused] : schema["properties"].items()) described.insert(key);
  for (const auto& [key, unused] : value.items()) emitted.insert(key);
  CHECK(described == emitted);
  for (const auto& [key, child] : value.items())
    if (child.is_object() && key != "sm_assignment") same_keys(schema["properties"][key], child, path + "." + key);
}

const Json& at_path(const Json& schema, std::string_view path) {
  const Json* at = &schema;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t dot = std::min(path.find('.', begin), path.size());
    at = &(*at)["properties"][std::string(path.substr(begin, dot - begin))];
    begin = dot + 1;
  }
  return *at;
}

}  // namespace

TEST_CASE("the schema of ScheduleConfig lists the keys that are emitted, with the values that are accepted") {
  const Json schema = load("schemas/schedule_config.schema.json");
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  const Json defaults = to_json(ScheduleConfig{});
  ScheduleConfig loud;  // keys that are silent at their default as well
  for (const Field& field : schedule_fields())
    if (field.silent_default)
      field.set(loud, field.type == FieldType::Name ? static_cast<std::int64_t>(field.names.size()) - 1 : field.accepted.back());
  same_keys(schema, to_json(loud), "config");
  for (const Field& field : schedule_fields()) {
    CAPTURE(field.path);
    const Json& entry = at_path(schema, field.path);
    CHECK(entry["default"] == field.to_json(field.get(ScheduleConfig{})));
    const Json& values = field.path == "sm_assignment" ? entry["anyOf"][0] : entry;
    if (field.type == FieldType::Boolean) {
      CHECK(values["type"] == "boolean");
    } else if (field.type == FieldType::Name) {
      CHECK(values["enum"] == Json(field.names));
    } else if (!field.accepted.empty()) {
      CHECK(values["enum"] == Json(field.accepted));
    } else {
      CHECK(values["type"] == "integer");
      CHECK(values["minimum"] == field.low);
      CHECK(values["maximum"] == field.high);
      CHECK(values.value("multipleOf", 1) == field.step);
      CHECK(field.low % field.step == 0);  // so that multipleOf means what the table says
    }
    for (std::int64_t choice : field.choices) CHECK(field.accepts(choice));
  }
  CHECK(schema["properties"]["fusion_grouping"]["default"] == defaults["fusion_grouping"]);
  std::set<std::string> ops(kStepOperators.begin(), kStepOperators.end());
  const Json& listed = schema["properties"]["fusion_grouping"]["items"]["items"]["enum"];
  CHECK(std::set<std::string>(listed.begin(), listed.end()) == ops);
}
