#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "core/base/parse_json.h"
#include "core/program/lower.h"
#include "core/program/program_json.h"
#include "core/schedule/random_config.h"
#include "tests/unit/program/specs.h"

using namespace amk;
using namespace amk::test;

namespace {

Program sample(std::size_t shape, int sm_count = 5, WeightFormat weights = WeightFormat::Stored) {
  ModelSpec spec = fixture_shapes().at(shape);
  spec.weight_format = weights;
  auto program = lower(spec, {}, {sm_count, 232448, 200, {}}, {});
  REQUIRE(program);
  return std::move(*program);
}

std::string refusal(const Json& json) {
  const auto program = program_from_json(json);
  REQUIRE_FALSE(program);
  return program.error().message;
}

Json load_schema() {
  std::ifstream in(std::string(AMK_SOURCE_DIR) + "/schemas/program.schema.json");
  REQUIRE(in);
  std::stringstream text;
  text << in.rdbuf();
  return parse_json(text.str(), "schema").value();
}

// Every object in the document has exactly the keys that the schema lists at its place.
void same_keys(const Json& root, Json schema, const Json& value, const std::string& path) {
  if (schema.contains("anyOf")) schema = value.is_null() ? schema["anyOf"][0] : schema["anyOf"][1];
  if (schema.contains("$ref")) schema = root["$defs"][schema["$ref"].get<std::string>().substr(std::string("#/$defs/").size())];
  CAPTURE(path);
  if (value.is_object()) {
    REQUIRE(schema["additionalProperties"] == false);
    std::set<std::string> listed, emitted, required;
    for (const auto& [key, unused] : schema["properties"].items()) listed.insert(key);
    for (const auto& [key, unused] : value.items()) emitted.insert(key);
    for (const Json& key : schema["required"]) required.insert(key.get<std::string>());
    // Optional are two keys that only int8 programs have.
    for (const char* optional : {"scale", "weight_format"}) {
      if (listed.erase(optional) != 0) CHECK(required.count(optional) == 0);
      emitted.erase(optional);
    }
    CHECK(listed == emitted);
    CHECK(required == emitted);
    for (const auto& [key, child] : value.items()) same_keys(root, schema["properties"][key], child, path + "." + key);
  } else if (value.is_array()) {
    REQUIRE(schema["type"] == "array");
    for (std::size_t i = 0; i < value.size() && i < 40; ++i) {
      if (schema.contains("prefixItems")) {
        REQUIRE(value.size() == schema["prefixItems"].size());
        same_keys(root, schema["prefixItems"][i], value[i], path);
      } else {
        same_keys(root, schema["items"], value[i], path);
      }
    }
  } else if (schema.contains("enum")) {
    CHECK(std::find(schema["enum"].begin(), schema["enum"].end(), value) != schema["enum"].end());
  } else if (value.is_number_integer() && schema.contains("minimum")) {
    CHECK(value >= schema["minimum"]);
    CHECK(value <= schema["maximum"]);
  }
}

}  // namespace

TEST_CASE("a program survives its JSON form, and its text is the same again") {
  Rng rng(9);
  for (const ModelSpec& spec : fixture_shapes()) {
    for (int i = 0; i < 4; ++i) {
      const ScheduleConfig config = random_accepted_config(232448, rng);
      const auto program = lower(spec, config, {6, 232448, 300, {}}, {spec.dtype, DType::BF16, DType::F32});
      REQUIRE(program);
      const std::string text = canonical_dump(to_json(*program));
      const auto again = program_from_json(parse_json(text, "program").value());
      REQUIRE_MESSAGE(again, again.error().message);
      REQUIRE(canonical_dump(to_json(*again)) == text);
      CHECK(again->schedule_id == program->schedule_id);
      CHECK(again->sm_count == program->sm_count);
      CHECK(again->threads_per_block == program->threads_per_block);
      CHECK(again->max_seq == program->max_seq);
      CHECK(again->max_steps == program->max_steps);
      CHECK(again->step_sync == program->step_sync);
      CHECK(again->ring == program->ring);
      CHECK(again->attention == program->attention);
      CHECK(again->storages == program->storages);
      CHECK(again->buffers == program->buffers);
      CHECK(again->counters == program->counters);
      CHECK(again->instructions == program->instructions);
      CHECK(again->tasks == program->tasks);
      CHECK(again->queues == program->queues);
      CHECK(again->streams == program->streams);
      CHECK(again->model.name == spec.name);
      CHECK(again->model.sliding_window == spec.sliding_window);
      CHECK(again->model.qk_norm == spec.qk_norm);
      CHECK(again->model.rms_eps == spec.rms_eps);
      CHECK(again->model.dtype == spec.dtype);
      CHECK(again->model.architecture == spec.architecture);
    }
  }
}

TEST_CASE("int8: the format survives, equal programs are equal text, and contradictions are refused") {
  const Program p = sample(5, 5, WeightFormat::Int8);
  const Json json = to_json(p);
  const auto again = program_from_json(json);
  REQUIRE(again);
  CHECK(again->model.weight_format == WeightFormat::Int8);
  CHECK(again->buffers == p.buffers);
  CHECK(to_json(*again) == json);
  Json wrong = json;
  wrong["model"]["weight_format"] = "bf16";
  CHECK(refusal(wrong).find("int8") != std::string::npos);
  for (const Json& value : {Json(false), Json(1)}) {  // absent when false
    wrong = json;
    for (Json& b : wrong["buffers"])
      if (b["space"] == "weight") b["binding"]["scale"] = value;
    CHECK(refusal(wrong).find("scale") != std::string::npos);
  }
  wrong = json;
  for (Json& b : wrong["buffers"])
    if (b["space"] == "weight" && b["binding"]["bias"] == true) b["binding"]["scale"] = true;
  CHECK(refusal(wrong).find("scale") != std::string::npos);
}

TEST_CASE("values that differ from every default survive too") {
  Program p = sample(0);
  p.model.rope = {500000.25, RopeScaling::Llama3, 32.5, 1.25, 4.75, 64, DType::BF16};
  p.model.rms_eps = 1.0 / 3.0;
  p.step_sync = StepSync::Persistent;
  p.tasks[3].pos_hi = 17;
  p.tasks[3].writes[0].pos_hi = 19;
  const Json json = to_json(p);
  const auto again = program_from_json(json);
  REQUIRE(again);
  CHECK(to_json(*again) == json);
  CHECK(again->model.rope.theta == 500000.25);
  CHECK(again->model.rope.scaling == RopeScaling::Llama3);
  CHECK(again->model.rope.high_freq_factor == 4.75);
  CHECK(again->model.rope.original_max_position == 64);
  CHECK(again->model.rope.inv_freq_dtype == DType::BF16);
  CHECK(again->model.rms_eps == 1.0 / 3.0);
  CHECK(again->step_sync == StepSync::Persistent);
  CHECK(again->tasks[3] == p.tasks[3]);
}

TEST_CASE("the schema lists the keys that are emitted, names and bounds that hold") {
  const Json schema = load_schema();
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  CHECK(schema["properties"]["version"]["const"] == kProgramVersion);
  for (std::size_t shape : {5u, 8u, 10u}) same_keys(schema, schema, to_json(sample(shape)), "program");
  const Json int8 = to_json(sample(5, 5, WeightFormat::Int8));
  same_keys(schema, schema, int8, "program");
  CHECK(int8["model"]["weight_format"] == schema["$defs"]["model"]["properties"]["weight_format"]["const"]);
  CHECK(int8.dump().find(R"("scale":true)") != std::string::npos);
}

TEST_CASE("hostile programs are refused by place, value and what is accepted") {
  const Json good = to_json(sample(2));
  REQUIRE(program_from_json(good));
  const auto refused = [&](const char* pointer, const Json& value, const char* message) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    CHECK(refusal(bad) == message);
  };
  refused("/version", 1, "program.version is 1; accepted: an integer from 2 to 2");
  refused("/batch", 9, "program.batch is 9; accepted: an integer from 1 to 8");
  refused("/sm_count", 0, "program.sm_count is 0; accepted: an integer from 1 to 4096");
  refused("/sm_count", 5.0, "program.sm_count is 5.0; accepted: an integer from 1 to 4096");
  refused("/sm_count", 18446744073709551615ull, "program.sm_count is 18446744073709551615; accepted: an integer from 1 to 4096");
  refused("/sm_count", 4, "program.tasks[4].sm is 4; accepted: an integer from 0 to 3");
  refused("/step_sync", "never", "program.step_sync is \"never\"; accepted: launch, persistent");
  refused("/model/kv_heads", 0, "program.model.kv_heads is 0; accepted: an integer from 1 to 2147483647");
  refused("/model/kv_heads", 3, "heads is 4; accepted: positive multiples of 3");
  refused("/model/dtype", "fp8", "program.model.dtype is \"fp8\"; accepted: fp32, fp16, bf16, int8, int32");
  refused("/model/rope", nullptr, "program.model.rope is null; accepted: an object");
  refused("/buffers/1/storage", 9999,
          ("program.buffers[1].storage is 9999; accepted: an integer from 0 to " + std::to_string(good["storages"].size() - 1)).c_str());
  refused("/buffers/1/shape/0", 1 << 20, "program.buffers[1].bytes is 25600; accepted: an integer from 134217728 to 134217728");
  refused("/buffers/1/shape", Json::array({1 << 30, 1 << 30, 1 << 30}),
          "program.buffers[1].shape[1] is 1073741824; accepted: an integer from 1 to 16777216");
  refused("/buffers/1/binding", Json::object(), "program.buffers[1].binding is {}; accepted: null except for weights");
  refused("/tasks/0/op", "jump",
          "program.tasks[0].op is \"jump\"; accepted: embed, rms_norm, gemv, rope, kv_append, attention_tile, attention_combine, silu_mul, add, "
          "argmax_partial, argmax, attention_o");
  refused("/tasks/0/instruction", -1,
          ("program.tasks[0].instruction is -1; accepted: an integer from 0 to " + std::to_string(good["instructions"].size() - 1)).c_str());
  refused("/tasks/0/reads/0/0", -1,
          ("program.tasks[0].reads[0][0] is -1; accepted: an integer from 0 to " + std::to_string(good["buffers"].size() - 1)).c_str());
  refused("/tasks/0/reads/0", Json::array({0, 0, 4}), "program.tasks[0].reads[0] is [0,0,4]; accepted: a list of 6 integers");
  refused("/tasks/0/reads/0/2", 1ull << 60, "program.tasks[0].reads[0][2] is 1152921504606846976; accepted: an integer from 0 to 72057594037927936");
  refused("/tasks/0/fused", Json::array({"norm", "norm"}),
          "program.tasks[0].fused[1] is \"norm\"; accepted: each flag once, in the order of the schema");
  refused("/tasks/0/signal", 99999,
          ("program.tasks[0].signal is 99999; accepted: an integer from -1 to " + std::to_string(good["counters"].size() - 1)).c_str());
  refused("/tasks/0/waits", Json::array({Json::array({0})}), "program.tasks[0].waits[0] is [0]; accepted: a list of 2 integers");
  refused("/queues/0/0", 99999,
          ("program.queues[0][0] is 99999; accepted: an integer from 0 to " + std::to_string(good["tasks"].size() - 1)).c_str());
  refused("/queues", Json::array(), "program.queues is 0; accepted: one list for each of 5 SMs");
  refused("/streams", 7, "program.streams is 7; accepted: a list");
  refused("/extra", 1, "program has 19 keys; accepted: the 18 of the schema");
  refused("/tasks/0/extra", 1, "program.tasks[0] has 22 keys; accepted: the 21 of the schema");
  for (const auto& [key, unused] : good.items()) {
    Json bad = good;
    bad.erase(key);
    CHECK(refusal(bad) == "program has no key " + key);
  }
  for (const Json& other : {Json(nullptr), Json(1), Json::array(), Json("x")}) CHECK(refusal(other).find("accepted: an object") != std::string::npos);
}

TEST_CASE("random damage anywhere is an answer, never a crash") {
  const Json good = to_json(sample(10, 3));
  Rng rng(77);
  const Json values[] = {Json(nullptr), Json(-1),     Json(0),       Json(1),        Json(4294967296),
                         Json(1e300),   Json("gemv"), Json::array(), Json::object(), Json(true)};
  const Json flat = good.flatten();
  std::vector<std::string> pointers;
  for (const auto& [pointer, unused] : flat.items()) pointers.push_back(pointer);
  int accepted = 0;
  for (int i = 0; i < 400; ++i) {
    Json bad = good;
    std::string pointer = pointers[rng.below(pointers.size())];
    if (rng.below(4) == 0) pointer = pointer.substr(0, pointer.rfind('/'));  // damage a container
    bad[Json::json_pointer(pointer)] = values[rng.below(std::size(values))];
    const auto program = program_from_json(bad);
    if (program) {
      ++accepted;
      CHECK(canonical_dump(to_json(*program)) == canonical_dump(bad));
    } else {
      CHECK(program.error().message.size() < 1000);
    }
  }
  CHECK(accepted < 300);
}
