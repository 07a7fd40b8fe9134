// Long decodes: greedy, each token fed back on the device, twice over: the same tokens, whatever the timing was.
#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {
namespace {

const std::pair<const char*, const char*> kLongConfigs[] = {
    {"default", "{}"},
    {"confirmed", R"({"tiling":{"gemv":{"N_tile":8},"attention":{"kv_block":128}},"kernel_knobs":{"publish":"confirmed"}})"},
    {"flagged", R"({"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})"},
};

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
