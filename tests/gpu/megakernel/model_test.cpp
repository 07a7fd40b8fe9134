// Good candidates: every fixture, every knob, a long decode.
#include <algorithm>
#include <cstring>
#include <map>

#include "core/base/json.h"
#include "core/reference/forward.h"
#include "kernels/megakernel/checked_run.h"
#include "tests/gpu/megakernel/build_all.h"
#include "tests/gpu/megakernel/checks.h"

namespace amk::gpu_test {
namespace {

const char* kRowMajor = R"({"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})";

// The gate on one program: poisoned runs, twice, against the oracle and native arithmetic.
void gate(GpuModel& model, const GpuReference& reference, const ScheduleConfig& config, const PlanOptions& options, const std::string& name,
          Checks& checks) {
  const auto built = model.build(config, options);
  if (!checks.check(built, name + " builds")) return;
  auto program = model.load(*built);
  if (!checks.check(program, name + " loads")) return;
  const auto first = run_checked(model, *program, reference.tokens(), reference.positions());
  if (!checks.check(first, name + " runs")) return;
  const auto second = run_checked(model, *program, reference.tokens(), {});
  if (!checks.check(second, name + " runs again")) return;
  std::vector<int> next;
  for (const int p : reference.positions()) next.push_back(first->next_tokens[static_cast<std::size_t>(p)]);
  const auto outcome = reference.compare(first->logits, next, first->hashes == second->hashes);
  checks.check(outcome.correct, name + " is correct: " + outcome.failure);
  checks.check(first->unwritten == 0 && first->not_finite == 0, name + " writes every output");
  const auto guards = model.sequence().damaged_guards(model.stream());
  const auto more = program->damaged_guards(model.stream());
  checks.check(guards && more && *guards + *more == 0, name + " keeps to its buffers");
  const auto layout = model.layout_weights(program->plan().layout);
  checks.check(layout && (*layout)->intact(model.stream()).value_or(false), name + " leaves the weights alone");
}

void gate(GpuModel& model, const GpuReference& reference, const ScheduleConfig& config, const std::string& name, Checks& checks) {
  gate(model, reference, config, {}, name, checks);
}

std::shared_ptr<const GpuReference> reference_of(const GpuModel& model, int max_seq, Checks& checks) {
  const auto plan = GpuReference::plan(model.spec(), std::min(max_seq, model.spec().max_position), 11);
  auto reference = GpuReference::create(model.weights(), plan, 5, {});
  checks.check(reference, "reference of " + model.spec().name);
  return reference ? *reference : nullptr;
}

}  // namespace

void test_fixtures(const Bench& bench, Checks& checks) {
  const auto models = bench.fixture_models();
  if (models.empty()) std::printf("no fixtures at %s\n", bench.fixtures.c_str());
  std::vector<std::string> all = models;
  for (const std::string& path : models) {
    if (bench.quick && path.find("gqa") == std::string::npos && path.find("fp16") == std::string::npos && path.find("qknorm") == std::string::npos)
      continue;
    const auto workload = bench.workload(path + "@int8");
    if (workload)
      all.push_back(path + "@int8");
    else
      checks.check(workload.error().kind == ErrorKind::Unsupported, path + "@int8: " + workload.error().message);  // fp32
  }
  for (const std::string& path : all) {
    auto model = bench.model(path, 160);
    if (!checks.check(model, path + " opens")) continue;
    const std::string name = std::filesystem::path(path).filename().string();
    const auto config = config_of((*model)->spec().dtype == DType::F32 ? kRowMajor : "{}");
    if (!checks.check(config, name + " config")) continue;
    const auto reference = reference_of(**model, 160, checks);
    if (reference != nullptr) gate(**model, *reference, *config, name, checks);

    // Greedy decoding, token fed back on the device, against the oracle's, up to where its two best are closer than native arithmetic can tell.
    const auto workload = bench.workload(path);
    if (!checks.check(workload, name + " workload")) continue;
    const auto link = make_local_link();
    const auto judge = bench.judge(*link);
    const std::vector<int> prompt = {3, 1, 4, 1, 5};
    const auto decoded = judge->decode(**workload, to_json(*config), prompt, 12, true, {});
    if (!checks.check(decoded, name + " decodes")) continue;
    Oracle oracle((*model)->weights(), 64);
    std::vector<int> ids = prompt;
    bool same = true;
    for (std::size_t i = 0; i < 16; ++i) {
      const auto logits = oracle.step(ids[i]);
      if (!logits) break;
      if (i + 1 < prompt.size()) continue;
      const int expected = argmax(*logits);
      const int got = decoded->ids[i + 1 - prompt.size()];
      const float gap = (*logits)[static_cast<std::size_t>(expected)] - (*logits)[static_cast<std::size_t>(got)];
      same = same && (got == expected || gap < 0.25f);
      ids.push_back(got);
    }
    checks.check(same && decoded->ids.size() == 12, name + " decodes the oracle's tokens");
  }
}

void test_knobs(const Bench& bench, Checks& checks) {
  const std::pair<const char*, const char*> configs[] = {
      {"default", "{}"},
      {"unfused", R"({"fusion_grouping":[]})"},
      {"combine in o_proj",
       R"({"fusion_grouping":[["norm","qkv","rope","kv_append"],["attention"],["combine","o_proj","add"],["norm","gate_up","silu_mul"],["down","add"],["norm","lm_head","argmax"]]})"},
      {"one split", R"({"tiling":{"attention":{"kv_block":512}}})"},
      {"fma", R"({"kernel_knobs":{"gemv_path":"fma"}})"},
      {"row", kRowMajor},
      {"direct", R"({"smem_bytes_per_block":0})"},
      {"cp.async", R"({"kernel_knobs":{"cpasync":true}})"},
      {"confirmed", R"({"kernel_knobs":{"publish":"confirmed"}})"},
      {"flagged",
       R"({"fusion_grouping":[["norm","qkv","rope","kv_append"],["attention"],["combine","o_proj","add"],["norm","gate_up","silu_mul"],["down","add"],["norm","lm_head","argmax"]],"kernel_knobs":{"publish":"flagged"}})"},
      {"flagged, one split", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})"},
      {"flagged, fma, direct, counters per head",
       R"({"smem_bytes_per_block":0,"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged","gemv_path":"fma","counters":"kv_head"}})"},
      {"flagged, row, 128 threads",
       R"({"threads_per_block":128,"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged","gemv_path":"fma","weight_layout":"row"}})"},
      {"160 threads, round robin", R"({"threads_per_block":160,"tiling":{"gemv":{"N_tile":8}},"sm_assignment":"round_robin"})"},
      {"544 threads, counters per head", R"({"threads_per_block":544,"kernel_knobs":{"counters":"kv_head","cols_per_warp":128}})"},
      {"128 threads", R"({"threads_per_block":128})"},
      {"small ring, no pipelining",
       R"({"smem_bytes_per_block":65536,"pipelining_depth":0,"kernel_knobs":{"chunk_bytes":4096,"cols_per_warp":128,"inflight_chunks":1}})"},
      {"no page reuse", R"({"page_allocation":"none"})"},
      {"wide segments", R"({"kernel_knobs":{"cols_per_warp":512}})"},
  };
  for (const char* name : {"toy", "small", "toy@int8", "small@int8"}) {
    auto model = bench.model(name, 512);
    if (!checks.check(model, std::string(name) + " opens")) continue;
    const auto reference = reference_of(**model, 512, checks);
    if (reference == nullptr) continue;
    const bool int8 = (*model)->spec().weight_format == WeightFormat::Int8;
    std::vector<std::pair<std::string, ScheduleConfig>> taken;
    std::vector<Build> builds;
    for (const auto& [what, text] : configs) {
      if (bench.quick && std::string(name).starts_with("toy")) continue;
      const auto config = config_of(text);
      if (!checks.check(config, what)) continue;
      if (config->kernel.gemv_path == GemvPath::Fma && int8) continue;
      if (config->kernel.publish == Publish::Flagged && (*model)->spec().head_dim < 32) continue;  // refused: toy's heads are too short
      // Of int8 what its products depend on; all of them when there is time.
      constexpr std::string_view kQuick[] = {"default",   "combine in o_proj", "direct",      "cp.async",
                                             "confirmed", "flagged",           "128 threads", "wide segments"};
      if (bench.quick && int8 && std::find(std::begin(kQuick), std::end(kQuick), what) == std::end(kQuick)) continue;
      taken.emplace_back(what, *config);
      builds.push_back({*config, {}});
    }
    build_all(**model, builds);
    for (const auto& [what, config] : taken) gate(**model, *reference, config, std::string(name) + ", " + what, checks);
  }
}

namespace {
bool decode_twice(GpuModel& model, const std::string& label, const ScheduleConfig& config, int tokens, Checks& checks);
}

// gemv_path "slices": every fixture that it takes, and what decides its code: warps (blocks of columns a warp, warps without any), groups of units,
// splits, rows of a task.
void test_slices(const Bench& bench, Checks& checks) {
  const auto variant = [&](const char* rest) {
    auto config = config_of(std::string("{") + rest + "}");
    if (checks.check(config, rest)) {
      config->fusion.combine_o = true;
      if (std::string_view(rest).find("smem_bytes_per_block") == std::string_view::npos) config->smem_bytes_per_block = 0;
      config->kernel.publish = Publish::Flagged;
      config->kernel.gemv_path = GemvPath::Slices;
    }
    return config;
  };
  int taken = 0;
  for (const std::string& path : bench.fixture_models()) {
    auto model = bench.model(path, 160);
    if (!checks.check(model, path + " opens")) continue;
    const ModelSpec& spec = (*model)->spec();
    if (spec.dtype != DType::BF16 || spec.qk_norm || spec.head_dim % 32 != 0 || spec.head_dim > 128 || spec.intermediate % 8 != 0) continue;
    const auto reference = reference_of(**model, 160, checks);
    if (reference == nullptr) continue;
    ++taken;
    for (const char* rest : {R"("tiling":{"attention":{"kv_block":64}},"threads_per_block":384)", R"("threads_per_block":160)"})
      if (const auto config = variant(rest))
        gate(**model, *reference, *config, std::filesystem::path(path).filename().string() + ", " + rest, checks);
  }
  checks.check(taken > 0 || bench.fixture_models().empty(), "some fixture is taken");
  auto model = bench.model("small", 1200);
  if (!checks.check(model, "small opens")) return;
  if (const auto reference = reference_of(**model, 1200, checks)) {
    for (const char* rest :
         {R"("threads_per_block":384)", R"("threads_per_block":416,"tiling":{"attention":{"kv_block":64},"gemv":{"N_tile":8}})",
          R"("threads_per_block":544,"tiling":{"attention":{"kv_block":128}})", R"("threads_per_block":1024)", R"("threads_per_block":128)",
          R"("threads_per_block":192,"tiling":{"attention":{"kv_block":512},"gemv":{"N_tile":512}})",
          R"("threads_per_block":384,"sm_assignment":"round_robin","page_allocation":"none","tiling":{"gemv":{"N_tile":24}})",
          R"("threads_per_block":384,"page_allocation":"linear","kernel_knobs":{"counters":"kv_head"})",
          R"("threads_per_block":384,"smem_bytes_per_block":65536,"tiling":{"gemv":{"N_tile":8}})",
          R"("threads_per_block":416,"smem_bytes_per_block":65536,"pipelining_depth":0,"kernel_knobs":{"chunk_bytes":32768,"inflight_chunks":1})",
          R"("threads_per_block":160,"smem_bytes_per_block":98304,"tiling":{"gemv":{"N_tile":512}},"kernel_knobs":{"cpasync":true,"cpa_cols":1024})"})
      if (const auto config = variant(rest)) gate(**model, *reference, *config, std::string("small, slices, ") + rest, checks);
  }
  auto smollm = bench.model("smollm2-135m", 1024);
  if (!checks.check(smollm, "smollm2-135m opens")) return;
  for (
      const char* rest :
      {R"("threads_per_block":384,"smem_bytes_per_block":163840,"tiling":{"attention":{"kv_block":128},"gemv":{"N_tile":8}},"kernel_knobs":{"chunk_bytes":32768})",
       R"("threads_per_block":416,"tiling":{"attention":{"kv_block":64},"gemv":{"N_tile":8}})"})
    if (const auto config = variant(rest))
      if (!decode_twice(**smollm, std::string("smollm2-135m, slices, ") + rest, *config, bench.quick ? 100 : 1000, checks)) return;
}

// Attention and o_proj in one instruction: every fixture that it takes; and what decides its code: warps (with and without a tile, with and without a
// unit), rows of a task (units a warp), cache rows in shared memory (all, none, some), a ring or none.
void test_attention_o(const Bench& bench, Checks& checks) {
  const auto variant = [&](const char* rest) {
    auto config = config_of(std::string("{") + rest + "}");
    if (checks.check(config, rest)) {
      config->fusion.attention_combine = config->fusion.combine_o = true;
      if (std::string_view(rest).find("smem_bytes_per_block") == std::string_view::npos) config->smem_bytes_per_block = 0;
      config->kernel.publish = Publish::Flagged;
      config->kernel.gemv_path = GemvPath::Slices;
    }
    return config;
  };
  int taken = 0;
  for (const std::string& path : bench.fixture_models()) {
    auto model = bench.model(path, 160);
    if (!checks.check(model, path + " opens")) continue;
    const ModelSpec& spec = (*model)->spec();
    if (spec.dtype != DType::BF16 || spec.qk_norm || spec.head_dim % 32 != 0 || spec.head_dim > 128 || spec.intermediate % 8 != 0) continue;
    if (spec.kv_heads > 4 || spec.gqa() * spec.head_dim % 64 != 0) continue;
    const auto reference = reference_of(**model, 160, checks);
    if (reference == nullptr) continue;
    ++taken;
    for (const char* rest : {R"("threads_per_block":384)", R"("threads_per_block":160)"})
      if (const auto config = variant(rest))
        gate(**model, *reference, *config, {}, std::filesystem::path(path).filename().string() + ", attention_o, " + rest, checks);
  }
  checks.check(taken > 0 || bench.fixture_models().empty(), "some fixture is taken");
  auto model = bench.model("small", 1200);
  if (!checks.check(model, "small opens")) return;
  if (const auto reference = reference_of(**model, 1200, checks)) {
    std::vector<std::string> names;
    std::vector<Build> builds;
    for (const auto& [rest, staged] :
         {std::pair{R"("threads_per_block":384)", 0},
          {R"("threads_per_block":384)", 512},
          {R"("threads_per_block":352,"tiling":{"gemv":{"N_tile":8}})", 160},
          {R"("threads_per_block":1024)", 0},
          {R"("threads_per_block":128,"tiling":{"gemv":{"N_tile":512}})", 48},
          {R"("threads_per_block":192,"sm_assignment":"round_robin","page_allocation":"none")", 16},
          {R"("threads_per_block":384,"page_allocation":"linear","kernel_knobs":{"counters":"kv_head"})", 0},
          {R"("threads_per_block":352,"smem_bytes_per_block":65536,"tiling":{"gemv":{"N_tile":8}})", 0},
          {R"("threads_per_block":352,"smem_bytes_per_block":98304,"kernel_knobs":{"cpasync":true,"cpa_cols":1024})", 0}}) {
      const auto config = variant(rest);
      if (!config) continue;
      names.push_back(std::string("small, attention_o, ") + rest + ", staged " + std::to_string(staged));
      builds.push_back({*config, {}});
      builds.back().options.staged_rows = staged;
    }
    build_all(**model, builds);
    for (std::size_t i = 0; i < builds.size(); ++i) gate(**model, *reference, builds[i].config, builds[i].options, names[i], checks);
  }
  auto smollm = bench.model("smollm2-135m", 1024);
  if (!checks.check(smollm, "smollm2-135m opens")) return;
  for (const char* rest :
       {R"("threads_per_block":352,"smem_bytes_per_block":65536,"tiling":{"gemv":{"N_tile":8}},"kernel_knobs":{"chunk_bytes":32768})",
        R"("threads_per_block":384,"tiling":{"gemv":{"N_tile":8}})"})
    if (const auto config = variant(rest))
      if (!decode_twice(**smollm, std::string("smollm2-135m, attention_o, ") + rest, *config, bench.quick ? 100 : 1000, checks)) return;
}

// Positions up to 4,095: warps take several tiles of a split in turn, every split is awake, and the combine reads more of them than one trip brings.
void test_contexts(const Bench& bench, Checks& checks) {
  constexpr int kTokens = 4096;
  auto model = bench.model("small", kTokens);
  if (!checks.check(model, "small opens")) return;
  GpuReference::Plan plan;
  plan.tokens = bench.quick ? 1400 : kTokens;
  for (const int p : {0, 15, 16, 127, 128, 129, 511, 512, 640, 1023, 1024, 1155, 1399, 2047, 2048, 2303, 3000, 3583, 4000, 4094, 4095})
    if (p < plan.tokens) plan.positions.push_back(p);
  const auto reference = GpuReference::create((*model)->weights(), plan, 7, {});
  if (!checks.check(reference, "reference of small")) return;
  const std::string fused =
      R"("fusion_grouping":[["norm","qkv","rope","kv_append"],["attention"],["combine","o_proj","add"],["norm","gate_up","silu_mul"],["down","add"],["norm","lm_head","argmax"]])";
  const std::pair<const char*, std::string> configs[] = {
      {"blocks of 64", R"({"tiling":{"attention":{"kv_block":64}}})"},
      {"blocks of 512", R"({"tiling":{"attention":{"kv_block":512}}})"},
      {"blocks of 64, combine in o_proj", R"({"tiling":{"attention":{"kv_block":64}},)" + fused + "}"},
      {"blocks of 512, confirmed", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"confirmed"}})"},
      {"blocks of 128, flagged", R"({"tiling":{"attention":{"kv_block":128}},"kernel_knobs":{"publish":"flagged"},)" + fused + "}"},
      {"blocks of 512, 128 threads", R"({"tiling":{"attention":{"kv_block":512}},"threads_per_block":128})"},
      {"blocks of 256, 416 threads", R"({"tiling":{"attention":{"kv_block":256}},"threads_per_block":416})"},
      {"blocks of 512, 544 threads", R"({"tiling":{"attention":{"kv_block":512}},"threads_per_block":544})"},
      {"blocks of 64, at most four splits, combine in o_proj", R"({"tiling":{"attention":{"kv_block":64,"max_splits":4}},)" + fused + "}"},
      {"blocks of 64, slices",
       R"({"tiling":{"attention":{"kv_block":64}},"threads_per_block":384,"smem_bytes_per_block":0,"kernel_knobs":{"publish":"flagged","gemv_path":"slices"},)" +
           fused + "}"},
      {"blocks of 512, scalar", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})"},
  };
  for (const auto& [what, text] : configs) {
    const auto config = config_of(text);
    if (checks.check(config, what))
      gate(**model, **reference, *config, std::string("small, ") + std::to_string(plan.tokens) + " positions, " + what, checks);
  }
}

namespace {

void few_steps(const Bench& bench, Checks& checks, const PlanOptions& options) {
  auto toy = bench.model("toy", 64);
  auto small = bench.model("small", 64);  // for "flagged", which needs a head_dim that toy has not
  auto int8 = bench.model("small@int8", 64);
  if (!checks.check(toy, "toy opens") || !checks.check(small, "small opens") || !checks.check(int8, "small@int8 opens")) return;
  const std::vector<int> tokens = {1, 5, 9, 2};
  for (
      const char* text :
      {"{}", R"({"fusion_grouping":[]})", kRowMajor, R"({"kernel_knobs":{"gemv_path":"fma"}})", R"({"smem_bytes_per_block":0})",
       R"({"kernel_knobs":{"cpasync":true}})", R"({"kernel_knobs":{"publish":"confirmed"}})",
       R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})",
       R"({"tiling":{"attention":{"kv_block":512}},"threads_per_block":384,"smem_bytes_per_block":0,"kernel_knobs":{"publish":"flagged","gemv_path":"slices"}})",
       R"({"tiling":{"attention":{"kv_block":512}},"threads_per_block":384,"smem_bytes_per_block":65536,"kernel_knobs":{"publish":"flagged","gemv_path":"slices"}})",
       R"({"fusion_grouping":[["norm","qkv","rope","kv_append"],["attention"],["combine","o_proj","add"],["norm","gate_up","silu_mul"],["down","add"],["norm","lm_head","argmax"]]})"}) {
    const auto config = config_of(text);
    if (!checks.check(config, text)) continue;
    const auto on = [&](GpuModel& model) {
      const auto built = model.build(*config, options);
      if (!checks.check(built, text)) return;
      auto program = model.load(*built);
      if (!checks.check(program, text)) return;
      program->set_budget_us(60e6);  // under the tool a step takes seconds
      const auto run = run_checked(model, *program, tokens, {});
      if (checks.check(run, text)) checks.check(run->unwritten == 0 && run->not_finite == 0, std::string("all written: ") + text);
    };
    on(config->kernel.publish == Publish::Flagged ? **small : **toy);
    if (config->kernel.gemv_path == GemvPath::Mma) on(**int8);
  }
}

}  // namespace

void test_sanitize(const Bench& bench, Checks& checks) { few_steps(bench, checks, {}); }

void test_racecheck(const Bench& bench, Checks& checks) {
  PlanOptions options;
  options.full_barriers = true;
  few_steps(bench, checks, options);
}

// Attention and o_proj in one instruction: as many steps as bring cache rows to shared memory, and a second round of tiles.
namespace {

void attention_o_steps(const Bench& bench, Checks& checks, const PlanOptions& options) {
  auto small = bench.model("small", 64);
  if (!checks.check(small, "small opens")) return;
  const std::vector<int> tokens(50, 3);
  for (const char* text : {R"({"threads_per_block":128,"smem_bytes_per_block":0,)", R"({"threads_per_block":352,"smem_bytes_per_block":65536,)"}) {
    const auto config = config_of(
        std::string(text) +
        R"("fusion_grouping":[["norm","qkv","rope","kv_append"],["attention","combine","o_proj","add"],["norm","gate_up","silu_mul"],["down","add"],["norm","lm_head","argmax"]],)" +
        R"("kernel_knobs":{"publish":"flagged","gemv_path":"slices"}})");
    if (!checks.check(config, text)) continue;
    const auto built = (*small)->build(*config, options);
    if (!checks.check(built, text)) continue;
    auto program = (*small)->load(*built);
    if (!checks.check(program, text)) continue;
    program->set_budget_us(60e6);
    const auto run = run_checked(**small, *program, tokens, {});
    if (checks.check(run, text)) checks.check(run->unwritten == 0 && run->not_finite == 0, std::string("all written: ") + text);
  }
}

}  // namespace

void test_sanitize_attention_o(const Bench& bench, Checks& checks) { attention_o_steps(bench, checks, {}); }

void test_racecheck_attention_o(const Bench& bench, Checks& checks) {
  PlanOptions options;
  options.full_barriers = true;
  attention_o_steps(bench, checks, options);
}

// Greedy decoding, each token fed back on the device, twice over: the same tokens, whatever the timing was.
namespace {

const std::pair<const char*, const char*> kLongConfigs[] = {
    {"default", "{}"},
    {"confirmed", R"({"tiling":{"gemv":{"N_tile":8},"attention":{"kv_block":128}},"kernel_knobs":{"publish":"confirmed"}})"},
    {"flagged", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})"},
};

// `tokens` decoded twice from one first token, each fed back on the device: the same ids, and the same bits of the last logits, in which every row of
// the cache has its part. False: the machine cannot go on.
bool decode_twice(GpuModel& model, const std::string& label, const ScheduleConfig& config, int tokens, Checks& checks) {
  const auto built = model.build(config);
  if (!checks.check(built, label + " builds")) return true;
  auto program = model.load(*built);
  if (!checks.check(program, label + " loads")) return true;
  std::vector<std::vector<int>> ids_of;
  std::vector<std::vector<float>> logits_of;
  for (int run = 0; run < 2; ++run) {
    checks.check(model.sequence().poison_kv(model.stream()), "cache poisoned");
    checks.check(model.sequence().set_tokens(std::vector<int>{7}, 0, model.stream()), "tokens set");
    for (int p = 0; p < tokens; ++p) {
      if (!checks.check(model.enqueue(*program, {p, true}), "step enqueued")) return false;
    }
    checks.check(program->check(model.stream()), "no launch ran out of time");
    auto ids = model.sequence().read_tokens(0, tokens + 1, model.stream());
    auto logits = model.sequence().read_logits(model.stream());
    if (!checks.check(ids, "tokens read") || !checks.check(logits, "logits read")) return false;
    ids_of.push_back(std::move(*ids));
    logits_of.push_back(std::move(*logits));
  }
  checks.check(ids_of[0] == ids_of[1], label + ": " + std::to_string(tokens) + " tokens are the same twice");
  checks.check(std::memcmp(logits_of[0].data(), logits_of[1].data(), logits_of[0].size() * sizeof(float)) == 0,
               label + ": the last logits are the same in every bit");
  return true;
}

}  // namespace

void test_long(const Bench& bench, Checks& checks) {
  for (const char* name : {"toy", "small", "smollm2-135m", "llama-3.2-1b", "llama-3.1-8b"}) {
    if (bench.quick && std::string(name) != "small") continue;
    auto model = bench.model(name, std::string(name) == "small" ? 1200 : 1024);
    if (!checks.check(model, std::string(name) + " opens")) continue;
    for (const auto& [what, text] : kLongConfigs) {
      auto config = config_of(text);
      if (!checks.check(config, what)) continue;
      if (config->kernel.publish == Publish::Flagged && std::string(name) == "toy") continue;  // needs a head_dim that toy has not
      if (config->kernel.publish == Publish::Flagged) config->fusion.combine_o = true;
      if (std::string(name) == "smollm2-135m" || std::string(name) == "llama-3.1-8b")
        config->smem_bytes_per_block = 163840;  // long queues, or long vectors, beside the ring
      if (!decode_twice(**model, std::string(name) + ", " + what, *config, bench.quick ? 100 : 1000, checks)) return;
    }
  }
}

void test_longest(const Bench& bench, Checks& checks) {
  constexpr int kTokens = 10'000;
  auto model = bench.model("llama-3.2-1b", kTokens + 240);
  if (!checks.check(model, "llama-3.2-1b opens")) return;
  for (const auto& [what, text] : kLongConfigs) {
    auto config = config_of(text);
    if (!checks.check(config, what)) continue;
    if (config->kernel.publish == Publish::Flagged) config->fusion.combine_o = true;
    if (!decode_twice(**model, std::string("llama-3.2-1b, ") + what, *config, kTokens, checks)) return;
  }
}

}  // namespace amk::gpu_test
