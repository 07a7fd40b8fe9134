// Suffixes of model names.
#include <doctest/doctest.h>

#include <filesystem>

#include "core/model/load.h"
#include "core/model/model_variant.h"
#include "tests/unit/model/temp_dir.h"

using namespace amk;

TEST_CASE("a suffix says how weights are stored and how many sequences a step has") {
  struct Case {
    const char* name;
    ModelVariant variant;
    const char* canonical;
  };
  const Case cases[] = {
      {"toy", {"toy", WeightFormat::Stored, 1}, "toy"},
      {"toy@int8", {"toy", WeightFormat::Int8, 1}, "toy@int8"},
      {"toy@b1", {"toy", WeightFormat::Stored, 1}, "toy"},
      {"toy@b8", {"toy", WeightFormat::Stored, 8}, "toy@b8"},
      {"toy@b4,int8", {"toy", WeightFormat::Int8, 4}, "toy@int8,b4"},
      {"org/name@int8,b2", {"org/name", WeightFormat::Int8, 2}, "org/name@int8,b2"},
      {"/a@b/model", {"/a@b/model", WeightFormat::Stored, 1}, "/a@b/model"},  // no suffix: a folder's name goes on
      {"/a@b/model@int8", {"/a@b/model", WeightFormat::Int8, 1}, "/a@b/model@int8"},
      {"x@int8@b3", {"x@int8", WeightFormat::Stored, 3}, "x@int8@b3"},
      {"@int8", {"", WeightFormat::Int8, 1}, "@int8"},  // whoever resolves the model refuses its empty name
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto parsed = parse_model_variant(c.name);
    REQUIRE(parsed);
    CHECK(*parsed == c.variant);
    CHECK(to_string(*parsed) == c.canonical);
  }
}

TEST_CASE("any other suffix is refused with its value and what is accepted") {
  for (const char* suffix :
       {"", "int4", "INT8", "int8 ", "b0", "b9", "b", "b10", "b-1", "8", "int8,", ",int8", "int8,int8", "b2,b2", "b1,b1", "int8,b2,b2", "int8;b2"}) {
    CAPTURE(suffix);
    const auto parsed = parse_model_variant("toy@" + std::string(suffix));
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().kind == ErrorKind::InvalidArgument);
    CHECK(parsed.error().data.at("field") == "model");
    CHECK(parsed.error().data.at("value") == "@" + std::string(suffix));
    CHECK(parsed.error().message.find("\"b1\" to \"b8\"") != std::string::npos);
  }
}

TEST_CASE("a path that exists is a model, whatever its name looks like") {
  const testing::TempDir dir;
  const std::string path = (dir.path() / "mine@int8").string();
  CHECK(parse_model_variant(path)->weights == WeightFormat::Int8);
  std::filesystem::create_directory(path);
  CHECK(*parse_model_variant(path) == ModelVariant{path, WeightFormat::Stored, 1});
  CHECK(*parse_model_variant(path + "@int8") == ModelVariant{path, WeightFormat::Int8, 1});
}
