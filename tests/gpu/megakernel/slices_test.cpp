// gemv_path "slices", and attention and o_proj in one instruction on top of it.
#include <span>

#include "tests/gpu/megakernel/build_all.h"
#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {
namespace {

// Of what a config sets besides; without a ring unless it says so.
Result<ScheduleConfig> of_slices(const char* rest, bool attention_o, Checks& checks) {
  auto config = config_of(std::string("{") + rest + "}");
  if (!checks.check(config, rest)) return config;
  config->fusion.attention_combine = attention_o;
  config->fusion.combine_o = true;
  if (std::string_view(rest).find("smem_bytes_per_block") == std::string_view::npos) config->smem_bytes_per_block = 0;
  config->kernel.publish = Publish::Flagged;
  config->kernel.gemv_path = GemvPath::Slices;
  return config;
}

// Every fixture that slices take, by the gate.
void test_slices_fixtures(const Bench& bench, bool attention_o, std::span<const char* const> configs, Checks& checks) {
  int taken = 0;
  for (const std::string& path : bench.fixture_models()) {
    auto model = bench.model(path, 160);
    if (!checks.check(model, path + " opens")) continue;
    const ModelSpec& spec = (*model)->spec();
    if (spec.dtype != DType::BF16 || spec.qk_norm || spec.head_dim % 32 != 0 || spec.head_dim > 128 || spec.intermediate % 8 != 0) continue;
    if (attention_o && (spec.kv_heads > 4 || spec.gqa() * spec.head_dim % 64 != 0)) continue;
    const auto reference = reference_of(**model, 160, checks);
    if (reference == nullptr) continue;
    ++taken;
    const std::string name = std::filesystem::path(path).filename().string() + (attention_o ? ", attention_o, " : ", ");
    std::vector<std::string> names;
    std::vector<Build> builds;
    for (const char* rest : configs) {
      const auto config = of_slices(rest, attention_o, checks);
      if (!config) continue;
      names.push_back(name + rest);
      builds.push_back({*config, {}});
    }
    build_all(**model, builds);
    for (std::size_t i = 0; i < builds.size(); ++i) gate(**model, *reference, builds[i].config, names[i], checks);
  }
  checks.check(taken > 0 || bench.fixture_models().empty(), "some fixture is taken");
}

struct SmallCase {
  const char* rest;
  int staged = 0;  // PlanOptions::staged_rows
};

void test_slices_small(const Bench& bench, bool attention_o, std::span<const SmallCase> cases, Checks& checks) {
  auto model = bench.model("small", 1200);
  if (!checks.check(model, "small opens")) return;
  const auto reference = reference_of(**model, 1200, checks);
  if (reference == nullptr) return;
  std::vector<std::string> names;
  std::vector<Build> builds;
  for (const SmallCase& c : cases) {
    const auto config = of_slices(c.rest, attention_o, checks);
    if (!config) continue;
    names.push_back(std::string(attention_o ? "small, attention_o, " : "small, slices, ") + c.rest +
                    (c.staged > 0 ? ", staged " + std::to_string(c.staged) : ""));
    builds.push_back({*config, {}});
    builds.back().options.staged_rows = c.staged;
  }
  build_all(**model, builds);
  for (std::size_t i = 0; i < builds.size(); ++i) gate(**model, *reference, builds[i].config, builds[i].options, names[i], checks);
}

void test_slices_long(const Bench& bench, bool attention_o, std::span<const char* const> configs, Checks& checks) {
  auto smollm = bench.model("smollm2-135m", 1024);
  if (!checks.check(smollm, "smollm2-135m opens")) return;
  for (const char* rest : configs)
    if (const auto config = of_slices(rest, attention_o, checks))
      if (!decode_twice(**smollm, std::string(attention_o ? "smollm2-135m, attention_o, " : "smollm2-135m, slices, ") + rest, *config,
                        bench.quick ? 100 : 1000, checks))
        return;
}

}  // namespace

// gemv_path "slices": every fixture that it takes, and what decides its code: warps (blocks of columns a warp, warps without any), groups of units,
// splits, rows of a task.
void test_slices(const Bench& bench, Checks& checks) {
  static constexpr const char* kFixtures[] = {R"("tiling":{"attention":{"kv_block":64}},"threads_per_block":384)", R"("threads_per_block":160)"};
  test_slices_fixtures(bench, false, kFixtures, checks);
  static constexpr SmallCase kSmall[] = {
      {R"("threads_per_block":384)"},
      {R"("threads_per_block":416,"tiling":{"attention":{"kv_block":64},"gemv":{"N_tile":8}})"},
      {R"("threads_per_block":544,"tiling":{"attention":{"kv_block":128}})"},
      {R"("threads_per_block":1024)"},
      {R"("threads_per_block":128)"},
      {R"("threads_per_block":192,"tiling":{"attention":{"kv_block":512},"gemv":{"N_tile":512}})"},
      {R"("threads_per_block":384,"sm_assignment":"round_robin","page_allocation":"none","tiling":{"gemv":{"N_tile":24}})"},
      {R"("threads_per_block":384,"page_allocation":"linear","kernel_knobs":{"counters":"kv_head"})"},
      {R"("threads_per_block":384,"smem_bytes_per_block":65536,"tiling":{"gemv":{"N_tile":8}})"},
      {R"("threads_per_block":416,"smem_bytes_per_block":65536,"pipelining_depth":0,"kernel_knobs":{"chunk_bytes":32768,"inflight_chunks":1})"},
      {R"("threads_per_block":160,"smem_bytes_per_block":98304,"tiling":{"gemv":{"N_tile":512}},"kernel_knobs":{"cpasync":true,"cpa_cols":1024})"}};
  test_slices_small(bench, false, kSmall, checks);
  static constexpr const char* kLong[] = {
      R"("threads_per_block":384,"smem_bytes_per_block":163840,"tiling":{"attention":{"kv_block":128},"gemv":{"N_tile":8}},"kernel_knobs":{"chunk_bytes":32768})",
      R"("threads_per_block":416,"tiling":{"attention":{"kv_block":64},"gemv":{"N_tile":8}})"};
  test_slices_long(bench, false, kLong, checks);
}

// Attention and o_proj in one instruction: every fixture that it takes; and what decides its code: warps (with and without a tile, with and without a
// unit), rows of a task (units a warp), cache rows in shared memory (all, none, some), a ring or none.
void test_attention_o(const Bench& bench, Checks& checks) {
  static constexpr const char* kFixtures[] = {R"("threads_per_block":384)", R"("threads_per_block":160)"};
  test_slices_fixtures(bench, true, kFixtures, checks);
  static constexpr SmallCase kSmall[] = {
      {R"("threads_per_block":384)", 0},
      {R"("threads_per_block":384)", 512},
      {R"("threads_per_block":352,"tiling":{"gemv":{"N_tile":8}})", 160},
      {R"("threads_per_block":1024)", 0},
      {R"("threads_per_block":128,"tiling":{"gemv":{"N_tile":512}})", 48},
      {R"("threads_per_block":192,"sm_assignment":"round_robin","page_allocation":"none")", 16},
      {R"("threads_per_block":384,"page_allocation":"linear","kernel_knobs":{"counters":"kv_head"})", 0},
      {R"("threads_per_block":352,"smem_bytes_per_block":65536,"tiling":{"gemv":{"N_tile":8}})", 0},
      {R"("threads_per_block":352,"smem_bytes_per_block":98304,"kernel_knobs":{"cpasync":true,"cpa_cols":1024})", 0},
      {R"("threads_per_block":416,"sm_assignment":"round_robin","page_allocation":"none","tiling":{"gemv":{"N_tile":8}})", 64},
      {R"("threads_per_block":416,"smem_bytes_per_block":65536,"pipelining_depth":0,"tiling":{"gemv":{"N_tile":8}})", 0}};
  test_slices_small(bench, true, kSmall, checks);
  static constexpr const char* kLong[] = {
      R"("threads_per_block":352,"smem_bytes_per_block":65536,"tiling":{"gemv":{"N_tile":8}},"kernel_knobs":{"chunk_bytes":32768})",
      R"("threads_per_block":416,"smem_bytes_per_block":98304,"tiling":{"gemv":{"N_tile":8}},"kernel_knobs":{"chunk_bytes":32768})"};
  test_slices_long(bench, true, kLong, checks);
}

}  // namespace amk::gpu_test
