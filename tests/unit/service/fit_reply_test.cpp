#include "orchestrator/service/fit_reply.h"

#include <doctest/doctest.h>

#include "core/base/json.h"

using namespace amk;

namespace {

std::string repeated(const std::string& text, std::size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

// A proposal of so many knobs, its texts so long.
Json proposal(std::size_t knobs, std::size_t meaning, std::size_t config, const std::string& workload) {
  Json out = {{"workload", workload},
              {"incumbent", {{"sm_assignment", repeated("x", config)}}},
              {"incumbent_is", "best"},
              {"knobs_that_matter", Json::array()}};
  out["tried"] = {{"experiments", 30}, {"around_incumbent", Json::array()}};
  out["search_space"] = {{"knobs", Json::array()}, {"constraints", Json::array()}};
  out["suggestions"] = Json::array();
  for (std::size_t i = 0; i < knobs; ++i)
    out["search_space"]["knobs"].push_back({{"name", "knob" + std::to_string(i)},
                                            {"kind", i % 2 == 0 ? "boolean" : "ordinal"},
                                            {"choices", {1, 2, 4}},
                                            {"default", 1},
                                            {"meaning", repeated("m", meaning)}});
  for (int i = 0; i < 6; ++i) {
    out["search_space"]["constraints"].push_back({{"name", "rule" + std::to_string(i)}, {"reason", repeated("r", meaning)}});
    out["tried"]["around_incumbent"].push_back({{"change", {{"knob1", i}}}, {"outcome", "revert"}, {"latency_us", 1.5}});
  }
  for (int i = 0; i < 5; ++i) {
    out["knobs_that_matter"].push_back({{"knob", "knob" + std::to_string(i)}, {"explains", 0.5}, {"confidence", "high"}, {"observations", 30}});
    out["suggestions"].push_back({{"change", {{"knob1", i}}}, {"set", {{"knob1", i}}}, {"predicted_us", 1.5}, {"why", repeated("w", 80)}});
  }
  return out;
}

}  // namespace

TEST_CASE("a proposal that fits is left as it is") {
  const Json whole = proposal(10, 40, 200, "toy");
  REQUIRE(whole.dump().size() < kReplyLimit);
  Json out = whole;
  fit_reply(out);
  CHECK(out == whole);
}

TEST_CASE("what is the same in every proposal goes before what was tried, what matters and what is suggested") {
  Json out = proposal(32, 100, 570, "smollm2-135m");  // somewhat more than a large model's
  REQUIRE(out.dump().size() > kReplyLimit);
  fit_reply(out);
  CHECK(out.dump().size() <= kReplyLimit);
  CHECK(out["suggestions"].size() == 5);
  CHECK(out["knobs_that_matter"].size() == 5);
  CHECK(out["tried"]["around_incumbent"].size() >= 3);
  CHECK(out["search_space"]["knobs"].size() == 32);
  CHECK_FALSE(out["search_space"]["knobs"][0].contains("meaning"));  // a switch's
  CHECK(out["search_space"]["knobs"][1].contains("meaning"));
}

TEST_CASE("a proposal is short whatever its workload, its space and its incumbent are called") {
  for (const std::size_t knobs : {1, 24, 200})
    for (const std::size_t meaning : {10, 400, 20'000})
      for (const std::size_t config : {10, 5'000, 100'000})
        for (const std::string& workload : {std::string("toy"), repeated("/é", 4096)}) {
          CAPTURE(knobs);
          CAPTURE(meaning);
          CAPTURE(config);
          Json out = proposal(knobs, meaning, config, workload);
          fit_reply(out);
          CHECK(out.dump().size() <= kReplyLimit);
          CHECK(out["tried"]["experiments"] == 30);
          if (knobs == 24) CHECK(out["suggestions"].size() >= 3);
          if (config == 100'000) CHECK(out["incumbent"].is_null());
        }
}
