// MODEL@int8 on the CPU: a workload, a regime and a space of its own; the same discipline.
#include <filesystem>

#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "core/program/program_json.h"
#include "core/program/validator.h"
#include "core/schedule/random_config.h"
#include "kernels/megakernel/workload.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/family/opened.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("toy, small and llama-3.2-1b at int8 are judged, predicted, and named") {
  for (const char* name : {"toy@int8", "small@int8", "llama-3.2-1b@int8"}) {
    CAPTURE(name);
    const auto workload = opened(name, "h200");
    CHECK(workload->id() == name);
    CHECK(workload->regime() == "int8-b1");
    const Verdict v = judged(*workload, Json::object());
    const std::string text = to_json(v).dump();
    CAPTURE(text);
    CHECK(v.status == VerdictStatus::Ok);
    CHECK(v.correct);
    CHECK(v.regime == "int8-b1");
    CHECK(v.workload == name);
    CHECK(v.latency_kind == LatencyKind::Predicted);
    CHECK(v.correctness->top1_agreement == 1.0);
  }
}

TEST_CASE("half the bytes are a good deal less time, and the floor knows it") {
  const Verdict wide = judged(*opened("llama-3.2-1b", "h200"), Json::object()), narrow = judged(*opened("llama-3.2-1b@int8", "h200"), Json::object());
  CHECK(static_cast<double>(*narrow.weight_bytes) / static_cast<double>(*wide.weight_bytes) == doctest::Approx(0.501).epsilon(0.002));
  CHECK(*narrow.bound_us < 0.52 * *wide.bound_us);
  CHECK(*narrow.latency_us < 0.75 * *wide.latency_us);
  CHECK(*narrow.latency_us > *narrow.bound_us);
}

TEST_CASE("checkpoints of every architecture at int8, under defaults and random configs; the id is canonical") {
  Rng rng(8);
  for (const char* name : {"llama-9h3kv", "llama-gqa", "llama-headdim-wide", "llama-linear-rope", "llama-mha-bias", "llama-sharded-fp16",
                           "llama-tied-mqa-llama3rope", "mistral-window8", "qwen2-bias", "qwen3-qknorm"}) {
    CAPTURE(name);
    const auto workload = opened(fixture(name) + "/@int8", "h100");  // a slash too many, as shells complete
    CHECK(workload->id() == std::filesystem::canonical(fixture(name)).string() + "@int8");
    judged_right(*workload, rng);
  }
}

TEST_CASE("one instruction of an int8 model") {
  for (const char* op : {"qkv", "o_proj", "gate_up", "down", "lm_head", "attention"}) {
    CAPTURE(op);
    const auto workload = opened("small@int8#" + std::string(op), "h200");
    CHECK(workload->id() == "small@int8#" + std::string(op));
    CHECK(workload->regime() == "int8-b1");
    const Verdict v = judged(*workload, Json::object());
    const std::string text = to_json(v).dump();
    CAPTURE(text);
    CHECK(v.status == VerdictStatus::Ok);
  }
}

TEST_CASE("what int8 weights cannot be multiplied with is not in the space, and refused with the reason") {
  const auto workload = opened("small@int8", "h200");
  const SearchSpace& space = workload->space();
  CHECK(space.index_of("kernel_knobs.gemv_path") == space.knobs.size());
  CHECK(space.index_of("kernel_knobs.weight_layout") == space.knobs.size());
  for (const char* config : {R"({"kernel_knobs":{"gemv_path":"fma"}})", R"({"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})"}) {
    const Verdict v = judged(*workload, parse_json(config, "test").value());
    CHECK(v.status == VerdictStatus::Rejected);
    CHECK(v.rejected->rule == "int8-needs-mma");
    CHECK_FALSE(v.latency_us);
  }
  const auto fp32 = open_workload(fixture("llama-fp32-hd128") + "@int8", gpu("h200"));
  REQUIRE_FALSE(fp32);
  CHECK(fp32.error().kind == ErrorKind::Unsupported);
  CHECK(fp32.error().message.find("fp32") != std::string::npos);
}

TEST_CASE("an int8 program: scales are regions of their own, JSON keeps them, and a wrong one is refused") {
  const auto workload = opened("toy-2L@int8", "rtx5090");
  const auto json = workload->compile(workload->default_config());
  REQUIRE(json);
  auto program = program_from_json(*json);
  REQUIRE_MESSAGE(program, (program ? "" : program.error().message));
  CHECK(to_json(*program) == *json);
  CHECK(program->model.weight_format == WeightFormat::Int8);
  CHECK(validate(*program).valid());
  int scales = 0;
  for (const Buffer& b : program->buffers) scales += b.binding.scale ? 1 : 0;
  CHECK(scales == 4 * program->model.layers + 1);
  const auto refused = [&](const auto& change, const char* rule = "footprint") {
    Program wrong = *program;
    change(wrong);
    const Validation v = validate(wrong);
    REQUIRE_FALSE(v.valid());
    CHECK(v.rejection->rule == rule);
  };
  const BufferId scale = program->find_buffer("L1.down.scale"), weight = program->find_buffer("L1.down.w");
  REQUIRE(scale != kNone);
  const auto each_read = [](Program& p, BufferId id, const auto& change) {
    for (Task& t : p.tasks)
      for (Region& r : t.reads)
        if (r.buffer == id) change(t, r);
  };
  refused([&](Program& p) { p.buffers[static_cast<std::size_t>(scale)].binding.layer = 0; });
  refused([&](Program& p) { p.buffers[static_cast<std::size_t>(scale)].binding.matrix = Matrix::O; });
  refused([&](Program& p) { p.buffers[static_cast<std::size_t>(scale)].binding.scale = false; }, "malformed");  // other bytes than the ring's
  refused([&](Program& p) { p.buffers[static_cast<std::size_t>(weight)].binding.scale = true; }, "malformed");
  refused([&](Program& p) { p.model.weight_format = WeightFormat::Stored; });
  refused([&](Program& p) { each_read(p, scale, [](Task&, Region& r) { r.begin += 4; }); });
  refused([&](Program& p) {
    for (Task& t : p.tasks) std::erase_if(t.reads, [&](const Region& r) { return r.buffer == scale; });
  });
}
