// Several sequences in one launch: every one to the bit as it is alone, whatever the others do; and batches that mix them up, all noticed.
#include <algorithm>
#include <functional>

#include "core/base/json.h"
#include "core/model/load.h"
#include "kernels/megakernel/checked_run.h"
#include "tests/gpu/megakernel/build_all.h"
#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {
namespace {

std::vector<SequenceRun> draw_sequences(const ModelSpec& spec, int batch, int tokens) {
  std::vector<SequenceRun> out;
  for (int s = 0; s < batch; ++s)  // unequal positions, in no order
    out.push_back({draw(spec, tokens, 500 + static_cast<std::uint64_t>(s)), {}, 7 * s % 11 + 3 * s});
  return out;
}

// Positions at which a sequence of the batch has the bits that it has alone.
Result<int> equal_positions(GpuModel& model, DeviceProgram& alone, const std::vector<SequenceRun>& sequences, const BatchRun& together) {
  int equal = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    AMK_TRY(single, run_checked(model, alone, sequences[s].tokens, {}, static_cast<int>(s)));
    for (std::size_t p = 0; p < single.hashes.size(); ++p) equal += single.hashes[p] == together.sequences[s].hashes[p] ? 1 : 0;
  }
  return equal;
}

Result<DeviceProgram> program_of_batch(GpuModel& model, const ScheduleConfig& config, int batch) {
  PlanOptions options;
  options.batch = batch;
  return program_of(model, config, options);
}

void compare_alone(GpuModel& model, const ScheduleConfig& config, int batch, int tokens, const std::string& name, Checks& checks) {
  auto together = program_of_batch(model, config, batch);
  if (!checks.check(together, name + " builds")) return;
  auto alone = program_of_batch(model, config, 1);
  if (!checks.check(alone, name + " builds for one sequence")) return;
  const auto sequences = draw_sequences(model.spec(), batch, tokens);
  const auto first = run_checked_batch(model, *together, sequences);
  if (!checks.check(first, name + " runs")) return;
  const auto second = run_checked_batch(model, *together, sequences);
  if (!checks.check(second, name + " runs again")) return;
  bool written = true, repeated = first->steady && second->steady;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    written = written && first->sequences[s].unwritten == 0 && first->sequences[s].not_finite == 0;
    repeated = repeated && first->sequences[s].hashes == second->sequences[s].hashes;
  }
  checks.check(written, name + " writes every output of every sequence");
  checks.check(repeated, name + " is the same twice, and steady beside other positions");
  const auto equal = equal_positions(model, *alone, sequences, *first);
  if (!checks.check(equal, name + " runs alone")) return;
  checks.check(*equal == batch * tokens,
               name + ": " + std::to_string(*equal) + " of " + std::to_string(batch * tokens) + " positions have the bits that they have alone");
  checks.check(keeps_to_buffers(model, *together), name + " keeps to its buffers");
}

// A model whose O and down are wide enough that eight warps take their vectors directly (gemv_direct.cuh): two layers, `segs` segments of down a
// warp. From a hidden size of 2,048 on every unit is all warps' work: then spare warps finish rows (device/finishers.cuh); at that size norms go to
// registers.
constexpr int kFinishedBySpareWarps = 2048;
Result<std::unique_ptr<GpuModel>> open_wide(const Bench& bench, int max_seq, int batch, int hidden, int head_dim, int segs) {
  AMK_TRY(ref, resolve_model("toy", ModelSources::from_environment(bench.resources.config())));
  ref.spec.name = "wide";
  ref.spec.layers = 2;
  ref.spec.hidden = hidden;
  ref.spec.head_dim = head_dim;
  ref.spec.heads = 2048 / head_dim;
  ref.spec.kv_heads = ref.spec.heads / 4;
  ref.spec.intermediate = 2048 * segs;
  ref.spec.vocab = 512;
  ref.spec.max_position = 2048;
  AMK_TRY(weights, load_weights(ref));
  return GpuModel::open(bench.device, weights, max_seq, bench.cache, batch);
}

bool is_defined(const BuiltCandidate& built, const std::string& name) {
  for (const std::string& o : built.plan.request.options)
    if (o.rfind("-DAMK_" + name + "=", 0) == 0) return o.back() != '0';
  return false;
}

// Every kernel of `configs` into the build cache, for the batch and alone.
void build_batch(const GpuModel& model, const std::vector<ScheduleConfig>& configs, int batch) {
  std::vector<Build> builds;
  for (const ScheduleConfig& config : configs)
    for (const int sequences : {batch, 1}) {
      builds.push_back({config, {}});
      builds.back().options.batch = sequences;
    }
  build_all(model, builds);
}

// Vectors of O and down in registers, where the device can: with one split and with several (a text goes from the one to the other), merged by O or
// apart, in every order of publishing.
void test_wide(const Bench& bench, Checks& checks) {
  const auto combined = [](int kv_block, const char* publish, int ring = 131072, int max_splits = 0) {
    return R"({"smem_bytes_per_block":)" + std::to_string(ring) + std::string(R"(,"tiling":{"attention":{"kv_block":)") + std::to_string(kv_block) +
           R"(,"max_splits":)" + std::to_string(max_splits) + "}}," + kCombineInO + R"(,"kernel_knobs":{"publish":")" + publish + R"("}})";
  };
  const std::pair<const char*, std::string> configs[] = {
      {"merged by O", combined(64, "confirmed")},  // up to six splits, three of a task
      {"merged by O, two splits at most", combined(64, "confirmed", 131072, 2)},
      {"one split", combined(512, "release")},
      {"combine apart", R"({"smem_bytes_per_block":131072})"},
      {"unfused", R"({"smem_bytes_per_block":131072,"fusion_grouping":[]})"},
      {"flagged, staged", combined(64, "flagged", 65536)},  // eight vectors of 8,192 have their room
      {"several steps a launch", R"({"smem_bytes_per_block":131072,"kernel_knobs":{"tokens_per_launch":4}})"},
      {"the cache through the ring", R"({"smem_bytes_per_block":131072,"tiling":{"attention":{"kv_block":128}},"kernel_knobs":{"kv_path":"ring"}})"},
  };
  struct Case {
    int batch, hidden, head_dim, segs;
  };
  for (const Case& c : {Case{8, kFinishedBySpareWarps, 64, 4}, Case{5, 256, 128, 2}, Case{5, kFinishedBySpareWarps, 128, 2}, Case{4, 256, 64, 7},
                        Case{4, 2 * kFinishedBySpareWarps, 64, 2}, Case{3, kFinishedBySpareWarps, 64, 1}, Case{2, kFinishedBySpareWarps, 32, 1}}) {
    const std::string name = "wide@b" + std::to_string(c.batch) + ", hidden " + std::to_string(c.hidden) + ", heads of " + std::to_string(c.head_dim);
    auto model = open_wide(bench, 400, c.batch, c.hidden, c.head_dim, c.segs);
    if (!checks.check(model, name + " opens")) continue;
    std::vector<ScheduleConfig> all;
    for (const auto& [what, text] : configs) {
      auto config = config_of(text);
      if (checks.check(config, what)) all.push_back(*config);
    }
    build_batch(**model, all, c.batch);
    for (std::size_t i = 0; i < all.size(); ++i) {
      PlanOptions options;
      options.batch = c.batch;
      const auto built = (*model)->build(all[i], options);
      if (!checks.check(built, name + ", " + configs[i].first + " is built")) continue;
      const bool hopper = built->plan.request.architecture == "sm_90a", flagged = all[i].kernel.publish == Publish::Flagged;
      checks.check(is_defined(*built, "DOWN_SEGS") == (hopper && !flagged) && is_defined(*built, "O_SEGS") == (hopper && !flagged),
                   name + ", " + configs[i].first + " takes its vectors as expected");
      const bool spare =
          hopper && !flagged && c.hidden >= kFinishedBySpareWarps && all[i].fusion.o_add;  // the one config that is unfused is so throughout
      checks.check(is_defined(*built, "FINISHERS") == spare && is_defined(*built, "NORM_DIRECT") == (spare && c.hidden == kFinishedBySpareWarps),
                   name + ", " + configs[i].first + " is finished by whom it should be");
      const bool merges = std::string_view(configs[i].first).starts_with("merged");
      compare_alone(**model, all[i], c.batch, merges ? 330 : bench.quick ? 20 : 90, name + ", " + configs[i].first, checks);
    }
  }
}

// The batch of a program whose descriptors were changed: none of these may look right.
void test_mixed_up(const Bench& bench, Checks& checks) {
  auto opened = bench.model("small", 128, 3);
  if (!checks.check(opened, "small opens for three")) return;
  GpuModel& model = **opened;
  const auto built = model.build(ScheduleConfig{});
  auto alone = program_of_batch(model, ScheduleConfig{}, 1);
  if (!checks.check(built, "batch of three builds") || !checks.check(alone, "alone builds")) return;
  const auto sequences = draw_sequences(model.spec(), 3, 12);
  constexpr int kAttention = 5, kArgmax = 10;
  const std::pair<const char*, std::function<void(DevicePlan&)>> wrong[] = {
      {"attention of another sequence",
       [](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (t.op == kAttention && t.layer == 1 && t.matrix == 1) t.matrix = 2;
       }},
      {"argmax into another sequence's place",
       [](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (t.op == kArgmax && t.matrix == 2) t.matrix = 0;
       }},
      {"queries of the sequence before",
       [&](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (t.op == kAttention && t.layer == 0 && t.matrix == 2) t.input -= static_cast<std::uint32_t>(model.spec().q_rows() * 2);
       }},
  };
  for (const auto& [what, change] : wrong) {
    BuiltCandidate candidate = *built;
    change(candidate.plan);
    auto program = model.load(candidate);
    if (!checks.check(program, std::string(what) + " loads")) continue;
    const auto run = run_checked_batch(model, *program, sequences);
    bool noticed = !run;
    if (run) {
      const auto equal = equal_positions(model, *alone, sequences, *run);
      noticed = equal && *equal < 3 * 12;
    }
    checks.check(noticed, std::string("noticed: ") + what);
  }
}

}  // namespace

void test_batch(const Bench& bench, Checks& checks) {
  const std::pair<const char*, std::string> configs[] = {
      {"default", R"({"smem_bytes_per_block":98304})"},
      {"combine in o_proj", kCombined},
      {"unfused", R"({"smem_bytes_per_block":98304,"fusion_grouping":[]})"},
      {"544 threads, counters per head",
       R"({"threads_per_block":544,"smem_bytes_per_block":98304,"kernel_knobs":{"counters":"kv_head","cols_per_warp":128}})"},
      {"row", R"({"smem_bytes_per_block":98304,"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})"},
      {"confirmed", R"({"smem_bytes_per_block":98304,"kernel_knobs":{"publish":"confirmed"}})"},
      {"flagged, one split", R"({"smem_bytes_per_block":98304,"tiling":{"attention":{"kv_block":512}},"kernel_knobs":{"publish":"flagged"}})"},
      {"direct", R"({"smem_bytes_per_block":0})"},
  };
  for (const int batch : {2, 3, 4, 8}) {
    auto model = bench.model("small", 300, batch);
    if (!checks.check(model, "small opens for " + std::to_string(batch))) continue;
    if (bench.quick && batch != 3 && batch != 8) continue;
    std::vector<ScheduleConfig> all;
    for (const auto& [what, text] : configs) {
      auto config = config_of(text);
      if (!checks.check(config, what)) continue;
      if (config->smem_bytes_per_block > 98304) config->smem_bytes_per_block = 98304;
      all.push_back(*config);
    }
    build_batch(**model, all, batch);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& what = configs[i].first;
      const ScheduleConfig* config = &all[i];
      compare_alone(**model, *config, batch, bench.quick ? 20 : 140, "small@b" + std::to_string(batch) + ", " + what, checks);
    }
  }
  for (const auto& [name, ring] : {std::pair{"toy", 65536}, {"smollm2-135m", 131072}}) {
    if (bench.quick && std::string(name) == "smollm2-135m") continue;
    for (const int batch : {2, 8}) {
      auto model = bench.model(name, 160, batch);
      if (!checks.check(model, std::string(name) + " opens")) continue;
      ScheduleConfig config;
      config.smem_bytes_per_block = ring;
      compare_alone(**model, config, batch, 24, std::string(name) + "@b" + std::to_string(batch), checks);
    }
  }
  test_wide(bench, checks);
  test_mixed_up(bench, checks);

  // Through the judge: oracle a sequence, alone, timing.
  const auto workload = bench.workload("small@b4");
  if (!checks.check(workload, "small@b4 workload")) return;
  const auto link = bench.process_link();
  const auto judge = bench.judge(*link);
  const auto verdict = judge->judge(**workload, (*workload)->default_config(), std::nullopt, {});
  if (!checks.check(verdict, "judged")) return;
  checks.check(verdict->status == VerdictStatus::Ok && verdict->correct && verdict->latency_us, "small@b4 is ok: " + verdict->notes);
  checks.check(verdict->regime == "bf16-b4", "its regime is " + verdict->regime);
}

namespace {

void few_steps_of_three(const Bench& bench, Checks& checks, const PlanOptions& options) {
  const auto few_steps = [&](GpuModel& model, const std::string& text) {
    const auto config = config_of(text);
    if (!checks.check(config, text)) return;
    auto program = program_of(model, *config, options);
    if (!checks.check(program, text)) return;
    program->set_budget_us(60e6);
    const auto run = run_checked_batch(model, *program, std::vector<SequenceRun>{{{1, 5, 9}, {}, 0}, {{4, 2, 8}, {}, 1}, {{7, 7, 3}, {}, 0}});
    if (!checks.check(run, text)) return;
    for (const CheckedRun& s : run->sequences) checks.check(s.unwritten == 0 && s.not_finite == 0, "all written of three: " + text);
  };
  auto three = bench.model("toy", 64, 3);
  if (!checks.check(three, "toy opens for three sequences")) return;
  for (const char* text : {R"({"smem_bytes_per_block":98304})", R"({"smem_bytes_per_block":0,"fusion_grouping":[]})",
                           R"({"smem_bytes_per_block":98304,"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})"})
    few_steps(**three, text);
  for (const int hidden : {256, kFinishedBySpareWarps}) {  // vectors in registers, where the device can
    auto wide = open_wide(bench, 128, 3, hidden, 64, 1);
    if (!checks.check(wide, "wide opens for three sequences")) return;
    for (const std::string& text : {std::string(R"({"smem_bytes_per_block":98304,"kernel_knobs":{"publish":"confirmed"}})"), kCombined})
      few_steps(**wide, text);
  }
}

}  // namespace

void test_sanitize_batch(const Bench& bench, Checks& checks) { few_steps_of_three(bench, checks, {}); }

void test_racecheck_batch(const Bench& bench, Checks& checks) { few_steps_of_three(bench, checks, full_barriers()); }

}  // namespace amk::gpu_test
