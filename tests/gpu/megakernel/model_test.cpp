// Good candidates: every fixture, every knob, long contexts.
#include <algorithm>

#include "core/base/json.h"
#include "core/reference/forward.h"
#include "tests/gpu/megakernel/build_all.h"
#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {

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
  const std::pair<const char*, std::string> configs[] = {
      {"default", "{}"},
      {"unfused", R"({"fusion_grouping":[]})"},
      {"combine in o_proj", kCombined},
      {"one split", R"({"tiling":{"attention":{"kv_block":512}}})"},
      {"fma", R"({"kernel_knobs":{"gemv_path":"fma"}})"},
      {"row", kRowMajor},
      {"direct", R"({"smem_bytes_per_block":0})"},
      {"cp.async", R"({"kernel_knobs":{"cpasync":true}})"},
      {"confirmed", R"({"kernel_knobs":{"publish":"confirmed"}})"},
      {"flagged", "{" + kCombineInO + R"(,"kernel_knobs":{"publish":"flagged"}})"},
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
  const std::pair<const char*, std::string> configs[] = {
      {"blocks of 64", R"({"tiling":{"attention":{"kv_block":64}}})"},
      {"blocks of 512", R"({"tiling":{"attention":{"kv_block":512}}})"},
      {"blocks of 64, combine in o_proj", R"({"tiling":{"attention":{"kv_block":64}},)" + kCombineInO + "}"},
      {"blocks of 512, confirmed", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"confirmed"}})"},
      {"blocks of 128, flagged", R"({"tiling":{"attention":{"kv_block":128}},"kernel_knobs":{"publish":"flagged"},)" + kCombineInO + "}"},
      {"blocks of 512, 128 threads", R"({"tiling":{"attention":{"kv_block":512}},"threads_per_block":128})"},
      {"blocks of 256, 416 threads", R"({"tiling":{"attention":{"kv_block":256}},"threads_per_block":416})"},
      {"blocks of 512, 544 threads", R"({"tiling":{"attention":{"kv_block":512}},"threads_per_block":544})"},
      {"blocks of 64, at most four splits, combine in o_proj", R"({"tiling":{"attention":{"kv_block":64,"max_splits":4}},)" + kCombineInO + "}"},
      {"blocks of 64, slices",
       R"({"tiling":{"attention":{"kv_block":64}},"threads_per_block":384,"smem_bytes_per_block":0,"kernel_knobs":{"publish":"flagged","gemv_path":"slices"},)" +
           kCombineInO + "}"},
      {"blocks of 512, scalar", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})"},
  };
  for (const auto& [what, text] : configs) {
    const auto config = config_of(text);
    if (checks.check(config, what))
      gate(**model, **reference, *config, std::string("small, ") + std::to_string(plan.tokens) + " positions, " + what, checks);
  }
}

}  // namespace amk::gpu_test
