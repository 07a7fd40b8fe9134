#include <doctest/doctest.h>

#include <string>

#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "core/base/random.h"

using namespace amk;

TEST_CASE("parse_json reads values and keeps integer types") {
  auto v = parse_json(R"({"b":[1,-2,3.5,true,null,"x"],"a":18446744073709551615})", "t");
  REQUIRE(v);
  CHECK((*v)["a"].get<std::uint64_t>() == 18446744073709551615ull);
  CHECK(canonical_dump(*v) == R"({"a":18446744073709551615,"b":[1,-2,3.5,true,null,"x"]})");
}

TEST_CASE("parse_json refuses what would be ambiguous or dangerous") {
  CHECK(parse_json(R"({"a":1,"a":2})", "t").error().message == R"(t: not valid JSON: duplicate key "a")");
  CHECK_FALSE(parse_json("1e999", "t"));
  CHECK_FALSE(parse_json("NaN", "t"));
  CHECK_FALSE(parse_json("{} {}", "t"));
  CHECK_FALSE(parse_json("", "t"));
  CHECK_FALSE(parse_json("\"\xff\"", "t"));
  CHECK_FALSE(parse_json("{\"a\":1,}", "t"));
  CHECK_FALSE(parse_json("[1] // no", "t"));
  const std::string deep(100000, '[');
  CHECK(parse_json(deep, "t").error().message == "t: not valid JSON: nested deeper than 64");
  CHECK(parse_json("[[[0]]]", "t", {.max_depth = 3}));
  CHECK_FALSE(parse_json("[[[[0]]]]", "t", {.max_depth = 3}));
  CHECK_FALSE(parse_json("12345", "t", {.max_bytes = 4}));
}

TEST_CASE("bad_field names field, value and what is accepted, and shortens huge values at a character boundary") {
  Error e = bad_field("config.x", "ü", "1…3").value();
  CHECK(e.message == "config.x is \"ü\"; accepted: 1…3");
  std::string huge = "a";
  for (int i = 0; i < 300; ++i) huge += "ü";
  e = bad_field("f", huge, "y").value();
  CHECK(e.message.size() < 260);
  CHECK_NOTHROW((void)Json(e.message).dump());  // throws on broken UTF-8
}

TEST_CASE("hash128_hex equals XXH3's published value for the empty string") {
  // xxhash repository, XXH128 of "" with seed 0: 99aa06d3014798d86001c324468d497f
  CHECK(hash128_hex("") == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("mix64 is splitmix64 (first outputs for seed 0, from Vigna's reference)") {
  CHECK(mix64(0) == 0xE220A8397B1DCDAFull);
  CHECK(mix64(0x9E3779B97F4A7C15ull) == 0x6E789E6AA1B965F4ull);
}

TEST_CASE("Rng::below stays in range and reaches every value") {
  Rng rng(1);
  int seen[7] = {};
  for (int i = 0; i < 7000; ++i) ++seen[rng.below(7)];
  for (int n : seen) CHECK(n > 800);
}
