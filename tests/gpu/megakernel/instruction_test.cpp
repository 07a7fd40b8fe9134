// One instruction kind alone on the GPU: every kind and fixture against the reference, knobs, wrong kernels, verdicts through a worker process.
#include <algorithm>
#include <functional>

#include "core/base/json.h"
#include "core/program/lower_instruction.h"
#include "kernels/megakernel/gpu_instruction.h"
#include "tests/gpu/megakernel/build_all.h"
#include "tests/gpu/megakernel/checks.h"

namespace amk::gpu_test {
namespace {

constexpr int kMaxSeq = 520;

struct Kind {
  std::string op;
  std::shared_ptr<const InstructionReference> reference;
};

Result<InstructionReference::Outcome> outcome_of(GpuModel& model, const Kind& kind, BuiltCandidate candidate,
                                                 const std::function<void(DevicePlan&)>& change = {}) {
  if (change) change(candidate.plan);
  AMK_TRY(program, model.load(candidate));
  std::vector<float> outputs;
  bool repeated = true;
  std::string bad;
  for (const InstructionDraw& draw : kind.reference->draws()) {
    AMK_TRY(first, run_instruction(model, program, draw));
    AMK_TRY(second, run_instruction(model, program, draw));
    repeated = repeated && first.hash == second.hash;
    if (first.unwritten != 0) bad = "outputs were not written";
    if (first.not_finite != 0) bad = "an output is not a number";
    if (!first.inputs_unchanged || !second.inputs_unchanged) bad = "inputs were changed";
    if (!first.partials_agree) bad = "the argmax partials are not those of the logits";
    outputs.insert(outputs.end(), first.outputs.begin(), first.outputs.end());
  }
  AMK_TRY(guards, program.damaged_guards(model.stream()));
  if (guards != 0) bad = "guards are damaged";
  auto outcome = kind.reference->compare(outputs, repeated);
  if (outcome.failure.empty()) outcome.failure = bad;
  outcome.correct = outcome.failure.empty();
  return outcome;
}

Result<Kind> kind_of(GpuModel& model, int max_seq, std::string_view op) {
  const ModelSpec& spec = model.spec();
  AMK_TRY(reference,
          InstructionReference::create(model.weights(), op, max_seq, gpu_format(spec.dtype), instruction_draws(spec, op, max_seq, 21), {}));
  return Kind{std::string(op), std::move(reference)};
}

// Defaults that the workload would take: fp32 needs the fma path and rows.
ScheduleConfig plain(const ModelSpec& spec) {
  ScheduleConfig config;
  config.smem_bytes_per_block = 65536;
  if (spec.dtype == DType::F32) {
    config.kernel.gemv_path = GemvPath::Fma;
    config.kernel.weight_layout = WeightLayout::Row;
  }
  return config;
}

struct Variant {
  const char* what;
  ScheduleConfig config;
};

// The default and, of `knobs`, each of what decides an instruction's code.
std::vector<Variant> variants(const ModelSpec& spec, bool knobs) {
  const ScheduleConfig config = plain(spec);
  std::vector<Variant> out = {{"default", config}};
  if (!knobs) return out;
  const auto with = [&](const char* what, auto change) {
    out.push_back({what, config});
    change(out.back().config);
  };
  with("unfused", [](ScheduleConfig& c) { c.fusion = Fusion{false, false, false, false, false, false, false, false, false}; });
  with("direct loads", [](ScheduleConfig& c) { c.smem_bytes_per_block = 0; });
  with("N_tile 64, round robin", [](ScheduleConfig& c) {
    c.gemv_n_tile = 64;
    c.sm_assignment = SmAssignment::RoundRobin;
  });
  with("kv_block 256", [](ScheduleConfig& c) { c.attention_kv_block = 256; });
  with("confirmed, per-head counters", [](ScheduleConfig& c) {
    c.kernel.publish = Publish::Confirmed;
    c.kernel.counters = CounterGranularity::KvHead;
  });
  with("cp.async", [](ScheduleConfig& c) { c.kernel.cpasync = true; });
  with("512 threads", [](ScheduleConfig& c) { c.threads_per_block = 512; });
  with("depth 0", [](ScheduleConfig& c) { c.pipelining_depth = 0; });
  with("fma rows", [](ScheduleConfig& c) {
    c.kernel.gemv_path = GemvPath::Fma;
    c.kernel.weight_layout = WeightLayout::Row;
  });
  return out;
}

PlanOptions only(std::string_view op) {
  PlanOptions options;
  options.instruction = op;
  return options;
}

void test_model(const Bench& bench, Checks& checks, const std::string& name, bool knobs) {
  auto opened = bench.model(name, kMaxSeq);
  if (!checks.check(opened, name + " opens")) return;
  GpuModel& model = **opened;
  const int max_seq = std::min(kMaxSeq, model.spec().max_position);
  const std::string base = std::filesystem::path(name).filename().string();
  const std::vector<Variant> all = variants(model.spec(), knobs);
  std::vector<Build> builds;
  for (const std::string_view op : instruction_ops())
    for (const Variant& v : all) builds.push_back({v.config, only(op)});
  build_all(model, builds);
  for (const std::string_view op : instruction_ops()) {
    const auto kind = kind_of(model, max_seq, op);
    if (!checks.check(kind, base + "#" + std::string(op) + ": reference")) continue;
    for (const Variant& v : all) {
      const auto built = model.build(v.config, only(op));
      if (!built && built.error().kind == ErrorKind::Rejected) continue;
      const std::string label = base + "#" + std::string(op) + ", " + v.what;
      if (!checks.check(built, label + " builds")) continue;
      const auto outcome = outcome_of(model, *kind, *built);
      if (checks.check(outcome, label + " runs")) checks.check(outcome->correct, label + ": " + outcome->failure);
    }
  }
}

void test_wrong_kinds(const Bench& bench, Checks& checks) {
  auto opened = bench.model("small", kMaxSeq);
  if (!checks.check(opened, "small opens")) return;
  GpuModel& model = **opened;
  ScheduleConfig config = plain(model.spec());
  config.smem_bytes_per_block = 0;  // direct loads: a task's weights are where its descriptor says
  const auto fails = [&](const char* op, const char* what, const std::function<void(DevicePlan&)>& change) {
    const auto built = model.build(config, only(op));
    const auto kind = kind_of(model, kMaxSeq, op);
    const std::string label = std::string("small#") + op + ", " + what;
    if (!checks.check(built, label + " builds") || !checks.check(kind, label + " reference")) return;
    const auto outcome = outcome_of(model, *kind, *built, change);
    if (checks.check(outcome, label + " runs")) checks.check(!outcome->correct, label + " must fail");
  };
  const auto last_rows = [](DevicePlan& plan) {
    const auto end =
        std::max_element(plan.tasks.begin(), plan.tasks.end(), [](const auto& a, const auto& b) { return a.row_end < b.row_end; })->row_end;
    for (auto& t : plan.tasks)
      if (t.row_end == end && t.row_begin + 8 < end) t.row_end -= 8;
  };
  for (const char* op : {"qkv", "o_proj", "gate_up", "down", "lm_head"}) fails(op, "last rows dropped", last_rows);
  fails("down", "a residual forgotten", [](DevicePlan& plan) {
    for (auto& t : plan.tasks)
      if (t.layer == 1) t.fused &= static_cast<std::uint16_t>(~kFusedResidualAdd);
  });
  const GpuLayout layout(model.spec(), WeightLayout::Packed);
  fails("down", "another layer's weights", [&](DevicePlan& plan) {
    const auto shift = static_cast<std::uint32_t>((layout.matrix_offset(Matrix::Down, 1) - layout.matrix_offset(Matrix::Down, 0)) / 16);
    for (auto& t : plan.tasks)
      if (t.layer == 0) t.weight += shift;
  });
  fails("attention", "another layer's cache", [](DevicePlan& plan) {
    for (auto& t : plan.tasks)
      if (t.layer == 1) t.layer = 0;
  });
}

void test_verdicts(const Bench& bench, Checks& checks) {
  const auto link = bench.process_link();
  const auto judge = bench.judge(*link);
  const auto whole = bench.workload("small");
  if (!checks.check(whole, "small opens for verdicts")) return;
  for (const std::string_view op : instruction_ops()) {
    const auto workload = InstructionWorkload::create(*whole, op);
    if (!checks.check(workload, "small#" + std::string(op))) continue;
    const Json config = (*workload)->default_config();
    Json other = config;
    other["threads_per_block"] = 416;
    const auto verdict = judge->judge(**workload, config, other, {});
    if (!checks.check(verdict, "judging small#" + std::string(op))) continue;
    checks.check(verdict->correct && verdict->latency_kind == LatencyKind::MeasuredGpu && verdict->versus.has_value(),
                 "verdict of small#" + std::string(op) + ": " + to_json(*verdict).dump());
    std::printf("small#%s: %.2f us, %s\n", std::string(op).c_str(), verdict->latency_us.value_or(0), verdict->notes.c_str());
  }
  // The whole step is judged after, by the same worker, as before.
  const auto verdict = judge->judge(**whole, (*whole)->default_config(), std::nullopt, {});
  if (checks.check(verdict, "judging small afterwards")) checks.check(verdict->correct, "small after its parts: " + to_json(*verdict).dump());
}

}  // namespace

void test_instruction(const Bench& bench, Checks& checks) {
  test_model(bench, checks, "small", true);
  test_model(bench, checks, "small@int8", !bench.quick);
  test_model(bench, checks, "toy-2L", !bench.quick);
  for (const std::string& fixture : bench.fixture_models()) test_model(bench, checks, fixture, !bench.quick);
  if (!bench.quick) test_model(bench, checks, "llama-3.2-1b", false);
  test_wrong_kinds(bench, checks);
  test_verdicts(bench, checks);
}

}  // namespace amk::gpu_test
