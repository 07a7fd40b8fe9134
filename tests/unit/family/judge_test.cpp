// A config's whole judgement on the CPU.
#include <atomic>
#include <cmath>
#include <stop_token>
#include <thread>

#include "core/program/program_json.h"
#include "core/program/validator.h"
#include "core/schedule/random_config.h"
#include "kernels/megakernel/workload.h"
#include "tests/unit/family/opened.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("a good schedule: valid, correct, predicted, and nothing claimed as measured") {
  const auto workload = opened("toy", "rtx5090");
  const Verdict v = judged(*workload, Json::object());
  CHECK(v.status == VerdictStatus::Ok);
  CHECK(v.valid);
  CHECK(v.correct);
  REQUIRE(v.correctness);
  CHECK(v.correctness->max_abs_err <= v.correctness->bound);
  CHECK(v.correctness->bitwise_repeatable);
  CHECK(v.correctness->top1_agreement == 1.0);
  CHECK(v.correctness->positions_checked >= 18);  // 12 from an empty cache, 3 at each edge of a KV block
  CHECK(v.latency_kind == LatencyKind::Predicted);
  REQUIRE(v.latency_us);
  CHECK(*v.latency_us >= *v.bound_us);
  CHECK(*v.pct_of_roofline == doctest::Approx(100 * *v.bound_us / *v.latency_us));
  double regions = 0;
  for (const auto& [name, us] : v.regions.items()) regions += us.get<double>();
  CHECK(regions == doctest::Approx(*v.latency_us));
  CHECK(*v.tasks > 0);
  CHECK(v.workload == "toy");
  CHECK(v.gpu == "rtx5090");
  CHECK(v.regime == "bf16-b1");
  CHECK(v.schedule_id == workload->schedule_id(v.config));
  CHECK(workload->predict_us(v.config).value() == *v.latency_us);
  // The verdict survives its own JSON, and the caller's fields are left to the caller.
  CHECK(v.verdict_id.empty());
  CHECK(to_json(verdict_from_json(to_json(v)).value()) == to_json(v));
}

TEST_CASE("real checkpoints of every architecture, under defaults and random configs") {
  Rng rng(5);
  for (const char* name : {"llama-9h3kv", "llama-fp32-hd128", "llama-gqa", "llama-headdim-wide", "llama-linear-rope", "llama-mha-bias",
                           "llama-sharded-fp16", "llama-tied-mqa-llama3rope", "mistral-window8", "qwen2-bias", "qwen3-qknorm"}) {
    CAPTURE(name);
    const auto workload = opened(fixture(name), "h100");
    CHECK(workload->id() == std::filesystem::canonical(fixture(name)).string());
    judged_right(*workload, rng);
  }
}

TEST_CASE("several tokens a launch: executed as one launch, fed back as well as given, alone and in a batch") {
  for (const std::string& name : {std::string("toy"), std::string("small@b3"), fixture("mistral-window8")}) {
    CAPTURE(name);
    const auto workload = opened(name, "h100");
    Json config = workload->default_config();
    config["kernel_knobs"]["tokens_per_launch"] = 8;
    const Verdict v = judged(*workload, config);
    CHECK(v.status == VerdictStatus::Ok);
    CHECK(v.correct);
    CHECK(v.schedule_id != judged(*workload, workload->default_config()).schedule_id);
  }
}

TEST_CASE("a large model: its weights stay untouched, and the verdict says what was executed") {
  for (const char* name : {"llama-3.2-1b", "qwen3-0.6b", "mistral-7b", "qwen2.5-7b"}) {
    CAPTURE(name);
    const auto workload = opened(name, "h200");
    const Verdict v = judged(*workload, Json::object());
    CHECK(v.status == VerdictStatus::Ok);
    CHECK(v.notes.find("without this model's weights") != std::string::npos);
    CHECK(v.notes.find("stand-in") != std::string::npos);
    CHECK(*v.weight_bytes > 500'000'000);
  }
  const Verdict v = judged(*opened("llama-3.2-1b", "h200"), Json::object());
  CHECK(*v.latency_us < 700 * 1.5);
  CHECK(*v.latency_us > 650 / 1.5);
}

TEST_CASE("random configs of a large model are executable on its stand-in") {
  Rng rng(6);
  for (const char* name : {"smollm2-135m", "qwen3-4b"}) {
    const auto workload = opened(name, "h100");
    for (int i = 0; i < 6; ++i) {
      const Json config = runnable(*workload, [&] { return to_json(random_accepted_config(gpu("h100").smem_optin_bytes, rng)); });
      const std::string text = config.dump();
      CAPTURE(text);
      CHECK(judged(*workload, config).correct);
    }
  }
}

TEST_CASE("a schedule that cannot run is rejected with a rule and a witness, and gets no latency") {
  const auto workload = opened(fixture("llama-gqa"), "h100");
  const struct {
    Json config;
    const char* in_witness;
  } bad[] = {
      {{{"sm_assignment", {{"L0.qkv.0", 4000}}}}, "4000"},
      {{{"sm_assignment", {{"L7.qkv.0", 1}}}}, "L7.qkv.0"},
      {{{"smem_bytes_per_block", 232448 + 1024}}, "232448"},
  };
  for (const auto& [config, in_witness] : bad) {
    const auto canonical = workload->canonical(config);
    if (!canonical) {  // refused even earlier, by name
      CHECK(canonical.error().kind == ErrorKind::InvalidArgument);
      continue;
    }
    const Verdict v = judged(*workload, config);
    CHECK(v.status == VerdictStatus::Rejected);
    CHECK_FALSE(v.valid);
    CHECK_FALSE(v.correct);
    REQUIRE(v.rejected);
    CHECK_FALSE(v.rejected->rule.empty());
    CHECK_FALSE(v.rejected->message.empty());
    CHECK(v.rejected->witness.dump().find(in_witness) != std::string::npos);
    CHECK_FALSE(v.latency_us);
    CHECK_FALSE(v.correctness);
    const auto us = workload->predict_us(*canonical);
    REQUIRE_FALSE(us);
    CHECK(us.error().kind == ErrorKind::Rejected);
    CHECK(workload->compile(*canonical).error().kind == ErrorKind::Rejected);
  }
  CHECK(judged(*workload, {{"sm_assignment", {{"L0.qkv.0", 4000}}}}).status == VerdictStatus::Rejected);
  CHECK(judged(*workload, {{"sm_assignment", {{"L0.qkv.0", 7}, {"lm_head.1", 0}}}}).status == VerdictStatus::Ok);
}

TEST_CASE("an explicit placement of a large model is judged on the model, and the note says how the stand-in was placed") {
  const auto workload = opened("llama-3.2-1b", "h200");
  const Verdict good = judged(*workload, {{"sm_assignment", {{"L15.down.3", 131}}}, {"smem_bytes_per_block", 163840}});
  CHECK(good.status == VerdictStatus::Ok);
  CHECK(good.notes.find("round robin") != std::string::npos);
  CHECK(judged(*workload, {{"sm_assignment", {{"L15.down.3", 132}}}}).status == VerdictStatus::Rejected);
}

TEST_CASE("canonical: defaults fit the GPU, and what is unknown is named") {
  const auto small = opened("toy", "rtx5090");
  const auto large = opened("toy", "h200");
  CHECK(small->canonical(Json::object()).value() == small->default_config());
  CHECK(small->default_config()["smem_bytes_per_block"].get<int>() <= 101376);
  CHECK(large->default_config()["smem_bytes_per_block"].get<int>() > 101376);
  CHECK(small->config_at(small->space().default_point()) == small->default_config());
  CHECK(small->point_of(small->default_config()).value() == small->space().default_point());
  const auto unknown = small->canonical({{"tile", 3}});
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().kind == ErrorKind::InvalidArgument);
  CHECK(unknown.error().message.find("tile") != std::string::npos);
  CHECK_FALSE(small->judge_on_cpu({{"tile", 3}}, {}));
  // Key order and defaults do not matter to the id.
  CHECK(small->schedule_id({{"pipelining_depth", 2}}) == small->schedule_id(small->canonical({{"pipelining_depth", 2}}).value()));
}

TEST_CASE("what was predicted is not lowered and proved again to be judged") {
  const auto workload = opened("toy", "rtx5090");
  std::map<std::string, int> entered;
  Progress progress;
  progress.enter = [&](std::string_view phase) { ++entered[std::string(phase)]; };
  REQUIRE(workload->predict_us(workload->default_config(), progress));
  CHECK(entered == std::map<std::string, int>{{"lowering", 1}, {"validation", 1}});
  const auto verdict = workload->judge_on_cpu(workload->default_config(), progress);
  REQUIRE(verdict);
  CHECK(verdict->correct);
  CHECK(entered == std::map<std::string, int>{{"lowering", 1}, {"validation", 1}, {"check", 1}, {"timing", 1}});
}

TEST_CASE("compile gives the program that was judged") {
  const auto workload = opened("toy-2L", "h100");
  const Json compiled = workload->compile(workload->default_config()).value();
  const auto program = program_from_json(compiled);
  REQUIRE(program);
  CHECK(validate(*program).valid());
  CHECK(static_cast<std::int64_t>(program->tasks.size()) == *judged(*workload, Json::object()).tasks);
  CHECK(program->schedule_id == workload->schedule_id(workload->default_config()));
}

TEST_CASE("a cancelled judgement is Cancelled, not incorrect") {
  const auto workload = opened("toy", "h100");
  std::stop_source stop;
  stop.request_stop();
  const auto verdict = workload->judge_on_cpu(workload->default_config(), {{}, stop.get_token()});
  REQUIRE_FALSE(verdict);
  CHECK(verdict.error().kind == ErrorKind::Cancelled);
  CHECK(judged(*workload, Json::object()).status == VerdictStatus::Ok);  // and the workload is not spoiled
}

TEST_CASE("several jobs judge one workload at once") {
  const auto workload = opened("toy-2L", "h100");
  std::atomic<int> good = 0;
  {
    std::vector<std::jthread> jobs;
    for (int i = 0; i < 4; ++i)
      jobs.emplace_back([&, i] {
        const auto canonical = workload->canonical({{"pipelining_depth", i}});
        const auto verdict = workload->judge_on_cpu(*canonical, {});
        if (verdict && verdict->correct) ++good;
      });
  }
  CHECK(good == 4);
}

TEST_CASE("registry: names go to their family, and a wrong one is answered with what is accepted") {
  bool toy = false;
  for (const std::string& name : known_workloads()) toy = toy || name == "toy";
  CHECK(toy);
  const auto unknown = open_workload("no-such-model", gpu("h100"));
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().data["field"] == "model");
  CHECK_FALSE(open_workload("", gpu("h100")));
  CHECK_FALSE(open_workload("nofamily:1x2x3", gpu("h100")));
  const auto refused = open_workload(fixture("reject-gemma2"), gpu("h100"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::Unsupported);
}

TEST_CASE("ranking leaves out the proof, not the number") {
  for (const char* name : {"toy", "toy#attention", "det_gemm:fwd:256x256x256"}) {
    const auto workload = opened(name, "h200");
    const Json config = workload->default_config();
    CHECK_MESSAGE(workload->rank_us(config).value() == workload->predict_us(config).value(), name);
  }
  // What the proof or the device refuses may have a rank; what cannot be lowered has none.
  const auto toy = opened("toy", "h200");
  Json config = toy->default_config();
  config["smem_bytes_per_block"] = 1 << 20;
  CHECK_FALSE(toy->rank_us(config));
}

TEST_CASE("screening is near the rank, and the same whatever was asked before") {
  const auto deep = opened("smollm2-135m", "h200"), again = opened("smollm2-135m", "h200");
  Json config = deep->default_config();
  const double screened = deep->screen_us(config).value(), ranked = deep->rank_us(config).value();
  CHECK(screened == doctest::Approx(ranked).epsilon(0.01));
  CHECK(deep->screen_us(config).value() == screened);  // although its rank is remembered
  CHECK(again->screen_us(config).value() == screened);
  config["smem_bytes_per_block"] = 1 << 20;
  CHECK_FALSE(deep->screen_us(config));
  for (const char* name : {"toy", "toy#attention", "det_gemm:fwd:256x256x256"}) {  // shallow, or cheap as it is
    const auto workload = opened(name, "h200");
    CHECK_MESSAGE(workload->screen_us(workload->default_config()).value() == workload->rank_us(workload->default_config()).value(), name);
  }
}
