// The shapes in specs.h are those of the checked-in checkpoints, as the importer reads them.
#include "tests/unit/program/specs.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "core/base/json.h"
#include "core/model/load.h"

using namespace amk;

TEST_CASE("hand-written shapes equal the imported ones in everything that lowering reads") {
  for (const ModelSpec& spec : test::fixture_shapes()) {
    CAPTURE(spec.name);
    const auto ref = resolve_model((std::filesystem::path(AMK_SOURCE_DIR) / "tests/fixtures/hf" / spec.name).string(), {});
    REQUIRE_MESSAGE(ref, ref.error().message);
    Json expected = to_json(ref->spec), actual = to_json(spec);
    for (Json* json : {&expected, &actual})
      for (const char* key : {"name", "rope", "rms_eps"}) json->erase(key);
    CHECK(actual == expected);
  }
}
