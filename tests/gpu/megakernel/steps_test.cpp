// Several steps in one launch: every one to the bit as the config's program of one step a launch makes it, with a given text and with the token fed
// back on the device; and kernels that get an order between steps wrong, all noticed.
#include <algorithm>
#include <functional>

#include "core/base/json.h"
#include "kernels/megakernel/checked_run.h"
#include "tests/gpu/megakernel/build_all.h"
#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {
namespace {

ScheduleConfig with_steps(ScheduleConfig config, int steps) {
  config.kernel.tokens_per_launch = steps;
  return config;
}

// Of each config the kernel of one step and the one of several, into the build cache.
void build_steps(const GpuModel& model, const std::vector<ScheduleConfig>& configs) {
  std::vector<Build> builds;
  for (const ScheduleConfig& config : configs)
    for (const int steps : {1, 2}) builds.push_back({with_steps(config, steps), {}});
  build_all(model, builds);
}

// The same tokens by one step a launch and by `steps`, and tokens fed back: equal bits, and nothing outside the buffers.
void compare_steps(GpuModel& model, const ScheduleConfig& config, const std::vector<int>& steps, int count, const std::string& name, Checks& checks) {
  auto one = program_of(model, config);
  if (!checks.check(one, name + " builds for one step")) return;
  const std::vector<int> tokens = draw(model.spec(), count, 41);
  const auto expected = run_checked(model, *one, tokens, {});
  if (!checks.check(expected, name + " runs by one step")) return;
  for (const int k : steps) {
    const std::string label = name + ", " + std::to_string(k) + " a launch";
    auto several = program_of(model, with_steps(config, k));
    if (!checks.check(several, label + " builds")) continue;
    for (int turn = 0; turn < 2; ++turn) {
      const auto run = run_checked(model, *several, tokens, {});
      if (!checks.check(run, label + " runs")) break;
      checks.check(run->hashes == expected->hashes && run->next_tokens == expected->next_tokens, label + " has the bits of one step a launch");
      checks.check(run->unwritten == 0 && run->not_finite == 0, label + " writes every output");
    }
    const auto free = run_fed_back(model, *several, 3, count);
    if (checks.check(free, label + " feeds back")) {
      checks.check(free->followed, label + ": every token is the argmax before it");
      const auto told = run_checked(model, *one, free->tokens[0], {});
      checks.check(told && told->hashes == free->hashes[0], label + ": tokens fed back have the bits of the same text, by one step a launch");
    }
    checks.check(keeps_to_buffers(model, *several), label + " keeps to its buffers");
  }
}

void compare_steps_of_batch(GpuModel& model, const ScheduleConfig& config, int steps, const std::string& name, Checks& checks) {
  auto one = program_of(model, config);
  auto several = program_of(model, with_steps(config, steps));
  if (!checks.check(one, name + " builds for one step") || !checks.check(several, name + " builds")) return;
  std::vector<SequenceRun> sequences;
  for (int s = 0; s < model.sequence().batch(); ++s)
    sequences.push_back({draw(model.spec(), 40, 60 + static_cast<std::uint64_t>(s)), {}, 7 * s % 11});
  const auto expected = run_checked_batch(model, *one, sequences);
  const auto run = run_checked_batch(model, *several, sequences);
  if (!checks.check(expected, name + " runs by one step") || !checks.check(run, name + " runs")) return;
  bool same = run->steady && expected->steady, written = true;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    same = same && run->sequences[s].hashes == expected->sequences[s].hashes;
    written = written && run->sequences[s].unwritten == 0 && run->sequences[s].not_finite == 0;
  }
  checks.check(same, name + " has the bits of one step a launch, each sequence at positions of its own");
  checks.check(written, name + " writes every output");
  const auto free = run_fed_back(model, *several, 3, 2 * steps + 1);
  if (!checks.check(free, name + " feeds back")) return;
  std::vector<SequenceRun> told;
  for (const auto& tokens : free->tokens) told.push_back({tokens, {}, 0});
  const auto text = run_checked_batch(model, *one, told);
  bool equal = free->followed && text;
  for (std::size_t s = 0; equal && s < told.size(); ++s) equal = text->sequences[s].hashes == free->hashes[s];
  checks.check(equal, name + ": tokens fed back have the bits of the same text");
}

// Counters and tags start over in the midst of a text.
void test_start_over(GpuModel& model, Checks& checks) {
  const auto built = model.build(with_steps({}, 4));
  if (!checks.check(built, "small builds")) return;
  BuiltCandidate candidate = *built;
  auto program = std::make_shared<Program>(*candidate.program);
  program->max_steps = 10;
  candidate.program = program;
  auto short_lived = model.load(candidate);
  auto one = program_of(model, {});
  const std::vector<int> tokens = draw(model.spec(), 30, 8);
  if (!checks.check(short_lived, "loads") || !checks.check(one, "one step loads")) return;
  const auto run = run_checked(model, *short_lived, tokens, {}), expected = run_checked(model, *one, tokens, {});
  checks.check(run && expected && run->hashes == expected->hashes, "counters that start over every ten steps change nothing");
}

void test_hang(GpuModel& model, Checks& checks) {
  PlanOptions options;
  options.fault_hang = true;
  auto program = program_of(model, with_steps({}, 8), options);
  if (!checks.check(program, "a program that hangs loads")) return;
  program->set_budget_us(100'000);
  StepOptions launch;
  launch.steps = 8;
  const Status status = model.run(*program, launch);
  checks.check(!status && status.error().kind == ErrorKind::Timeout && status.error().data.contains("counter"),
               "it ends by itself and names the counter: " + (status ? std::string() : status.error().message));
  auto good = program_of(model, with_steps({}, 8));
  checks.check(good && model.run(*good, launch), "the launch after it is unharmed");
}

void test_wrong_order(const Bench& bench, GpuModel& model, Checks& checks) {
  const auto combined = config_of(kCombined);
  ScheduleConfig flagged = combined ? *combined : ScheduleConfig{};
  flagged.kernel.publish = Publish::Flagged;
  flagged.page_allocation = PageAllocation::None;  // on shared pages another instruction's tags give away what is a step old
  const auto plain = model.build(with_steps({}, 8)), tagged = model.build(with_steps(flagged, 8));
  auto one = program_of(model, {}), one_flagged = program_of(model, flagged);
  if (!checks.check(plain, "plain builds") || !checks.check(tagged, "flagged builds") || !checks.check(one, "one step") ||
      !checks.check(one_flagged, "one step, flagged"))
    return;
  const std::vector<int> tokens = draw(model.spec(), 40, 12);
  try_changed(
      bench, model, changed_steps(), [&](const ChangedLine& line) -> const BuiltCandidate& { return line.of_flagged ? *tagged : *plain; },
      [&](const ChangedLine& line, DeviceProgram& program) -> std::optional<Seen> {
        DeviceProgram& reference = line.of_flagged ? *one_flagged : *one;
        program.set_budget_us(500'000);
        const auto expected = run_checked(model, reference, tokens, {});
        if (!checks.check(expected, std::string("reference for: ") + line.name)) return std::nullopt;
        const auto run = run_checked(model, program, tokens, {});
        if (!run || run->hashes != expected->hashes || run->unwritten != 0) return Seen{};
        const auto free = run_fed_back(model, program, 3, 17);
        const auto told = free ? run_checked(model, reference, free->tokens[0], {}) : Result<CheckedRun>(CheckedRun{});
        return Seen{free && told && free->followed && told->hashes == free->hashes[0], {}};
      },
      checks);
}

// Greedy decoding by one step a launch and by several: the same tokens, twice.
void test_long_steps(const Bench& bench, Checks& checks) {
  struct Long {
    const char* model;
    int ring;
    Publish publish;
  };
  for (const auto& [name, ring, publish] : {Long{"small", 196608, Publish::Release},
                                            {"smollm2-135m", 131072, Publish::Flagged},
                                            {"smollm2-135m", 131072, Publish::Confirmed},
                                            {"llama-3.2-1b", 180224, Publish::Confirmed}}) {
    if (bench.quick && std::string(name) != "small") continue;
    const int tokens = bench.quick ? 100 : 1000;
    auto model = bench.model(name, std::string(name) == "small" ? 1200 : 1024);
    if (!checks.check(model, std::string(name) + " opens")) continue;
    auto config = config_of(kCombined);
    if (!checks.check(config, "config")) continue;
    config->smem_bytes_per_block = ring;
    config->attention_kv_block = 128;
    config->kernel.publish = publish;
    std::vector<int> expected;
    for (const int steps : {1, 8, 32}) {
      const std::string label = std::string(name) + ", " + std::to_string(steps) + " a launch";
      auto program = program_of(**model, with_steps(*config, steps));
      if (!checks.check(program, label + " loads")) break;
      for (int turn = 0; turn < 2; ++turn) {
        checks.check((*model)->sequence().set_tokens(std::vector<int>(static_cast<std::size_t>(tokens), 7), 0, (*model)->stream()), "tokens set");
        StepOptions launch;
        launch.feed_back = true;
        for (int p = 0; p < tokens; p += launch.steps) {
          launch.position = p;
          launch.steps = std::min(steps, tokens - p);
          if (!checks.check((*model)->enqueue(*program, launch), "launch enqueued")) return;
        }
        checks.check(program->check((*model)->stream()), label + ": no launch ran out of time");
        const auto ids = (*model)->sequence().read_tokens(0, tokens + 1, (*model)->stream());
        if (!checks.check(ids, "tokens read")) return;
        if (expected.empty()) expected = *ids;
        checks.check(*ids == expected, label + ": " + std::to_string(tokens) + " tokens are those of one step a launch");
      }
    }
  }
}

}  // namespace

void test_steps(const Bench& bench, Checks& checks) {
  for (const std::string& path : bench.fixture_models()) {
    if (bench.quick && path.find("gqa") == std::string::npos && path.find("window") == std::string::npos) continue;
    auto model = bench.model(path, 160);
    if (!checks.check(model, path + " opens")) continue;
    const auto config = config_of((*model)->spec().dtype == DType::F32 ? kRowMajor : "{}");
    if (!checks.check(config, "config")) continue;
    build_steps(**model, {*config});
    compare_steps(**model, *config, {2, 4, 8, 16, 32}, 70, std::filesystem::path(path).filename().string(), checks);
  }
  const std::pair<const char*, std::string> configs[] = {
      {"default", "{}"},
      {"unfused", R"({"fusion_grouping":[]})"},
      {"combine in o_proj", kCombined},
      {"one split", R"({"tiling":{"attention":{"kv_block":512}}})"},
      {"row", kRowMajor},
      {"direct", R"({"smem_bytes_per_block":0})"},
      {"cp.async", R"({"kernel_knobs":{"cpasync":true}})"},
      {"confirmed", R"({"kernel_knobs":{"publish":"confirmed"}})"},
      {"flagged, one split", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})"},
      {"flagged, fma, direct, counters per head",
       R"({"smem_bytes_per_block":0,"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged","gemv_path":"fma","counters":"kv_head"}})"},
      {"544 threads, counters per head", R"({"threads_per_block":544,"kernel_knobs":{"counters":"kv_head","cols_per_warp":128}})"},
      {"small ring, no pipelining",
       R"({"smem_bytes_per_block":65536,"pipelining_depth":0,"kernel_knobs":{"chunk_bytes":4096,"cols_per_warp":128,"inflight_chunks":1}})"},
      {"no page reuse", R"({"page_allocation":"none"})"},
  };
  for (const char* name : {"toy", "small", "small@int8"}) {
    if (bench.quick && std::string(name) == "toy") continue;
    auto model = bench.model(name, 300);
    if (!checks.check(model, std::string(name) + " opens")) continue;
    std::vector<ScheduleConfig> all;
    std::vector<std::string> names;
    for (const auto& [what, text] : configs) {
      const auto config = config_of(text);
      if (!checks.check(config, what)) continue;
      if (config->kernel.gemv_path == GemvPath::Fma && std::string(name) == "small@int8") continue;
      if (config->kernel.publish == Publish::Flagged && std::string(name) == "toy") continue;  // needs a head_dim that toy has not
      all.push_back(*config);
      names.push_back(std::string(name) + ", " + what);
    }
    build_steps(**model, all);
    for (std::size_t i = 0; i < all.size(); ++i) compare_steps(**model, all[i], {4}, bench.quick ? 40 : 140, names[i], checks);
    if (std::string(name) != "small") continue;
    test_start_over(**model, checks);
    test_hang(**model, checks);
    test_wrong_order(bench, **model, checks);
  }
  for (const int batch : {3, 8}) {
    auto model = bench.model("small", 300, batch);
    if (!checks.check(model, "small opens for " + std::to_string(batch))) continue;
    for (const char* text : {R"({"smem_bytes_per_block":98304})", R"({"smem_bytes_per_block":98304,"kernel_knobs":{"publish":"confirmed"}})",
                             R"({"smem_bytes_per_block":98304,"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})",
                             R"({"smem_bytes_per_block":98304,"fusion_grouping":[]})"}) {
      const auto config = config_of(text);
      if (!checks.check(config, text)) continue;
      if (bench.quick && config->fusion.norm_qkv == false) continue;
      compare_steps_of_batch(**model, *config, 4, "small@b" + std::to_string(batch) + " " + text, checks);
    }
  }
  test_long_steps(bench, checks);

  // Through the judge and the verbs: gate, timing against one step a launch, and greedy decoding across the end of the prompt.
  const auto workload = bench.workload("small");
  if (!checks.check(workload, "small workload")) return;
  const auto link = bench.process_link();
  const auto judge = bench.judge(*link);
  const auto canonical = [&](const char* text) { return (*workload)->canonical(json_of(text)).value_or(Json(nullptr)); };
  const Json eight = canonical(R"({"kernel_knobs":{"tokens_per_launch":8}})"), one = (*workload)->default_config();
  const auto verdict = judge->judge(**workload, eight, one, {});
  if (checks.check(verdict, "judged"))
    checks.check(verdict->status == VerdictStatus::Ok && verdict->correct && verdict->latency_us && verdict->versus,
                 "eight tokens a launch are ok, and compared: " + verdict->notes);
  const auto several = judge->decode(**workload, eight, {3, 1, 4, 1, 5}, 30, true, {}),
             single = judge->decode(**workload, one, {3, 1, 4, 1, 5}, 30, true, {});
  checks.check(several && single && several->ids == single->ids && several->logits == single->logits,
               "generate gives the tokens and logits of one step a launch");
}

namespace {

void few_steps_in_a_launch(const Bench& bench, Checks& checks, const PlanOptions& options) {
  auto toy = bench.model("toy", 64);
  auto small = bench.model("small", 64);
  if (!checks.check(toy, "toy opens") || !checks.check(small, "small opens")) return;
  const std::vector<int> tokens = {1, 5, 9, 2, 6};
  for (const char* text :
       {"{}", R"({"fusion_grouping":[]})", R"({"smem_bytes_per_block":0})", R"({"kernel_knobs":{"cpasync":true}})",
        R"({"kernel_knobs":{"publish":"confirmed"}})", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})"}) {
    const auto config = config_of(text);
    if (!checks.check(config, text)) continue;
    GpuModel& model = config->kernel.publish == Publish::Flagged ? **small : **toy;
    auto program = program_of(model, with_steps(*config, 2), options);
    if (!checks.check(program, text)) continue;
    program->set_budget_us(60e6);  // under the tool a step takes seconds
    const auto run = run_checked(model, *program, tokens, {});
    if (checks.check(run, text)) checks.check(run->unwritten == 0 && run->not_finite == 0, std::string("all written: ") + text);
    const auto free = run_fed_back(model, *program, 3, 3);
    checks.check(free && free->followed, std::string("fed back: ") + text);
  }
}

void few_steps_of_three_in_a_launch(const Bench& bench, Checks& checks, const PlanOptions& options) {
  auto three = bench.model("toy", 64, 3);
  if (!checks.check(three, "toy opens for three sequences")) return;
  ScheduleConfig config;
  config.smem_bytes_per_block = 98304;
  auto program = program_of(**three, with_steps(config, 2), options);
  if (!checks.check(program, "three sequences")) return;
  program->set_budget_us(60e6);
  const auto run = run_checked_batch(**three, *program, std::vector<SequenceRun>{{{1, 5, 9}, {}, 0}, {{4, 2, 8}, {}, 1}, {{7, 7, 3}, {}, 0}});
  if (!checks.check(run, "three sequences run")) return;
  for (const CheckedRun& s : run->sequences) checks.check(s.unwritten == 0 && s.not_finite == 0, "all written of three");
}

}  // namespace

void test_sanitize_steps(const Bench& bench, Checks& checks) {
  few_steps_in_a_launch(bench, checks, {});
  few_steps_of_three_in_a_launch(bench, checks, {});
}

void test_racecheck_steps(const Bench& bench, Checks& checks) { few_steps_in_a_launch(bench, checks, full_barriers()); }

void test_racecheck_steps_batch(const Bench& bench, Checks& checks) { few_steps_of_three_in_a_launch(bench, checks, full_barriers()); }

}  // namespace amk::gpu_test
