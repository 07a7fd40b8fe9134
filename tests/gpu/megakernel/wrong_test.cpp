// Bad candidates: plans that make something else must fail the gate, and those whose stream runs dry must be named and survived.
#include <algorithm>
#include <functional>
#include <span>

#include "core/base/json.h"
#include "core/program/packing.h"
#include "kernels/megakernel/checked_run.h"
#include "tests/gpu/megakernel/checks.h"

namespace amk::gpu_test {
namespace {

constexpr int kLmHead = 5, kDown = 4, kO = 2, kAttention = 5, kGemv = 2;

bool is_gemv(const amk_vm::TaskDesc& t, int matrix) { return t.op == kGemv && t.matrix == matrix; }

}  // namespace

void test_wrong(const Bench& bench, Checks& checks) {
  auto opened = bench.model("small", 300);
  if (!checks.check(opened, "small opens")) return;
  GpuModel& model = **opened;
  const auto reference = GpuReference::create(model.weights(), GpuReference::plan(model.spec(), 300, 3), 9, {});
  if (!checks.check(reference, "reference")) return;
  ScheduleConfig config;
  config.smem_bytes_per_block = 0;  // direct loads: a task's weights are where its descriptor says
  const auto built = model.build(config);
  if (!checks.check(built, "direct builds")) return;
  const auto outcome_of = [&](const std::function<void(DevicePlan&)>& change) -> Result<GpuReference::Outcome> {
    BuiltCandidate candidate = *built;
    change(candidate.plan);
    AMK_TRY(program, model.load(candidate));
    AMK_TRY(run, run_checked(model, program, (*reference)->tokens(), (*reference)->positions()));
    AMK_TRY(again, run_checked(model, program, (*reference)->tokens(), {}));
    std::vector<int> next;
    for (const int p : (*reference)->positions()) next.push_back(run.next_tokens[static_cast<std::size_t>(p)]);
    return (*reference)->compare(run.logits, next, run.hashes == again.hashes && run.unwritten == 0);
  };
  const auto good = outcome_of([](DevicePlan&) {});
  if (!checks.check(good, "unchanged runs")) return;
  checks.check(good->correct, "unchanged passes: " + good->failure);

  const GpuLayout layout(model.spec(), WeightLayout::Packed);
  const auto rows_of = [&](Matrix m, int rows) { return static_cast<std::uint32_t>(rows * layout.row_bytes(m) / 16); };
  const std::pair<const char*, std::function<void(DevicePlan&)>> wrong[] = {
      {"off by one unit of rows in the head",
       [&](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (is_gemv(t, kLmHead) && t.row_begin > 0) t.weight -= rows_of(Matrix::LmHead, 8);
       }},
      {"last tile dropped",
       [&](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (is_gemv(t, kLmHead) && t.row_end == static_cast<std::uint32_t>(model.spec().vocab)) t.row_end -= 8;
       }},
      {"another layer's weights",
       [&](DevicePlan& plan) {
         const auto shift = static_cast<std::uint32_t>((layout.matrix_offset(Matrix::Down, 1) - layout.matrix_offset(Matrix::Down, 0)) / 16);
         for (auto& t : plan.tasks)
           if (is_gemv(t, kDown) && t.layer == 0) t.weight += shift;
       }},
      {"a residual forgotten",
       [&](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (is_gemv(t, kO) && t.layer == 2) t.fused &= static_cast<std::uint16_t>(~kFusedResidualAdd);
       }},
      {"heads swapped in the query",
       [&](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (t.op == kAttention && t.layer == 1) t.input ^= static_cast<std::uint32_t>(model.spec().head_dim * 2);
       }},
      {"the norm's weights of another layer",
       [&](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (is_gemv(t, 1) && t.layer == 3) t.norm = static_cast<std::uint32_t>(layout.norm_offset(WeightKind::MlpNorm, 0));
       }},
      {"keys and values of another layer",
       [&](DevicePlan& plan) {
         for (auto& t : plan.tasks)
           if (t.op == kAttention && t.layer == 2) t.layer = 1;
       }},
  };
  for (const auto& [name, change] : wrong) {
    const auto outcome = outcome_of(change);
    checks.check(!outcome || !outcome->correct, std::string("refused: ") + name);
  }
  // A position table of another base.
  {
    auto other = bench.model("small", 300);
    if (checks.check(other, "small again")) {
      ModelSpec spec = (*other)->spec();
      spec.rope.theta *= 4;
      const auto sequence = DeviceSequence::create(spec, gpu_format(spec.dtype), 300, (*other)->stream());
      checks.check(sequence, "sequence with another base");
      auto program = (*other)->load(*built);
      if (sequence && checks.check(program, "loads")) {
        const auto weights = (*other)->layout_weights(WeightLayout::Packed);
        DeviceProgram& p = *program;
        std::vector<float> logits;
        std::vector<int> next;
        checks.check(sequence->set_tokens((*reference)->tokens(), 0, (*other)->stream()), "tokens set");
        for (std::size_t i = 0; i < (*reference)->tokens().size(); ++i) {
          checks.check(p.step(**weights, *sequence, {static_cast<int>(i), false}, (*other)->stream()), "step");
          checks.check(p.check((*other)->stream()), "step done");
          if (!std::binary_search((*reference)->positions().begin(), (*reference)->positions().end(), static_cast<int>(i))) continue;
          const auto row = sequence->read_logits((*other)->stream());
          const auto token = sequence->read_next_token((*other)->stream());
          if (!row || !token) continue;
          logits.insert(logits.end(), row->begin(), row->end());
          next.push_back(*token);
        }
        checks.check(!(*reference)->compare(logits, next, true).correct, "refused: wrong rope base");
      }
    }
  }
}

namespace {

// The streams of the multiprocessor that has most.
std::span<amk_vm::StreamDesc> longest_stream(DevicePlan& plan) {
  const auto longest =
      std::max_element(plan.queues.begin(), plan.queues.end(), [](const auto& a, const auto& b) { return a.stream_count < b.stream_count; });
  return std::span(plan.streams).subspan(longest->stream_first, longest->stream_count);
}

}  // namespace

// A stream that brings fewer chunks than its consumers wait for: the launch ends by its budget, and the next program is none the worse.
void test_wrong_ring(const Bench& bench, Checks& checks) {
  auto opened = bench.model("small", 300);
  if (!checks.check(opened, "small opens")) return;
  GpuModel& model = **opened;
  for (const char* text : {"{}", R"({"kernel_knobs":{"cpasync":true}})"}) {
    const auto config = config_of(text);
    if (!checks.check(config, text)) continue;
    const auto built = model.build(*config);
    if (!checks.check(built, std::string("builds ") + text)) continue;
    const std::pair<const char*, std::function<void(DevicePlan&)>> wrong[] = {
        {"nothing", [](DevicePlan&) {}},
        {"the last task's last chunk",
         [](DevicePlan& plan) {
           amk_vm::StreamDesc& last = longest_stream(plan).back();
           last.bytes = (last.bytes - 1) / last.chunk_bytes * last.chunk_bytes;
         }},
        {"all of a block's first task", [](DevicePlan& plan) { longest_stream(plan).front().bytes = 0; }},
        {"everything of a block",
         [](DevicePlan& plan) {
           for (amk_vm::StreamDesc& stream : longest_stream(plan)) stream.bytes = 0;
         }},
    };
    for (const auto& [name, change] : wrong) {
      const std::string what = std::string(text) + ", missing: " + name;
      BuiltCandidate candidate = *built;
      change(candidate.plan);
      auto program = model.load(candidate);
      if (!checks.check(program, what)) continue;
      program->set_budget_us(200'000);
      checks.check(model.sequence().set_tokens(std::vector<int>{1}, 0, model.stream()), "token set");
      const Status ran = model.run(*program, {0, false});
      const bool timeout = !ran && ran.error().kind == ErrorKind::Timeout;
      checks.check(timeout == (std::string_view(name) != "nothing") && (timeout || ran), what + (ran ? " ran" : ": " + ran.error().message));
    }
    auto program = model.load(*built);
    if (!checks.check(program, "loads after them")) continue;
    checks.check(model.run(*program, {0, false}), "runs after them");
  }
}

}  // namespace amk::gpu_test
