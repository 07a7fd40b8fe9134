#include <doctest/doctest.h>

#include "core/base/parse_json.h"
#include "core/base/random.h"
#include "core/schedule/config.h"
#include "core/schedule/random_config.h"

using namespace amk;

namespace {

Result<ScheduleConfig> parse(std::string_view text) { return parse_schedule_config(parse_json(text, "config").value()); }
std::string id(std::string_view text) {
  const auto config = parse(text);
  REQUIRE_MESSAGE(config, config.error().message);
  return schedule_id(*config);
}
std::string refusal(std::string_view text) {
  const auto config = parse(text);
  REQUIRE_FALSE(config);
  CHECK(config.error().kind == ErrorKind::InvalidArgument);
  CHECK(config.error().data.contains("field"));
  CHECK(config.error().data.contains("value"));
  CHECK(config.error().data.contains("accepted"));
  return config.error().message;
}

}  // namespace

TEST_CASE("the canonical form of the default config") {
  CHECK(canonical_dump(to_json(ScheduleConfig{})) ==
        R"({"fusion_grouping":[["norm","qkv","rope","kv_append"],["attention"],["combine"],["o_proj","add"],["norm","gate_up","silu_mul"],)"
        R"(["down","add"],["norm","lm_head","argmax"]],"kernel_knobs":{"chunk_bytes":16384,"cols_per_warp":256,"counters":"vector","cpa_cols":512,)"
        R"("cpa_stages":3,"cpasync":false,"gemv_path":"mma","inflight_chunks":2,"publish":"release","weight_layout":"packed"},)"
        R"("page_allocation":"graph_color","pipelining_depth":4,"sm_assignment":"load_balance","smem_bytes_per_block":196608,)"
        R"("threads_per_block":288,"tiling":{"attention":{"kv_block":64},"gemv":{"N_tile":16}}})");
  const std::string name = schedule_id(ScheduleConfig{});
  CHECK(name.size() == 33);
  CHECK(name[0] == 's');
}

TEST_CASE("spelling does not change the id; meaning does") {
  const std::string base = id("{}");
  CHECK(id(R"({"tiling":{}})") == base);
  CHECK(id(R"({"tiling":{"gemv":{"N_tile":16.0},"attention":{"kv_block":6.4e1}}})") == base);
  CHECK(id(R"({"threads_per_block":288,"pipelining_depth":4})") == base);
  CHECK(id(R"({"pipelining_depth":4,"threads_per_block":288})") == base);
  CHECK(id(R"({"sm_assignment":"load_balance"})") == base);
  CHECK(id(R"({"sm_assignment":{}})") == id(R"({"sm_assignment":"round_robin"})"));
  CHECK(id(R"({"sm_assignment":{"L0.qkv.3":17.0,"embed.0":1}})") == id(R"({"sm_assignment":{"embed.0":1,"L0.qkv.3":17}})"));
  CHECK(id(R"({"tiling":{"gemv":{"N_tile":24}}})") != base);
  CHECK(id(R"({"sm_assignment":"round_robin"})") != base);
  CHECK(id(R"({"sm_assignment":{"L0.qkv.3":17}})") != id(R"({"sm_assignment":{"L0.qkv.3":18}})"));
}

TEST_CASE("max_splits: silent where it limits nothing") {
  const std::string base = id("{}");
  CHECK(id(R"({"tiling":{"attention":{"max_splits":0}}})") == base);
  CHECK(id(R"({"tiling":{"attention":{"max_splits":2}}})") != base);
  CHECK_FALSE(to_json(ScheduleConfig{})["tiling"]["attention"].contains("max_splits"));
  CHECK(refusal(R"({"tiling":{"attention":{"max_splits":3}}})") == "tiling.attention.max_splits is 3; accepted: 0, 2, 4, 8");
}

TEST_CASE("tokens per launch: silent at one, so that ids from before the key stay; enumerated otherwise") {
  const std::string base = id("{}");
  CHECK(base == "s36155ce210bde8ad6199868a5116d4ce");
  CHECK(id(R"({"kernel_knobs":{"tokens_per_launch":1}})") == base);
  CHECK(id(R"({"kernel_knobs":{"tokens_per_launch":8}})") != base);
  CHECK_FALSE(to_json(*parse(R"({"kernel_knobs":{"tokens_per_launch":1}})"))["kernel_knobs"].contains("tokens_per_launch"));
  CHECK(to_json(*parse(R"({"kernel_knobs":{"tokens_per_launch":8}})"))["kernel_knobs"]["tokens_per_launch"] == 8);
  CHECK(refusal(R"({"kernel_knobs":{"tokens_per_launch":3}})") == "kernel_knobs.tokens_per_launch is 3; accepted: 1, 2, 4, 8, 16, 32");
  CHECK(refusal(R"({"kernel_knobs":{"tokens_per_launch":0}})").find("kernel_knobs.tokens_per_launch is 0") == 0);
  CHECK(refusal(R"({"tokens_per_launch":4})").find("did you mean kernel_knobs.tokens_per_launch?") != std::string::npos);
}

TEST_CASE("fusion groups: any spelling of the same groups is the same config") {
  const std::string base = id("{}");
  // Only fused groups, in another order, with single operators or without.
  CHECK(id(R"({"fusion_grouping":[["down","add"],["o_proj","add"],["norm","lm_head","argmax"],["norm","gate_up","silu_mul"],
                                  ["norm","qkv","rope","kv_append"]]})") == base);
  CHECK(id(R"({"fusion_grouping":[["attention"],["combine"],["norm","qkv","rope","kv_append"],["o_proj","add"],["norm","gate_up","silu_mul"],
                                  ["down","add"],["norm","lm_head","argmax"]]})") == base);
  // No groups: every operator alone, which may also be written out.
  const std::string unfused = id(R"({"fusion_grouping":[]})");
  CHECK(unfused != base);
  CHECK(id(R"({"fusion_grouping":[["norm"],["qkv"],["rope"],["kv_append"],["attention"],["combine"],["o_proj"],["add"],["norm"],["gate_up"],
                                  ["silu_mul"],["down"],["add"],["norm"],["lm_head"],["argmax"]]})") == unfused);
  // A lone norm may stand for whichever norm no longer group has claimed.
  CHECK(id(R"({"fusion_grouping":[["norm"],["norm","qkv"]]})") == id(R"({"fusion_grouping":[["norm","qkv"],["norm"],["norm"]]})"));
  const auto parsed = parse(R"({"fusion_grouping":[["combine","o_proj","add"],["qkv","rope","kv_append"]]})");
  REQUIRE(parsed);
  Fusion expected{false, true, true, true, false, false, false, false, false};
  CHECK(parsed->fusion == expected);
  // Attention joined with what follows it: one group, two switches.
  const auto attention_o = parse(R"({"fusion_grouping":[["attention","combine","o_proj","add"]]})");
  REQUIRE(attention_o);
  CHECK(attention_o->fusion == Fusion{false, false, true, true, false, false, false, false, false, true});
  CHECK(attention_in_o(attention_o->fusion));
  CHECK(parse(R"({"fusion_grouping":[["attention","combine"]]})")->fusion.attention_combine);
}

TEST_CASE("groups without a fused form, and operators in two groups, are refused") {
  const auto groups = [](std::string_view list) { return refusal("{\"fusion_grouping\":" + std::string(list) + "}"); };
  CHECK(groups(R"([["rope","kv_append"]])")
            .find("fusion_grouping is [\"rope\",\"kv_append\"]; accepted: groups of neighbouring operators joined by norm+qkv") == 0);
  CHECK(groups(R"([["qkv","rope"]])").find("fusion_grouping is [\"qkv\",\"rope\"]") == 0);
  CHECK(groups(R"([["kv_append","attention"]])").find("fusion_grouping is [\"kv_append\",\"attention\"]") == 0);
  CHECK(groups(R"([["add","norm"]])").find("fusion_grouping is [\"add\",\"norm\"]") == 0);
  CHECK(groups(R"([["qkv","norm"]])").find("fusion_grouping is [\"qkv\",\"norm\"]") == 0);
  CHECK(groups(R"([["norm","qkv"],["qkv"]])") == "fusion_grouping is [\"qkv\"]; accepted: each operator in one group");
  CHECK(groups(R"([["norm","qkv"],["norm"],["norm"],["norm"]])") == "fusion_grouping is [\"norm\"]; accepted: each operator in one group");
  CHECK(groups(R"([["norm","qkv"],["norm","qkv"]])") == "fusion_grouping is [\"norm\",\"qkv\"]; accepted: each operator in one group");
  CHECK(groups(R"([["softmax"]])").find("fusion_grouping is \"softmax\"; accepted: norm, qkv") == 0);
  CHECK(groups(R"([[]])").find("fusion_grouping is []") == 0);
  CHECK(groups(R"(["norm"])").find("fusion_grouping is \"norm\"") == 0);
  CHECK(groups(R"([[1]])").find("fusion_grouping is 1") == 0);
  CHECK(groups(R"("norm")").find("fusion_grouping is \"norm\"; accepted: a list") == 0);
}

TEST_CASE("wrong types and values are refused by dotted key, value and what is accepted") {
  CHECK(refusal(R"({"tiling":{"gemv":{"N_tile":"16"}}})") == "tiling.gemv.N_tile is \"16\"; accepted: integers from 8 to 512 in steps of 8");
  CHECK(refusal(R"({"tiling":{"gemv":{"N_tile":12}}})") == "tiling.gemv.N_tile is 12; accepted: integers from 8 to 512 in steps of 8");
  CHECK(refusal(R"({"tiling":{"gemv":{"N_tile":520}}})") == "tiling.gemv.N_tile is 520; accepted: integers from 8 to 512 in steps of 8");
  CHECK(refusal(R"({"tiling":{"gemv":{"N_tile":16.5}}})") == "tiling.gemv.N_tile is 16.5; accepted: integers from 8 to 512 in steps of 8");
  CHECK(refusal(R"({"tiling":{"gemv":{"N_tile":18446744073709551615}}})").find("tiling.gemv.N_tile is 18446744073709551615") == 0);
  CHECK(refusal(R"({"tiling":{"gemv":{"N_tile":1e300}}})").find("tiling.gemv.N_tile is 1e+300") == 0);
  CHECK(refusal(R"({"tiling":{"gemv":{"N_tile":true}}})").find("tiling.gemv.N_tile is true") == 0);
  CHECK(refusal(R"({"tiling":{"gemv":{"N_tile":null}}})").find("tiling.gemv.N_tile is null") == 0);
  CHECK(refusal(R"({"tiling":{"attention":{"kv_block":100}}})") == "tiling.attention.kv_block is 100; accepted: 64, 128, 256, 512");
  CHECK(refusal(R"({"pipelining_depth":-1})") == "pipelining_depth is -1; accepted: integers from 0 to 8");
  CHECK(refusal(R"({"threads_per_block":300})") == "threads_per_block is 300; accepted: integers from 128 to 1024 in steps of 32");
  CHECK(refusal(R"({"page_allocation":"colour"})") == "page_allocation is \"colour\"; accepted: \"graph_color\", \"linear\", \"none\"");
  CHECK(refusal(R"({"kernel_knobs":{"cpasync":1}})") == "kernel_knobs.cpasync is 1; accepted: true, false");
  CHECK(refusal(R"({"kernel_knobs":{"gemv_path":0}})") == "kernel_knobs.gemv_path is 0; accepted: \"mma\", \"fma\", \"slices\"");
  CHECK(refusal(R"({"kernel_knobs":[]})") == "kernel_knobs is []; accepted: an object");
  CHECK(refusal(R"({"tiling":8})") == "tiling is 8; accepted: an object");
  CHECK(refusal("[]") == "config is []; accepted: an object");
  CHECK(refusal(R"({"sm_assignment":"best"})") == "sm_assignment is \"best\"; accepted: \"round_robin\", \"load_balance\", \"measured\"");
  CHECK(refusal(R"({"sm_assignment":"explicit"})").find("sm_assignment is \"explicit\"") == 0);
  CHECK(refusal(R"({"sm_assignment":3})").find("sm_assignment is 3; accepted: \"round_robin\", \"load_balance\", \"measured\", or an object") == 0);
  CHECK(refusal(R"({"sm_assignment":{"L0.qkv.3":-1}})") == "sm_assignment.L0.qkv.3 is -1; accepted: an SM number from 0 up");
  CHECK(refusal(R"({"sm_assignment":{"L0.qkv.3":1e12}})").find("sm_assignment.L0.qkv.3 is 1000000000000.0") == 0);
  CHECK(refusal(R"({"sm_assignment":{"L0.qkv.3":18446744073709551615}})").find("sm_assignment.L0.qkv.3 is 18446744073709551615") == 0);
  CHECK(refusal(R"({"sm_assignment":{"L0.qkv.3":"1"}})").find("sm_assignment.L0.qkv.3 is \"1\"") == 0);
  for (const char* name :
       {"", "qkv", "L0.qkv", "L01.qkv.1", "L0.qkv.01", "0.qkv.1", "L0..1", ".1", "L0.QKV.1", "L0.qkv.1.2", "L.qkv.1", "L99999999.qkv.1"}) {
    CAPTURE(name);
    CHECK(refusal("{\"sm_assignment\":{\"" + std::string(name) + "\":1}}").find("accepted: tile names") != std::string::npos);
  }
}

TEST_CASE("unknown keys are refused with the nearest known name") {
  CHECK(refusal(R"({"kernel_knobs":{"chunk_byte":4096}})").find("unknown key kernel_knobs.chunk_byte; did you mean kernel_knobs.chunk_bytes?") == 0);
  CHECK(refusal(R"({"pipeline_depth":1})").find("unknown key pipeline_depth; did you mean pipelining_depth?") == 0);
  CHECK(refusal(R"({"N_tile":8})").find("unknown key N_tile; did you mean tiling.gemv.N_tile?") == 0);
  CHECK(refusal(R"({"tiling":{"gemv":{"n_tile":8}}})").find("did you mean tiling.gemv.N_tile?") != std::string::npos);
  CHECK(refusal(R"({"publish":"release"})").find("did you mean kernel_knobs.publish?") != std::string::npos);
  CHECK(refusal(R"({"tiling.gemv.N_tile":8})").find("unknown key tiling.gemv.N_tile") == 0);
  const std::string far = refusal(R"({"warp_specialisation":8})");
  CHECK(far.find("did you mean") == std::string::npos);
  CHECK(far.find("Accepted: fusion_grouping, tiling") != std::string::npos);
  // Hostile keys are shown cut, at a character boundary.
  std::string huge = "a";
  for (int i = 0; i < 5000; ++i) huge += "ü";
  const std::string message = refusal("{\"" + huge + "\":1}");
  CHECK(message.size() < 600);
  CHECK_NOTHROW((void)Json(message).dump());
}

TEST_CASE("other defaults for missing keys") {
  ScheduleConfig small;
  small.smem_bytes_per_block = 65536;
  const auto config = parse_schedule_config(Json{{"pipelining_depth", 2}}, small);
  REQUIRE(config);
  CHECK(config->smem_bytes_per_block == 65536);
  CHECK(config->pipelining_depth == 2);
  // An explicit map among the defaults does not survive a named assignment.
  ScheduleConfig mapped;
  mapped.sm_assignment = SmAssignment::Explicit;
  mapped.explicit_sm = {{"embed.0", 3}};
  CHECK(parse_schedule_config(Json{{"sm_assignment", "measured"}}, mapped)->explicit_sm.empty());
}

TEST_CASE("any accepted config survives its JSON form, and distinct configs have distinct ids") {
  Rng rng(7);
  std::map<std::string, ScheduleConfig> seen;
  for (int i = 0; i < 2000; ++i) {
    ScheduleConfig config = random_accepted_config(262144, rng);
    if (rng.below(4) == 0) {
      config.sm_assignment = SmAssignment::Explicit;
      config.explicit_sm["L" + std::to_string(rng.below(3)) + ".qkv." + std::to_string(rng.below(5))] = static_cast<int>(rng.below(132));
    }
    const auto again = parse_schedule_config(parse_json(canonical_dump(to_json(config)), "config").value());
    REQUIRE(again);
    CHECK(*again == config);
    CHECK(schedule_id(*again) == schedule_id(config));
    const auto [at, fresh] = seen.emplace(schedule_id(config), config);
    CHECK((fresh || at->second == config));
  }
}
