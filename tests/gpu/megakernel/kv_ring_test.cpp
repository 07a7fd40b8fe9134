// The cache through the ring (kernel_knobs.kv_path "ring") against the warps' own loads: the same tiles in the same order, and so the same bits,
// wherever a row came from; against the oracle too. Short contexts take the ring only as these tests ask for it (PlanOptions::cache_ring_from).
#include <algorithm>
#include <cstring>

#include "kernels/megakernel/checked_run.h"
#include "tests/gpu/megakernel/build_all.h"
#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {
namespace {

ScheduleConfig with_path(ScheduleConfig config, KvPath path) {
  config.kernel.kv_path = path;
  return config;
}

PlanOptions from_row(int row, int batch = 0) {
  PlanOptions options;
  options.cache_ring_from = row;
  options.batch = batch;
  return options;
}

// A text by the warps' own loads and, twice, through the ring. `reference`: also against the oracle.
void compare_ring(GpuModel& model, const ScheduleConfig& config, const PlanOptions& options, const std::vector<int>& tokens,
                  const GpuReference* reference, const std::string& name, Checks& checks) {
  PlanOptions own = options;
  own.cache_ring_from = 0;
  auto direct = program_of(model, with_path(config, KvPath::Direct), own);
  auto ring = program_of(model, with_path(config, KvPath::Ring), options);
  if (!checks.check(direct, name + " builds for own loads") || !checks.check(ring, name + " builds")) return;
  const auto expected = run_checked(model, *direct, tokens, {});
  if (!checks.check(expected, name + " runs by own loads")) return;
  std::vector<int> positions;
  if (reference != nullptr) positions = reference->positions();
  const auto first = run_checked(model, *ring, tokens, positions);
  const auto second = run_checked(model, *ring, tokens, {});
  if (!checks.check(first, name + " runs") || !checks.check(second, name + " runs again")) return;
  std::size_t equal = 0;
  for (std::size_t p = 0; p < tokens.size(); ++p) equal += first->hashes[p] == expected->hashes[p] ? 1 : 0;
  checks.check(equal == tokens.size(), name + " has the bits of own loads at " + std::to_string(equal) + " of " + std::to_string(tokens.size()));
  checks.check(first->hashes == second->hashes, name + " is the same twice");
  checks.check(first->unwritten == 0 && first->not_finite == 0, name + " writes every output");
  checks.check(keeps_to_buffers(model, *ring), name + " keeps to its buffers");
  if (reference == nullptr) return;
  std::vector<int> next;
  for (const int p : positions) next.push_back(first->next_tokens[static_cast<std::size_t>(p)]);
  const auto outcome = reference->compare(first->logits, next, first->hashes == second->hashes);
  checks.check(outcome.correct, name + " is correct: " + outcome.failure);
}

// Several steps a launch, whose first position bounds what the ring brings: the bits of one step a launch.
void compare_ring_steps(GpuModel& model, ScheduleConfig config, int steps, const std::string& name, Checks& checks) {
  config = with_path(config, KvPath::Ring);
  auto one = program_of(model, with_path(config, KvPath::Direct));
  config.kernel.tokens_per_launch = steps;
  auto several = program_of(model, config, from_row(1));
  if (!checks.check(one, name + " builds for one step") || !checks.check(several, name + " builds")) return;
  const std::vector<int> tokens = draw(model.spec(), 400, 43);
  const auto expected = run_checked(model, *one, tokens, {});
  const auto run = run_checked(model, *several, tokens, {});
  if (!checks.check(expected, name + " runs by one step") || !checks.check(run, name + " runs")) return;
  checks.check(run->hashes == expected->hashes, name + " has the bits of one step a launch by own loads");
  const auto free = run_fed_back(model, *several, 3, 300);
  if (!checks.check(free, name + " feeds back")) return;
  const auto told = run_checked(model, *one, free->tokens[0], {});
  checks.check(free->followed && told && told->hashes == free->hashes[0], name + ": tokens fed back have the bits of the same text");
}

void compare_ring_batch(GpuModel& model, const ScheduleConfig& config, int batch, int tokens, const std::string& name, Checks& checks) {
  auto together = program_of(model, with_path(config, KvPath::Ring), from_row(1, batch));
  auto alone = program_of(model, with_path(config, KvPath::Direct), from_row(0, 1));
  if (!checks.check(together, name + " builds") || !checks.check(alone, name + " builds for one sequence")) return;
  std::vector<SequenceRun> sequences;
  for (int s = 0; s < batch; ++s) sequences.push_back({draw(model.spec(), tokens, 70 + static_cast<std::uint64_t>(s)), {}, 7 * s % 11 + 3 * s});
  const auto run = run_checked_batch(model, *together, sequences);
  if (!checks.check(run, name + " runs")) return;
  bool same = run->steady, written = true;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const auto single = run_checked(model, *alone, sequences[s].tokens, {}, static_cast<int>(s));
    same = same && single && single->hashes == run->sequences[s].hashes;
    written = written && run->sequences[s].unwritten == 0 && run->sequences[s].not_finite == 0;
  }
  checks.check(same, name + ": each sequence has the bits that it has alone by own loads");
  checks.check(written, name + " writes every output");
  checks.check(keeps_to_buffers(model, *together), name + " keeps to its buffers");
}

// None of them may look right.
void test_wrong_rows(const Bench& bench, GpuModel& model, Checks& checks) {
  // Two groups of 32 rows to a block.
  const auto config = config_of(R"({"smem_bytes_per_block":98304,"kernel_knobs":{"chunk_bytes":4096,"cols_per_warp":128}})");
  if (!checks.check(config, "config")) return;
  auto one = program_of(model, *config);
  const auto built = model.build(with_path(*config, KvPath::Ring), from_row(1));
  if (!checks.check(one, "own loads") || !checks.check(built, "ring")) return;
  const std::vector<int> tokens = draw(model.spec(), 200, 12);
  const auto expected = run_checked(model, *one, tokens, {});
  if (!checks.check(expected, "own loads run")) return;
  try_changed(
      bench, model, changed_ring_rows(), [&](const ChangedLine&) -> const BuiltCandidate& { return *built; },
      [&](const ChangedLine&, DeviceProgram& program) {
        program.set_budget_us(500'000);
        const auto run = run_checked(model, program, tokens, {});
        return Seen{run && run->hashes == expected->hashes && run->unwritten == 0, {}};
      },
      checks);
}

const std::pair<const char*, std::string> kRingConfigs[] = {
    {"default", "{}"},
    {"combine in o_proj, confirmed, blocks of 128",
     R"({"tiling":{"attention":{"kv_block":128}},"kernel_knobs":{"publish":"confirmed"},)" + kCombineInO + "}"},
    {"blocks of 512", R"({"tiling":{"attention":{"kv_block":512}}})"},
    {"blocks of 256, flagged", R"({"tiling":{"attention":{"kv_block":256}},"kernel_knobs":{"publish":"flagged"},)" + kCombineInO + "}"},
    {"128 threads, blocks of 512", R"({"threads_per_block":128,"tiling":{"attention":{"kv_block":512}}})"},
    {"544 threads, counters per head", R"({"threads_per_block":544,"kernel_knobs":{"counters":"kv_head","cols_per_warp":128}})"},
    {"cp.async", R"({"kernel_knobs":{"cpasync":true}})"},
    {"chunks of 8 KB, no pipelining, one in flight",
     R"({"smem_bytes_per_block":98304,"pipelining_depth":0,"kernel_knobs":{"chunk_bytes":8192,"cols_per_warp":128,"inflight_chunks":1}})"},
    {"unfused, chunks of 32 KB", R"({"fusion_grouping":[],"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"chunk_bytes":32768}})"},
};

void few_ring_steps(const Bench& bench, Checks& checks, bool full_barriers, KvPath path = KvPath::Ring) {
  auto model = bench.model("small", 128);
  if (!checks.check(model, "small opens")) return;
  for (const char* text : {R"({"kernel_knobs":{"kv_path":"ring"}})", R"({"kernel_knobs":{"kv_path":"ring","cpasync":true}})",
                           R"({"kernel_knobs":{"kv_path":"ring","tokens_per_launch":4}})"}) {
    const auto config = config_of(text);
    if (!checks.check(config, text)) continue;
    PlanOptions options = from_row(1);
    options.full_barriers = full_barriers;
    auto program = program_of(**model, with_path(*config, path), options);
    if (!checks.check(program, text)) continue;
    program->set_budget_us(60e6);  // under the tool a step takes seconds
    // Rows of a text that nobody computed: finite ones, so that what the steps make of them is finite too.
    GpuModel& m = **model;
    const ModelSpec& spec = m.spec();
    const std::vector<std::byte> rows(static_cast<std::size_t>(spec.kv_rows()) * 128 * 2);
    bool given = true;
    for (int layer = 0; layer < spec.layers; ++layer)
      for (const bool values : {false, true}) given = given && m.sequence().write_cache(layer, values, 0, rows, m.stream());
    checks.check(given, "the cache is written");
    checks.check(m.sequence().set_tokens(std::vector<int>(128, 5), 0, m.stream()), "tokens set");
    StepOptions step;
    step.position = 100;
    step.steps = config->kernel.tokens_per_launch;
    for (int n = 0; n < 2; ++n) {
      checks.check(m.run(*program, step).has_value(), std::string(text) + " runs");
      step.position += step.steps;
    }
    const auto logits = m.sequence().read_logits(m.stream());
    checks.check(logits && std::all_of(logits->begin(), logits->end(), [](float v) { return v - v == 0; }), std::string("all finite: ") + text);
  }
}

}  // namespace

void test_kv_ring(const Bench& bench, Checks& checks) {
  std::vector<ScheduleConfig> configs;
  for (const auto& [what, text] : kRingConfigs) {
    const auto config = config_of(text);
    if (!checks.check(config, what)) return;
    configs.push_back(*config);
  }
  {  // thousands of positions, as the config itself takes the ring
    const int tokens = bench.quick ? 1400 : 4096;
    auto model = bench.model("small", tokens);
    if (!checks.check(model, "small opens")) return;
    GpuReference::Plan plan;
    plan.tokens = tokens;
    for (const int p : {0, 15, 16, 127, 128, 511, 512, 640, 1023, 1024, 1155, 1399, 2047, 2048, 3000, 3583, 4000, 4095})
      if (p < tokens) plan.positions.push_back(p);
    const auto reference = GpuReference::create((*model)->weights(), plan, 7, {});
    if (!checks.check(reference, "reference of small")) return;
    std::vector<Build> builds;
    for (const ScheduleConfig& c : configs) {
      builds.push_back({with_path(c, KvPath::Direct), {}});
      builds.push_back({with_path(c, KvPath::Ring), from_row(1)});
    }
    for (const std::size_t i : {2, 4}) builds.push_back({with_path(configs[i], KvPath::Ring), {}});
    build_all(**model, builds);
    for (std::size_t i = 0; i < configs.size(); ++i)
      compare_ring(**model, configs[i], from_row(1), (*reference)->tokens(), reference->get(), std::string("small, ") + kRingConfigs[i].first,
                   checks);
    for (const std::size_t i : {2, 4})
      compare_ring(**model, configs[i], from_row(0), (*reference)->tokens(), reference->get(),
                   std::string("small, as measured best, ") + kRingConfigs[i].first, checks);
  }
  for (const std::string& path : bench.fixture_models()) {
    auto model = bench.model(path, 512);
    if (!checks.check(model, path + " opens")) continue;
    const ModelSpec& spec = (*model)->spec();
    const std::string name = std::filesystem::path(path).filename().string();
    if (spec.dtype != DType::BF16 || spec.head_dim % 32 != 0 || spec.head_dim > 128 || spec.gqa() > 8) {
      auto config = ScheduleConfig{};
      if (spec.dtype == DType::F32) config = *config_of(R"({"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})");
      const auto built = (*model)->build(with_path(config, KvPath::Ring));
      checks.check(!built && built.error().data.value("rule", "") == "kv-ring-needs-mma-attention", name + " is refused by name");
      continue;
    }
    build_all(**model, {{configs[0], {}}, {with_path(configs[0], KvPath::Ring), from_row(1)}});
    const auto reference = GpuReference::create((*model)->weights(), GpuReference::plan(spec, 512, 11), 5, {});
    if (checks.check(reference, "reference of " + name))
      compare_ring(**model, configs[0], from_row(1), (*reference)->tokens(), reference->get(), name, checks);
  }
  for (const char* name : {"llama-3.2-1b", "qwen3-0.6b"}) {  // heads of 64 and of 128, all SMs
    auto model = bench.model(name, 640);
    if (!checks.check(model, std::string(name) + " opens")) continue;
    const auto config = config_of(R"({"smem_bytes_per_block":131072,"tiling":{"attention":{"kv_block":128}}})");
    if (!checks.check(config, "config")) continue;
    build_all(**model, {{*config, {}}, {with_path(*config, KvPath::Ring), from_row(1)}});
    compare_ring(**model, *config, from_row(1), draw((*model)->spec(), bench.quick ? 300 : 600, 9), nullptr, name, checks);
  }
  {
    auto model = bench.model("small", 512);
    if (!checks.check(model, "small opens")) return;
    std::vector<Build> builds;
    for (const std::size_t i : {0, 3}) {
      builds.push_back({configs[i], {}});
      builds.push_back({with_path(configs[i], KvPath::Ring), from_row(1)});
      builds.back().config.kernel.tokens_per_launch = 8;  // all numbers share a kernel
    }
    build_all(**model, builds);
    for (const int steps : {2, 8, 32}) compare_ring_steps(**model, configs[0], steps, "small, " + std::to_string(steps) + " a launch", checks);
    compare_ring_steps(**model, configs[3], 8, "small, flagged, 8 a launch", checks);
    test_wrong_rows(bench, **model, checks);
  }
  for (const int batch : {3, 8}) {
    auto model = bench.model("small", 512, batch);
    if (!checks.check(model, "small opens for several")) continue;
    std::vector<std::pair<const char*, ScheduleConfig>> several;
    std::vector<Build> builds;
    for (const char* text : {R"({"smem_bytes_per_block":98304})", R"({"smem_bytes_per_block":98304,"tiling":{"attention":{"kv_block":128}}})",
                             R"({"smem_bytes_per_block":98304,"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})"}) {
      const auto config = config_of(text);
      if (!checks.check(config, text)) continue;
      several.emplace_back(text, *config);
      builds.push_back({*config, from_row(0, 1)});
      builds.push_back({with_path(*config, KvPath::Ring), from_row(1, batch)});
    }
    build_all(**model, builds);
    for (const auto& [text, config] : several)
      compare_ring_batch(**model, config, batch, 300, "small@b" + std::to_string(batch) + " " + text, checks);
  }
}

void test_sanitize_kv_ring(const Bench& bench, Checks& checks) { few_ring_steps(bench, checks, false); }
void test_racecheck_kv_ring(const Bench& bench, Checks& checks) { few_ring_steps(bench, checks, true); }
void test_racecheck_kv_direct(const Bench& bench, Checks& checks) { few_ring_steps(bench, checks, true, KvPath::Direct); }

}  // namespace amk::gpu_test
