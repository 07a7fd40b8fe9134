// A few steps of every code path, short enough for compute-sanitizer.
#include <string>
#include <vector>

#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {
namespace {

void few_steps(const Bench& bench, Checks& checks, const PlanOptions& options) {
  auto toy = bench.model("toy", 64);
  auto small = bench.model("small", 64);  // for "flagged", which needs a head_dim that toy has not
  auto int8 = bench.model("small@int8", 64);
  if (!checks.check(toy, "toy opens") || !checks.check(small, "small opens") || !checks.check(int8, "small@int8 opens")) return;
  const std::vector<int> tokens = {1, 5, 9, 2};
  const std::string configs[] = {
      "{}",
      R"({"fusion_grouping":[]})",
      kRowMajor,
      R"({"kernel_knobs":{"gemv_path":"fma"}})",
      R"({"smem_bytes_per_block":0})",
      R"({"kernel_knobs":{"cpasync":true}})",
      R"({"kernel_knobs":{"publish":"confirmed"}})",
      R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})",
      R"({"tiling":{"attention":{"kv_block":512}},"threads_per_block":384,"smem_bytes_per_block":0,"kernel_knobs":{"publish":"flagged","gemv_path":"slices"}})",
      R"({"tiling":{"attention":{"kv_block":512}},"threads_per_block":384,"smem_bytes_per_block":65536,"kernel_knobs":{"publish":"flagged","gemv_path":"slices"}})",
      kCombined};
  for (const std::string& text : configs) {
    const auto config = config_of(text);
    if (!checks.check(config, text)) continue;
    writes_all(config->kernel.publish == Publish::Flagged ? **small : **toy, *config, options, tokens, text, checks);
    if (config->kernel.gemv_path == GemvPath::Mma) writes_all(**int8, *config, options, tokens, text, checks);
  }
}

}  // namespace

void test_sanitize(const Bench& bench, Checks& checks) { few_steps(bench, checks, {}); }

void test_racecheck(const Bench& bench, Checks& checks) { few_steps(bench, checks, full_barriers()); }

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
    writes_all(**small, *config, options, tokens, text, checks);
  }
}

}  // namespace

void test_sanitize_attention_o(const Bench& bench, Checks& checks) { attention_o_steps(bench, checks, {}); }

void test_racecheck_attention_o(const Bench& bench, Checks& checks) { attention_o_steps(bench, checks, full_barriers()); }

}  // namespace amk::gpu_test
