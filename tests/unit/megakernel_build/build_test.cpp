// The virtual machine through NVRTC, no GPU needed; registers and spills held to limits read off the assembler's report. The step as it is by default
// for every architecture; what else decides the kernel's code for one architecture of each class that the code tells apart (before Hopper, Hopper,
// after it), in turn: a build is 1.5 to 2 s of a processor, and most of it is the same for all.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <map>
#include <thread>

#include "core/model/load.h"
#include "core/program/lower_instruction.h"
#include "kernels/megakernel/device_plan.h"
#include "tests/support/needs.h"

using namespace amk;

namespace {

struct Card {
  const char* architecture;
  int sm_major, sm_count;
  std::int64_t smem_optin_bytes;  // CUDA C++ programming guide, "technical specifications per compute capability"
  int ring_bytes;
};
const std::map<std::string, Card> kCards = {
    {"sm_80", {"sm_80", 8, 108, 166912, 114688}},   {"sm_86", {"sm_86", 8, 84, 101376, 65536}},      {"sm_89", {"sm_89", 8, 142, 101376, 65536}},
    {"sm_90a", {"sm_90a", 9, 132, 232448, 196608}}, {"sm_100", {"sm_100", 10, 148, 232448, 196608}}, {"sm_120", {"sm_120", 12, 170, 101376, 65536}},
};

// The largest number that stands before " AFTER" in the log; -1: none. By hand: the constructor of std::regex fills a table of the locale's that all
// threads share, without a lock.
int number_before(const std::string& log, const std::string& after) {
  int most = -1;
  for (std::size_t at = log.find(" " + after); at != std::string::npos; at = log.find(" " + after, at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(log[begin - 1])) != 0) --begin;
    if (begin < at) most = std::max(most, std::stoi(log.substr(begin, at - begin)));
  }
  return most;
}

Result<DevicePlan> planned(const Card& card, const ModelSpec& spec, const ScheduleConfig& config, const std::string& op = {}, int batch = 1) {
  const DeviceLimits limits{card.architecture, card.sm_major, card.sm_count, card.smem_optin_bytes, 1024};
  LoweringTarget target;
  target.sm_count = card.sm_count;
  target.smem_optin_bytes = card.smem_optin_bytes;
  target.max_seq = 512;
  target.batch = batch;
  const NumericFormat format = gpu_format(spec.dtype);
  AMK_TRY(program, op.empty() ? lower(spec, config, target, format) : lower_instruction(spec, op, config, target, format));
  return plan_device(program, config, limits);
}

ModelSpec model(const char* name) {
  ModelSources sources;
  sources.catalogue_dir = std::string(AMK_SOURCE_DIR) + "/config/models";
  const auto ref = resolve_model(name, sources);
  REQUIRE(ref);
  return ref->spec;
}

// Nine warps: three of them share a quarter of the register file, 16,384 / (3 * 32) = 170, in steps of 8. Twelve likewise; sixteen have 128.
constexpr int kOfTwelveWarps = 168, kOfSixteenWarps = 128;

struct Build {
  std::string name, architecture;
  ModelSpec spec;
  ScheduleConfig config;
  int batch = 1;
  int registers = kOfTwelveWarps, spills = 0;  // limits; bytes stored: as recorded with NVRTC 13.0, and slack for other versions
};

struct Outcome {
  std::string error;
  int registers = -1, spills = -1;
};

Outcome built(const Nvrtc& nvrtc, const Build& build) {
  const auto plan = planned(kCards.at(build.architecture), build.spec, build.config, {}, build.batch);
  if (!plan) return {plan.error().message};
  const auto kernel = nvrtc.compile(plan->request);
  if (!kernel) return {kernel.error().message + "\n" + kernel.error().data.value("log", "")};
  return {{}, number_before(kernel->log, "registers"), number_before(kernel->log, "bytes spill stores")};
}

// Two at a time: the assembler is single-threaded.
void check(const std::vector<Build>& builds) {
  const auto opened = Nvrtc::open();
  REQUIRE(opened);
  const Nvrtc& nvrtc = **opened;
  std::vector<Outcome> outcomes(builds.size());
  {
    std::atomic<std::size_t> next{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < builds.size(); i = next++)
          if (nvrtc.supports(builds[i].architecture)) outcomes[i] = built(nvrtc, builds[i]);
      });
    }
  }
  for (std::size_t i = 0; i < builds.size(); ++i) {
    const Build& build = builds[i];
    CAPTURE(build.name);
    CAPTURE(build.architecture);
    if (!nvrtc.supports(build.architecture)) {
      MESSAGE("skipped: NVRTC " << nvrtc.version() << " does not know " << build.architecture);
      continue;
    }
    CHECK_MESSAGE(outcomes[i].error.empty(), outcomes[i].error);
    CHECK(outcomes[i].registers > 0);
    CHECK(outcomes[i].registers <= build.registers);
    CHECK(outcomes[i].spills >= 0);
    CHECK(outcomes[i].spills <= build.spills);
  }
}

ScheduleConfig with_ring(const char* architecture) {
  ScheduleConfig config;
  config.smem_bytes_per_block = kCards.at(architecture).ring_bytes;
  return config;
}

}  // namespace

TEST_CASE("the virtual machine builds for every architecture within its registers" * amk::test::needs_nvrtc()) {
  const ModelSpec llama = model("llama-3.2-1b");
  std::vector<Build> builds;
  for (const auto& [architecture, card] : kCards)
    builds.push_back({"default", architecture, llama, with_ring(card.architecture), 1, kOfTwelveWarps, card.sm_major >= 10 ? 128 : 96});
  check(builds);
}

TEST_CASE("one instruction alone runs the kernel of the step" * amk::test::needs_nvrtc()) {
  const ModelSpec smollm = model("smollm2-135m");
  for (const auto& [architecture, card] : kCards) {
    const auto step = planned(card, smollm, with_ring(card.architecture));
    REQUIRE(step);
    for (const std::string_view op : instruction_ops()) {
      CAPTURE(architecture);
      CAPTURE(op);
      const auto plan = planned(card, smollm, with_ring(card.architecture), std::string(op));
      REQUIRE_MESSAGE(plan, (plan ? "" : plan.error().message));
      CHECK(plan->request.options == step->request.options);
      CHECK(plan->request.source == step->request.source);
      CHECK(plan->request.headers == step->request.headers);
    }
  }
}

TEST_CASE("int8 weights: the same limits, and no spills; also where threads cannot hold a whole vector" * amk::test::needs_nvrtc()) {
  const ModelSpec int8 = model("llama-3.2-1b@int8");
  std::vector<Build> builds;
  const auto add = [&](const char* name, const char* architecture, int registers, auto change) {
    ScheduleConfig config = with_ring(architecture);
    config.smem_bytes_per_block -= 16384;  // limbs are half as many bytes again as the vector
    config.kernel.cols_per_warp = 512;
    if (config.smem_bytes_per_block < 4 * 16384) config.kernel.chunk_bytes = 8192;  // a short ring needs more slots (ring-turn)
    change(config);
    builds.push_back({name, architecture, int8, config, 1, registers, 32});
  };
  for (const char* architecture : {"sm_86", "sm_90a", "sm_120"}) add("int8", architecture, kOfTwelveWarps, [](ScheduleConfig&) {});
  add("confirmed", "sm_90a", kOfTwelveWarps, [](ScheduleConfig& c) { c.kernel.publish = Publish::Confirmed; });
  add("128 threads", "sm_90a", 255, [](ScheduleConfig& c) {
    c.threads_per_block = 128;
    c.kernel.chunk_bytes = 8192;
    c.smem_bytes_per_block = 131072;
  });
  check(builds);
}

TEST_CASE("the cache through the ring builds within the same registers" * amk::test::needs_nvrtc()) {
  const ModelSpec llama = model("llama-3.2-1b");
  std::vector<Build> builds;
  const auto add = [&](const char* name, const char* architecture, Publish publish, int batch = 1, int steps = 1) {
    ScheduleConfig config = with_ring(architecture);
    if (batch > 1) config.smem_bytes_per_block = 163840;
    config.kernel.kv_path = KvPath::Ring;
    config.kernel.publish = publish;
    config.kernel.tokens_per_launch = steps;
    config.fusion.combine_o = publish != Publish::Release;
    builds.push_back({name, architecture, llama, config, batch, kOfTwelveWarps, 96});  // recorded for sm_90a: 4, confirmed 16, flagged 32
  };
  add("release", "sm_80", Publish::Release);
  add("release", "sm_90a", Publish::Release);
  add("confirmed", "sm_90a", Publish::Confirmed);
  add("flagged", "sm_90a", Publish::Flagged);
  add("eight sequences, eight steps", "sm_90a", Publish::Release, 8, 8);
  check(builds);
}

TEST_CASE("batches build within the registers of one sequence" * amk::test::needs_nvrtc()) {
  const ModelSpec llama = model("llama-3.2-1b");
  std::vector<Build> builds;
  const auto add = [&](const char* architecture, int batch, int ring, bool row = false) {
    ScheduleConfig config;
    config.smem_bytes_per_block = ring;
    if (row) {
      config.kernel.gemv_path = GemvPath::Fma;
      config.kernel.weight_layout = WeightLayout::Row;
    }
    builds.push_back({std::to_string(batch) + (row ? ", rows" : ""), architecture, llama, config, batch, kOfTwelveWarps,
                      128});  // recorded: 20 for two, 12 for eight
  };
  // Vectors of O and down in registers; with the ring's last slots lent to down's vectors, and with room of their own; five to eight take a second
  // product.
  add("sm_90a", 2, 163840);
  add("sm_90a", 5, 163840);
  add("sm_90a", 8, 163840);
  add("sm_100", 8, 65536);
  add("sm_90a", 4, 65536, true);
  add("sm_80", 2, 65536);
  add("sm_100", 8, 163840);
  check(builds);
}

TEST_CASE("several steps a launch build within the registers of one" * amk::test::needs_nvrtc()) {
  const ModelSpec llama = model("llama-3.2-1b");
  std::vector<Build> builds;
  const auto add = [&](const char* name, const char* architecture, Publish publish, int batch = 1) {
    ScheduleConfig config = with_ring(architecture);
    if (batch > 1) config.smem_bytes_per_block = 163840;
    config.kernel.tokens_per_launch = 8;
    config.kernel.publish = publish;
    config.fusion.combine_o = publish == Publish::Flagged;
    builds.push_back({name, architecture, llama, config, batch, kOfTwelveWarps, 128});  // recorded for sm_90a: none, flagged 20
  };
  for (const char* architecture : {"sm_89", "sm_90a", "sm_100"}) add("release", architecture, Publish::Release);
  add("flagged", "sm_90a", Publish::Flagged);
  add("eight sequences", "sm_90a", Publish::Release, 8);
  check(builds);
}

TEST_CASE("slices build with few spills or none" * amk::test::needs_nvrtc()) {
  const ModelSpec smollm = model("smollm2-135m");
  std::vector<Build> builds;
  const auto add = [&](const char* architecture, int threads, int kv_block, bool attention_o = false) {
    ScheduleConfig config;
    config.smem_bytes_per_block = 0;
    config.gemv_n_tile = 8;
    config.attention_kv_block = kv_block;
    config.threads_per_block = threads;
    config.fusion.combine_o = true;
    config.fusion.attention_combine = attention_o;
    config.kernel.publish = Publish::Flagged;
    config.kernel.gemv_path = GemvPath::Slices;
    // Recorded with more than twelve warps: 140; sm_100 28, sm_120 16.
    builds.push_back({std::to_string(threads) + " threads" + (attention_o ? ", attention_o" : ""), architecture, smollm, config, 1,
                      threads <= 384 ? kOfTwelveWarps : kOfSixteenWarps,
                      threads > 384                            ? 192
                      : kCards.at(architecture).sm_major >= 10 ? 64
                                                               : 0});
  };
  for (const char* architecture : {"sm_80", "sm_90a", "sm_120"}) add(architecture, 384, 256);
  add("sm_90a", 416, 128);
  add("sm_90a", 512, 512);
  for (const char* architecture : {"sm_86", "sm_90a"}) add(architecture, 384, 128, true);
  check(builds);
}

TEST_CASE("every compiled-in knob builds" * amk::test::needs_nvrtc()) {
  const ModelSpec small = model("small"), qwen3 = model("qwen3-0.6b");
  ModelSpec fp32 = small, odd = small;
  fp32.dtype = DType::F32;
  odd.dtype = DType::F16;
  odd.sliding_window = 100;
  odd.qkv_bias = odd.o_bias = odd.mlp_bias = true;
  std::vector<Build> builds;
  const auto add = [&](const char* name, const ModelSpec& spec, auto change) {
    ScheduleConfig config;
    config.smem_bytes_per_block = 131072;
    change(config);
    builds.push_back({name, "sm_90a", spec, config, 1, 255, 1024});
  };
  const auto rows = [](ScheduleConfig& c) {
    c.kernel.gemv_path = GemvPath::Fma;
    c.kernel.weight_layout = WeightLayout::Row;
  };
  add("fma", small, [](ScheduleConfig& c) { c.kernel.gemv_path = GemvPath::Fma; });
  add("row", small, rows);
  add("direct", small, [](ScheduleConfig& c) { c.smem_bytes_per_block = 0; });
  add("cp.async, 1024 threads, unfused, one split", small, [](ScheduleConfig& c) {
    c.threads_per_block = 1024;
    c.kernel.cols_per_warp = 128;
    c.kernel.cpasync = true;
    c.fusion = Fusion{false, false, false, false, false, false, false, false, false};
    c.attention_kv_block = 512;
  });
  add("confirmed, 128 threads", small, [](ScheduleConfig& c) {
    c.kernel.publish = Publish::Confirmed;
    c.threads_per_block = 128;
  });
  add("flagged", small, [](ScheduleConfig& c) {
    c.kernel.publish = Publish::Flagged;
    c.fusion.combine_o = true;
  });
  add("flagged, one split, fma, direct", small, [](ScheduleConfig& c) {
    c.kernel.publish = Publish::Flagged;
    c.kernel.gemv_path = GemvPath::Fma;
    c.attention_kv_block = 512;
    c.smem_bytes_per_block = 0;
  });
  add("fp16, window and biases", odd, [](ScheduleConfig&) {});
  add("fp32", fp32, rows);
  add("qk-norm, head_dim 128", qwen3, [](ScheduleConfig&) {});
  add("several groups a segment", qwen3, [](ScheduleConfig& c) { c.kernel.cols_per_warp = 512; });
  check(builds);
}
