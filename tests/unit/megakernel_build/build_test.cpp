// The virtual machine through NVRTC for every architecture, no GPU needed; registers and spills held to limits read off the assembler's report.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <thread>

#include "core/model/load.h"
#include "core/program/lower_instruction.h"
#include "kernels/megakernel/device_plan.h"
#include "tests/support/needs.h"

using namespace amk;

namespace {

struct Case {
  const char* architecture;
  int sm_major, sm_count;
  std::int64_t smem_optin_bytes;  // CUDA C++ programming guide, "technical specifications per compute capability"
  int ring_bytes;
  int spill_limit;  // bytes stored, recorded with NVRTC 13.0 plus slack for other versions
};
const Case kCases[] = {
    {"sm_80", 8, 108, 166912, 114688, 96},  {"sm_86", 8, 84, 101376, 65536, 96},      {"sm_89", 8, 142, 101376, 65536, 96},
    {"sm_90a", 9, 132, 232448, 196608, 96}, {"sm_100", 10, 148, 232448, 196608, 128}, {"sm_120", 12, 170, 101376, 65536, 128},
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

struct Outcome {
  std::string error;
  int registers = -1, spills = -1;
};

Result<DevicePlan> planned(const Case& c, const ModelSpec& spec, const ScheduleConfig& config, const std::string& op, int batch = 1) {
  const DeviceLimits limits{c.architecture, c.sm_major, c.sm_count, c.smem_optin_bytes, 1024};
  LoweringTarget target;
  target.sm_count = c.sm_count;
  target.smem_optin_bytes = c.smem_optin_bytes;
  target.max_seq = 512;
  target.batch = batch;
  const NumericFormat format = gpu_format(spec.dtype);
  AMK_TRY(program, op.empty() ? lower(spec, config, target, format) : lower_instruction(spec, op, config, target, format));
  return plan_device(program, config, limits);
}

// `op`: one instruction kind alone; empty: the whole step.
Outcome build(const Case& c, const ModelSpec& spec, const ScheduleConfig& config, const std::string& op = {}, int batch = 1) {
  Outcome out;
  const auto plan = planned(c, spec, config, op, batch);
  if (!plan) return {plan.error().message, -1, -1};
  const auto built = (*Nvrtc::open())->compile(plan->request);
  if (!built) return {built.error().message + "\n" + built.error().data.value("log", ""), -1, -1};
  out.registers = number_before(built->log, "registers");
  out.spills = number_before(built->log, "bytes spill stores");
  return out;
}

Result<ModelRef> catalogue_model(const char* name) {
  ModelSources sources;
  sources.catalogue_dir = std::string(AMK_SOURCE_DIR) + "/config/models";
  return resolve_model(name, sources);
}

// Two at a time: the assembler is single-threaded.
template <class F>
void in_parallel(std::size_t n, F work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < n; i = next++) work(i);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("the virtual machine builds for every architecture within its registers" * amk::test::needs_nvrtc()) {
  const auto nvrtc = Nvrtc::open();
  REQUIRE(nvrtc);
  const auto ref = catalogue_model("llama-3.2-1b");
  REQUIRE(ref);
  std::vector<Outcome> outcomes(std::size(kCases));
  in_parallel(std::size(kCases), [&](std::size_t i) {
    ScheduleConfig config;
    config.smem_bytes_per_block = kCases[i].ring_bytes;
    if ((*nvrtc)->supports(kCases[i].architecture)) outcomes[i] = build(kCases[i], ref->spec, config);
  });
  for (std::size_t i = 0; i < std::size(kCases); ++i) {
    CAPTURE(kCases[i].architecture);
    if (!(*nvrtc)->supports(kCases[i].architecture)) {
      MESSAGE("skipped: NVRTC " << (*nvrtc)->version() << " does not know " << kCases[i].architecture);
      continue;
    }
    CHECK_MESSAGE(outcomes[i].error.empty(), outcomes[i].error);
    // 9 warps: three of them share a quarter of the register file, 16,384 / (3 * 32) = 170, in steps of 8.
    CHECK(outcomes[i].registers > 0);
    CHECK(outcomes[i].registers <= 168);
    CHECK(outcomes[i].spills >= 0);
    CHECK(outcomes[i].spills <= kCases[i].spill_limit);
  }
}

TEST_CASE("int8 weights: the same limits, and no spills; also where threads cannot hold a whole vector" * amk::test::needs_nvrtc()) {
  const auto nvrtc = Nvrtc::open();
  REQUIRE(nvrtc);
  const auto ref = catalogue_model("llama-3.2-1b@int8");
  REQUIRE(ref);
  struct Job {
    const Case* on;
    ScheduleConfig config;
    Outcome outcome;
  };
  std::vector<Job> jobs;
  for (const Case& c : kCases) {
    ScheduleConfig config;
    config.smem_bytes_per_block = c.ring_bytes - 16384;  // limbs are half as many bytes again as the vector
    config.kernel.cols_per_warp = 512;
    if (config.smem_bytes_per_block < 4 * 16384) config.kernel.chunk_bytes = 8192;  // a short ring needs more slots (ring-turn)
    jobs.push_back({&c, config, {}});
    if (c.architecture != std::string("sm_90a")) continue;
    jobs.push_back({&c, config, {}});
    jobs.back().config.kernel.publish = Publish::Confirmed;
    jobs.push_back({&c, config, {}});
    jobs.back().config.threads_per_block = 128;
    jobs.back().config.kernel.chunk_bytes = 8192;
    jobs.back().config.smem_bytes_per_block = 131072;
  }
  in_parallel(jobs.size(), [&](std::size_t i) {
    if ((*nvrtc)->supports(jobs[i].on->architecture)) jobs[i].outcome = build(*jobs[i].on, ref->spec, jobs[i].config);
  });
  for (const Job& job : jobs) {
    CAPTURE(job.on->architecture);
    CAPTURE(job.config.threads_per_block);
    if (!(*nvrtc)->supports(job.on->architecture)) continue;
    CHECK_MESSAGE(job.outcome.error.empty(), job.outcome.error);
    CHECK(job.outcome.registers > 0);
    CHECK(job.outcome.registers <= (job.config.threads_per_block == 128 ? 255 : 168));
    CHECK(job.outcome.spills >= 0);
    CHECK(job.outcome.spills <= 32);
  }
}

TEST_CASE("the cache through the ring builds within the same registers" * amk::test::needs_nvrtc()) {
  const auto nvrtc = Nvrtc::open();
  REQUIRE(nvrtc);
  const auto ref = catalogue_model("llama-3.2-1b");
  REQUIRE(ref);
  struct Job {
    const Case* on;
    Publish publish = Publish::Release;
    int batch = 1, steps = 1;
    Outcome outcome = {};
  };
  std::vector<Job> jobs = {
      {&kCases[0]}, {&kCases[3]}, {&kCases[3], Publish::Confirmed}, {&kCases[3], Publish::Flagged}, {&kCases[3], Publish::Release, 8, 8}};
  in_parallel(jobs.size(), [&](std::size_t i) {
    ScheduleConfig config;
    config.smem_bytes_per_block = jobs[i].batch > 1 ? 163840 : jobs[i].on->ring_bytes;
    config.kernel.kv_path = KvPath::Ring;
    config.kernel.publish = jobs[i].publish;
    config.kernel.tokens_per_launch = jobs[i].steps;
    config.fusion.combine_o = jobs[i].publish != Publish::Release;
    if ((*nvrtc)->supports(jobs[i].on->architecture)) jobs[i].outcome = build(*jobs[i].on, ref->spec, config, {}, jobs[i].batch);
  });
  for (const Job& job : jobs) {
    CAPTURE(job.on->architecture);
    CAPTURE(static_cast<int>(job.publish));
    CAPTURE(job.batch);
    if (!(*nvrtc)->supports(job.on->architecture)) continue;
    CHECK_MESSAGE(job.outcome.error.empty(), job.outcome.error);
    CHECK(job.outcome.registers > 0);
    CHECK(job.outcome.registers <= 168);
    CHECK(job.outcome.spills <= 96);  // recorded for sm_90a: 4, confirmed 16, flagged 32
  }
}

TEST_CASE("batches build within the registers of one sequence" * amk::test::needs_nvrtc()) {
  const auto nvrtc = Nvrtc::open();
  REQUIRE(nvrtc);
  const auto ref = catalogue_model("llama-3.2-1b");
  REQUIRE(ref);
  struct Job {
    int batch, ring;
    bool row;
    const char* architecture;
    Outcome outcome = {};
  };
  // Vectors of O and down in registers; with the ring's last slots lent to down's vectors, and with room of their own; five to eight take a second
  // product.
  std::vector<Job> jobs = {{2, 163840, false, "sm_90a"}, {5, 163840, false, "sm_90a"}, {8, 163840, false, "sm_90a"}, {8, 65536, false, "sm_100"},
                           {4, 65536, true, "sm_90a"},   {2, 65536, false, "sm_80"},   {8, 163840, false, "sm_100"}};
  in_parallel(jobs.size(), [&](std::size_t i) {
    const Case& c =
        *std::find_if(std::begin(kCases), std::end(kCases), [&](const Case& k) { return std::string(k.architecture) == jobs[i].architecture; });
    ScheduleConfig config;
    config.smem_bytes_per_block = jobs[i].ring;
    if (jobs[i].row) {
      config.kernel.gemv_path = GemvPath::Fma;
      config.kernel.weight_layout = WeightLayout::Row;
    }
    if ((*nvrtc)->supports(jobs[i].architecture)) jobs[i].outcome = build(c, ref->spec, config, {}, jobs[i].batch);
  });
  for (const Job& job : jobs) {
    CAPTURE(job.batch);
    CAPTURE(job.ring);
    CAPTURE(job.architecture);
    if (!(*nvrtc)->supports(job.architecture)) continue;
    CHECK_MESSAGE(job.outcome.error.empty(), job.outcome.error);
    CHECK(job.outcome.registers > 0);
    CHECK(job.outcome.registers <= 168);
    CHECK(job.outcome.spills <= 128);  // recorded: 0 for eight, 20 for two
  }
}

TEST_CASE("several steps a launch build within the registers of one, for every architecture" * amk::test::needs_nvrtc()) {
  const auto nvrtc = Nvrtc::open();
  REQUIRE(nvrtc);
  const auto ref = catalogue_model("llama-3.2-1b");
  REQUIRE(ref);
  struct Job {
    const Case* on;
    Publish publish = Publish::Release;
    int batch = 1;
    Outcome outcome = {};
  };
  std::vector<Job> jobs;
  for (const Case& c : kCases) jobs.push_back({&c});
  jobs.push_back({&kCases[3], Publish::Flagged});
  jobs.push_back({&kCases[3], Publish::Release, 8});
  in_parallel(jobs.size(), [&](std::size_t i) {
    ScheduleConfig config;
    config.smem_bytes_per_block = jobs[i].batch > 1 ? 163840 : jobs[i].on->ring_bytes;
    config.kernel.tokens_per_launch = 8;
    config.kernel.publish = jobs[i].publish;
    config.fusion.combine_o = jobs[i].publish == Publish::Flagged;
    if ((*nvrtc)->supports(jobs[i].on->architecture)) jobs[i].outcome = build(*jobs[i].on, ref->spec, config, {}, jobs[i].batch);
  });
  for (const Job& job : jobs) {
    CAPTURE(job.on->architecture);
    CAPTURE(static_cast<int>(job.publish));
    CAPTURE(job.batch);
    if (!(*nvrtc)->supports(job.on->architecture)) continue;
    CHECK_MESSAGE(job.outcome.error.empty(), job.outcome.error);
    CHECK(job.outcome.registers > 0);
    CHECK(job.outcome.registers <= 168);
    CHECK(job.outcome.spills <= 128);  // recorded for sm_90a: none, flagged 20
  }
}

TEST_CASE("slices build for every architecture, with few spills or none" * amk::test::needs_nvrtc()) {
  const auto nvrtc = Nvrtc::open();
  REQUIRE(nvrtc);
  const auto ref = catalogue_model("smollm2-135m");
  REQUIRE(ref);
  struct Job {
    const Case* on;
    int threads, kv_block;
    bool attention_o = false;
    Outcome outcome = {};
  };
  // 12 warps have 168 registers each, 16 have 128, 17 have 96.
  std::vector<Job> jobs;
  for (const Case& c : kCases) jobs.push_back({&c, 384, 256});
  jobs.push_back({&kCases[3], 416, 128});
  jobs.push_back({&kCases[3], 512, 512});
  for (const std::size_t c : {0, 3}) jobs.push_back({&kCases[c], 384, 128, true});
  in_parallel(jobs.size(), [&](std::size_t i) {
    ScheduleConfig config;
    config.smem_bytes_per_block = 0;
    config.gemv_n_tile = 8;
    config.attention_kv_block = jobs[i].kv_block;
    config.threads_per_block = jobs[i].threads;
    config.fusion.combine_o = true;
    config.kernel.publish = Publish::Flagged;
    config.kernel.gemv_path = GemvPath::Slices;
    config.fusion.attention_combine = jobs[i].attention_o;
    if ((*nvrtc)->supports(jobs[i].on->architecture)) jobs[i].outcome = build(*jobs[i].on, ref->spec, config);
  });
  for (const Job& job : jobs) {
    CAPTURE(job.on->architecture);
    CAPTURE(job.threads);
    if (!(*nvrtc)->supports(job.on->architecture)) continue;
    MESSAGE(job.on->architecture << " " << job.threads << ": " << job.outcome.registers << " registers, " << job.outcome.spills << " spilled");
    CHECK_MESSAGE(job.outcome.error.empty(), job.outcome.error);
    CHECK(job.outcome.registers > 0);
    CHECK(job.outcome.registers <= (job.threads == 384 ? 168 : 128));
    CHECK(job.outcome.spills <= (job.threads > 384 ? 192 : job.on->sm_major >= 10 ? 64 : 0));  // recorded: 140; sm_100 28, sm_120 16
  }
}

TEST_CASE("every instruction kind alone builds for every architecture" * amk::test::needs_nvrtc()) {
  const auto nvrtc = Nvrtc::open();
  REQUIRE(nvrtc);
  const auto ref = catalogue_model("smollm2-135m");
  REQUIRE(ref);
  const auto ops = instruction_ops();
  struct Job {
    const Case* on;
    std::string op;
    Outcome outcome;
  };
  std::vector<Job> jobs;  // each architecture with one kind: the kernel is the step's, only tables differ
  for (std::size_t i = 0; i < std::size(kCases); ++i) jobs.push_back({&kCases[i], std::string(ops[i % ops.size()]), {}});
  in_parallel(jobs.size(), [&](std::size_t i) {
    ScheduleConfig config;
    config.smem_bytes_per_block = jobs[i].on->ring_bytes;
    if ((*nvrtc)->supports(jobs[i].on->architecture)) jobs[i].outcome = build(*jobs[i].on, ref->spec, config, jobs[i].op);
  });
  for (const Job& job : jobs) {
    CAPTURE(job.on->architecture);
    CAPTURE(job.op);
    if (!(*nvrtc)->supports(job.on->architecture)) continue;
    CHECK_MESSAGE(job.outcome.error.empty(), job.outcome.error);
    CHECK(job.outcome.registers > 0);
    CHECK(job.outcome.registers <= 168);
  }
  // And every kind is planned for every architecture, from the very same request: a kernel is built once for all kinds.
  for (const Case& c : kCases) {
    std::string options;
    for (const std::string_view op : ops) {
      ScheduleConfig config;
      config.smem_bytes_per_block = c.ring_bytes;
      const auto plan = planned(c, ref->spec, config, std::string(op));
      CAPTURE(c.architecture);
      CAPTURE(op);
      REQUIRE_MESSAGE(plan, (plan ? "" : plan.error().message));
      std::string mine;
      for (const std::string& option : plan->request.options) mine += option + " ";
      if (options.empty()) options = mine;
      CHECK(mine == options);
    }
  }
}

TEST_CASE("every compiled-in knob builds" * amk::test::needs_nvrtc()) {
  const auto nvrtc = Nvrtc::open();
  REQUIRE(nvrtc);
  ModelSources sources;
  sources.catalogue_dir = std::string(AMK_SOURCE_DIR) + "/config/models";
  const auto small = resolve_model("small", sources);
  const auto qwen3 = resolve_model("qwen3-0.6b", sources);
  REQUIRE(small);
  REQUIRE(qwen3);
  ModelSpec fp16 = small->spec, fp32 = small->spec, mistral = small->spec;
  fp16.dtype = DType::F16;
  fp32.dtype = DType::F32;
  mistral.sliding_window = 100;
  mistral.qkv_bias = mistral.o_bias = mistral.mlp_bias = true;

  struct Variant {
    const char* name;
    ModelSpec spec;
    ScheduleConfig config;
  };
  std::vector<Variant> variants;
  const auto add = [&](const char* name, const ModelSpec& spec, auto change) {
    ScheduleConfig config;
    config.smem_bytes_per_block = 131072;
    change(config);
    variants.push_back({name, spec, config});
  };
  add("fma", small->spec, [](ScheduleConfig& c) { c.kernel.gemv_path = GemvPath::Fma; });
  add("row", small->spec, [](ScheduleConfig& c) {
    c.kernel.gemv_path = GemvPath::Fma;
    c.kernel.weight_layout = WeightLayout::Row;
  });
  add("direct", small->spec, [](ScheduleConfig& c) { c.smem_bytes_per_block = 0; });
  add("cp.async", small->spec, [](ScheduleConfig& c) { c.kernel.cpasync = true; });
  add("confirmed", small->spec, [](ScheduleConfig& c) { c.kernel.publish = Publish::Confirmed; });
  add("flagged", small->spec, [](ScheduleConfig& c) {
    c.kernel.publish = Publish::Flagged;
    c.fusion.combine_o = true;
  });
  add("flagged, one split, fma, direct", small->spec, [](ScheduleConfig& c) {
    c.kernel.publish = Publish::Flagged;
    c.kernel.gemv_path = GemvPath::Fma;
    c.attention_kv_block = 512;
    c.smem_bytes_per_block = 0;
  });
  add("several groups a segment", qwen3->spec, [](ScheduleConfig& c) { c.kernel.cols_per_warp = 512; });
  add("unfused, one split", small->spec, [](ScheduleConfig& c) {
    c.fusion = Fusion{false, false, false, false, false, false, false, false, false};
    c.attention_kv_block = 512;
  });
  add("1024 threads", small->spec, [](ScheduleConfig& c) {
    c.threads_per_block = 1024;
    c.kernel.cols_per_warp = 128;
  });
  add("128 threads", small->spec, [](ScheduleConfig& c) { c.threads_per_block = 128; });
  add("fp16", fp16, [](ScheduleConfig&) {});
  add("fp32", fp32, [](ScheduleConfig& c) {
    c.kernel.gemv_path = GemvPath::Fma;
    c.kernel.weight_layout = WeightLayout::Row;
  });
  add("window and biases", mistral, [](ScheduleConfig&) {});
  add("qk-norm, head_dim 128", qwen3->spec, [](ScheduleConfig&) {});

  const Case hopper = kCases[3];
  std::vector<Outcome> outcomes(variants.size());
  in_parallel(variants.size(), [&](std::size_t i) { outcomes[i] = build(hopper, variants[i].spec, variants[i].config); });
  for (std::size_t i = 0; i < variants.size(); ++i) {
    CAPTURE(variants[i].name);
    CHECK_MESSAGE(outcomes[i].error.empty(), outcomes[i].error);
    CHECK(outcomes[i].registers > 0);
  }
}
