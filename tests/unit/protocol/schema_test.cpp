#include "server/protocol/schema.h"

#include <doctest/doctest.h>

using namespace amk;
using namespace amk::mcp;

namespace {

Json parse(const char* text) { return Json::parse(text); }
std::string why(const char* schema, const char* value) {
  const Status s = validate(parse(schema), parse(value));
  return s ? "" : s.error().message;
}
bool ok(const char* schema, const char* value) { return why(schema, value).empty(); }

}  // namespace

TEST_CASE("validate: types, as JSON Schema 2020-12 defines them") {
  CHECK(ok(R"({"type":"integer"})", "3"));
  CHECK(ok(R"({"type":"integer"})", "3.0"));  // 6.1.1: a number with zero fraction is an integer
  CHECK_FALSE(ok(R"({"type":"integer"})", "3.5"));
  CHECK_FALSE(ok(R"({"type":"number"})", "\"3\""));
  CHECK_FALSE(ok(R"({"type":"boolean"})", "0"));
  CHECK(ok(R"({"type":["string","null"]})", "null"));
  CHECK_FALSE(ok(R"({"type":["string","null"]})", "1"));
  CHECK(ok("true", "1"));
  CHECK_FALSE(ok("false", "1"));
  CHECK(ok("{}", "[1]"));
}

TEST_CASE("validate: bounds are exact for integers beyond 2^53") {
  CHECK(ok(R"({"minimum":9007199254740993})", "9007199254740993"));
  CHECK_FALSE(ok(R"({"minimum":9007199254740993})", "9007199254740992"));
  CHECK(ok(R"({"minimum":0})", "18446744073709551615"));
  CHECK_FALSE(ok(R"({"maximum":10})", "18446744073709551615"));
  CHECK_FALSE(ok(R"({"exclusiveMaximum":10})", "10"));
  CHECK(ok(R"({"exclusiveMaximum":10})", "9.99"));
  CHECK(ok(R"({"multipleOf":8})", "64"));
  CHECK_FALSE(ok(R"({"multipleOf":8})", "60"));
  CHECK(ok(R"({"multipleOf":0.1})", "0.3"));
  CHECK(ok(R"({"minLength":2,"maxLength":2})", "\"üü\""));  // characters, not bytes
}

TEST_CASE("validate names the field, the value and what is accepted") {
  const char* schema = R"({"type":"object","properties":{"config":{"type":"object","properties":{
      "stages":{"type":"integer","minimum":2,"maximum":8},"mode":{"enum":["a","b"]},"xs":{"type":"array","items":{"type":"integer"}}},
      "required":["stages"],"additionalProperties":false}},"required":["config"]})";
  CHECK(why(schema, R"({"config":{"stages":99}})") == "config.stages is 99; accepted: integer from 2 to 8");
  CHECK(why(schema, R"({"config":{"stages":4,"mode":"c"}})") == R"(config.mode is "c"; accepted: one of "a", "b")");
  CHECK(why(schema, R"({"config":{"stages":4,"xs":[1,2,"z"]}})") == R"(config.xs[2] is "z"; accepted: integer)");
  CHECK(why(schema, R"({"config":{}})") == "config.stages is missing; accepted: integer from 2 to 8");
  CHECK(why(schema, R"({})") == "config is missing; accepted: object");
  CHECK(why(schema, R"({"config":{"stage":4}})") ==
        "unknown field config.stage is 4; accepted: only the fields mode, stages, xs (did you mean stages?)");
  const Status s = validate(parse(schema), parse(R"({"config":{"stages":99}})"));
  CHECK(s.error().data == Json{{"field", "config.stages"}, {"value", 99}, {"accepted", "integer from 2 to 8"}});
}

TEST_CASE("validate: anyOf explains by the alternative of the value's own type") {
  const char* schema = R"({"anyOf":[{"type":"string","enum":["auto"]},{"type":"array","items":{"type":"integer"}}]})";
  CHECK(ok(schema, "\"auto\""));
  CHECK(ok(schema, "[1]"));
  CHECK(why(schema, "[1,\"x\"]") == R"(value[1] is "x"; accepted: integer)");
  CHECK(ok(R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":5}]})", "3"));
  CHECK_FALSE(ok(R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":5}]})", "7"));
  CHECK_FALSE(ok(R"({"not":{"type":"null"}})", "null"));
  CHECK_FALSE(ok(R"({"allOf":[{"minimum":1},{"maximum":2}]})", "3"));
}

TEST_CASE("validate: a value nested without end is refused, not followed") {
  Json deep = 0, schema = {{"type", "array"}};
  for (int i = 0; i < 200; ++i) {
    deep = Json::array({deep});
    schema = {{"type", "array"}, {"items", schema}};
  }
  CHECK_FALSE(validate(schema, deep));
}

TEST_CASE("coerce turns what models send into what the schema asks for, and nothing else") {
  const Json schema = parse(R"({"type":"object","properties":{
      "n":{"type":"integer"},"x":{"type":"number"},"b":{"type":"boolean"},"s":{"type":"string"},"a":{"type":"array","items":{"type":"integer"}},
      "o":{"type":"object","properties":{"k":{"type":"integer"}}},"d":{"type":"integer","default":45},"opt":{"type":"string"}}})");
  const Json got = coerce(schema, parse(R"({"n":"3","x":"2.5","b":"true","s":7,"a":"[1, \"2\"]","o":"{\"k\":\"4\"}","opt":null})"));
  CHECK(got == parse(R"({"n":3,"x":2.5,"b":true,"s":"7","a":[1,2],"o":{"k":4},"d":45})"));
  // Ambiguous or wrong: left as it is, for validate() to name.
  CHECK(coerce(schema, parse(R"({"n":"3x","b":"yes","a":"1,2","s":"12"})")) == parse(R"({"n":"3x","b":"yes","a":"1,2","s":"12","d":45})"));
  CHECK(coerce(schema, parse(R"({"n":4.0})"))["n"].is_number_integer());
  CHECK(coerce(schema, parse(R"({"n":4.5})"))["n"] == 4.5);
  CHECK(coerce(parse(R"({"type":["string","integer"]})"), "5") == "5");
  // A required field that is null stays, so that the error names it.
  CHECK(coerce(parse(R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})"), parse(R"({"n":null})")).contains("n"));
}

TEST_CASE("check_schema refuses keywords that validate would silently ignore") {
  CHECK(check_schema(parse(R"({"type":"object","properties":{"a":{"type":"integer","minimum":1,"x-unit":"us"}}})")));
  CHECK(check_schema(parse(R"({"type":"string","pattern":"^a"})"), "t").error().message ==
        "t.pattern is not a keyword that this program understands");
  CHECK_FALSE(check_schema(parse(R"({"$ref":"#/x"})")));
  CHECK_FALSE(check_schema(parse(R"({"type":"int"})")));
  CHECK_FALSE(check_schema(parse(R"({"required":"a"})")));
  CHECK_FALSE(check_schema(parse(R"({"minItems":-1})")));
  CHECK_FALSE(check_schema(parse(R"({"properties":{"a":3}})")));
}
