// Bad kernels, each the right one with a line of its source changed: all must fail the gate.
#include "kernels/megakernel/checked_run.h"
#include "tests/gpu/megakernel/build_all.h"
#include "tests/gpu/megakernel/changed_lines.h"
#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {
namespace {

// Each must fail the gate, and the one that changes nothing pass it.
void refuse(const Bench& bench, const char* model_name, const ScheduleConfig& config, std::span<const ChangedLine> lines, Checks& checks) {
  auto opened = bench.model(model_name, 300);
  if (!checks.check(opened, std::string(model_name) + " opens")) return;
  GpuModel& model = **opened;
  const auto reference = GpuReference::create(model.weights(), GpuReference::plan(model.spec(), 300, 3), 9, {});
  if (!checks.check(reference, "reference")) return;
  const auto built = model.build(config);
  if (!checks.check(built, "builds")) return;
  try_changed(
      bench, model, lines, [&](const ChangedLine&) -> const BuiltCandidate& { return *built; },
      [&](const ChangedLine& line, DeviceProgram& program) -> std::optional<Seen> {
        const auto run = run_checked(model, program, (*reference)->tokens(), (*reference)->positions());
        if (!checks.check(run, line.name)) return std::nullopt;
        std::vector<int> next;
        for (const int p : (*reference)->positions()) next.push_back(run->next_tokens[static_cast<std::size_t>(p)]);
        const auto outcome = (*reference)->compare(run->logits, next, true);
        return Seen{outcome.correct, outcome.failure};
      },
      checks);
}

}  // namespace

void test_wrong_int8(const Bench& bench, Checks& checks) { refuse(bench, "small@int8", ScheduleConfig{}, changed_int8(), checks); }

void test_wrong_slices(const Bench& bench, Checks& checks) {
  ScheduleConfig config;
  config.threads_per_block = 384;
  config.smem_bytes_per_block = 65536;
  config.attention_kv_block = 128;
  config.fusion.combine_o = true;
  config.kernel.publish = Publish::Flagged;
  config.kernel.gemv_path = GemvPath::Slices;
  refuse(bench, "small", config, changed_slices(), checks);
}

void test_wrong_attention_o(const Bench& bench, Checks& checks) {
  ScheduleConfig config;
  config.threads_per_block = 352;
  config.smem_bytes_per_block = 65536;
  config.fusion.attention_combine = config.fusion.combine_o = true;
  config.kernel.publish = Publish::Flagged;
  config.kernel.gemv_path = GemvPath::Slices;
  refuse(bench, "small", config, changed_attention_o(), checks);
}

}  // namespace amk::gpu_test
