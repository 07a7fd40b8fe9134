// Bad candidates: kernels that compute something else must fail the gate; ones that hang or crash must be named and survived.
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

namespace {

// A kernel with one line of its source changed. No file: nothing is.
struct Change {
  const char *name, *file, *from, *to;
};

// Each must fail the gate, and the one that changes nothing pass it.
void refuse(const Bench& bench, const char* model_name, const ScheduleConfig& config, std::span<const Change> changes, Checks& checks) {
  auto opened = bench.model(model_name, 300);
  if (!checks.check(opened, std::string(model_name) + " opens")) return;
  GpuModel& model = **opened;
  const auto reference = GpuReference::create(model.weights(), GpuReference::plan(model.spec(), 300, 3), 9, {});
  if (!checks.check(reference, "reference")) return;
  const auto compiler = NvrtcCompiler::open();
  const auto cache = BuildCache::open(bench.cache);
  const auto built = model.build(config);
  if (!checks.check(built, "builds") || !checks.check(compiler, "compiler") || !checks.check(cache, "cache")) return;
  for (const Change& change : changes) {
    BuiltCandidate candidate = *built;
    const bool nothing = change.from[0] == '\0';
    bool replaced = nothing;
    for (auto& [name, text] : candidate.plan.request.headers) {
      const std::size_t at = name == change.file && !nothing ? text.find(change.from) : std::string::npos;
      if (at == std::string::npos) continue;
      text.replace(at, std::string_view(change.from).size(), change.to);
      replaced = true;
    }
    if (!checks.check(replaced, std::string("the source has the line of: ") + change.name)) continue;
    auto made = cache->build(*compiler, candidate.plan.request);
    if (!checks.check(made, std::string("builds: ") + change.name)) continue;
    candidate.kernel = std::move(made->kernel);
    auto program = model.load(candidate);
    if (!checks.check(program, change.name)) continue;
    const auto run = run_checked(model, *program, (*reference)->tokens(), (*reference)->positions());
    if (!checks.check(run, change.name)) continue;
    std::vector<int> next;
    for (const int p : (*reference)->positions()) next.push_back(run->next_tokens[static_cast<std::size_t>(p)]);
    const auto outcome = (*reference)->compare(run->logits, next, true);
    checks.check(outcome.correct == nothing, std::string(nothing ? "passes unchanged: " : "refused: ") + change.name + " " + outcome.failure);
  }
}

}  // namespace

// What only the products of an int8 model can get wrong.
void test_wrong_int8(const Bench& bench, Checks& checks) {
  const Change changes[] = {
      {"nothing", "epilogue.cuh", "", ""},
      {"scales dropped", "epilogue.cuh",
       "sum = make_float4(sum.x * (scale.x * one), sum.y * (scale.y * one), sum.z * (scale.z * one), sum.w * (scale.w * one));",
       "sum = make_float4(sum.x * one, sum.y * one, sum.z * one, sum.w * one);"},
      {"scales of the next four rows", "epilogue.cuh", "task.layer)) + first;", "task.layer)) + first + 4;"},
      {"another matrix' scales", "epilogue.cuh", "scale_offset(task.matrix,", "scale_offset(task.matrix == kDown ? kO : task.matrix,"},
      {"sign bits of weights as magnitudes", "segment_int8.cuh", "s32.s8.s8.s32", "s32.u8.s8.s32"},
      {"the vector's bytes unsigned", "fixed_point.cuh", "__byte_perm(a, b, 0x7632) ^ 0x80808080u", "__byte_perm(a, b, 0x7632)"},
      {"the last limb lost", "segment_int8.cuh", "65536.0f", "0.0f"},
      {"halves of a lane's columns swapped", "segment_int8.cuh", "lane / 4 % 2 * 32", "(lane / 4 % 2 ^ 1) * 32"},
      {"another power of two", "fixed_point.cuh", "(bounded - 21) << 23", "(bounded - 20) << 23"},
  };
  refuse(bench, "small@int8", ScheduleConfig{}, changes, checks);
}

// What only slices can get wrong.
void test_wrong_slices(const Bench& bench, Checks& checks) {
  ScheduleConfig config;
  config.threads_per_block = 384;
  config.smem_bytes_per_block = 65536;
  config.attention_kv_block = 128;
  config.fusion.combine_o = true;
  config.kernel.publish = Publish::Flagged;
  config.kernel.gemv_path = GemvPath::Slices;
  const Change changes[] = {
      {"nothing", "slices.cuh", "", ""},
      {"a warp's sums forgotten", "slice_unit_end.cuh", "(q[0].x + q[0].y)", "q[0].x"},
      {"the norm's scale forgotten", "slices.cuh", "if (norm) v *=", "if (false) v *="},
      {"pairs of the vector in another order", "slice_vector.cuh", "from + 2 * k", "from + 2 * (k ^ 1)"},
      {"rotation the other way", "slice_unit_end.cuh", "first_half ? -block.rope()", "first_half ? block.rope()"},
      {"up through silu", "slice_unit_end.cuh", "silu(v) * other", "silu(other) * v"},
      {"the residual forgotten", "slice_unit_end.cuh", "v + residual_sum(block, p, index)", "v"},
      {"the second half of a block's columns twice", "slice_weights.cuh", "chunk + at + 512, there", "chunk + at, there"},
      {"the norm's scale forgotten by the LM head", "slice_lm_head.cuh", "unit.row() * scale", "unit.row()"},
      {"the LM head's vector in another order", "slice_lm_head.cuh", "lane % 2 * 4 + lane % 8 / 2", "lane % 8"},
      {"another unit's rows of the LM head", "slice_lm_head.cuh", "(mine - first) * (kHiddenBlocks * 1024)", "0"},
      {"the key of this step in the other half", "attention_slices.cuh", "in_tile / 2 % 2;", "1 - in_tile / 2 % 2;"},
      {"the value of this step at another position", "attention_slices.cuh", "in_tile % 4 == static_cast<u32>(e)",
       "in_tile % 4 == static_cast<u32>(3 - e)"},
      {"a warp's record forgotten", "attention_slices.cuh", "const u32 warps = tiles", "const u32 warps = tiles > 1 ? 1 : tiles"},
  };
  refuse(bench, "small", config, changes, checks);
}

// What only attention and o_proj in one instruction can get wrong.
void test_wrong_attention_o(const Bench& bench, Checks& checks) {
  ScheduleConfig config;
  config.threads_per_block = 352;
  config.smem_bytes_per_block = 65536;
  config.fusion.attention_combine = config.fusion.combine_o = true;
  config.kernel.publish = Publish::Flagged;
  config.kernel.gemv_path = GemvPath::Slices;
  const Change changes[] = {
      {"nothing", "attention_o.cuh", "", ""},
      {"a warp's record forgotten", "attention_o.cuh", "(records, kConsumerWarps, i /", "(records, kConsumerWarps - 1, i /"},
      {"the head's vector in another order", "attention_o.cuh", "i % 2 * 4 + i % 8 / 2", "i % 8"},
      {"the head's vector not over its total", "attention_o.cuh", "merged.a * inverse", "merged.a"},
      {"keys of the tile before", "attention_o.cuh", "stage.keys + i * kTile", "stage.keys + (i > 0 ? i - 1 : 1) * kTile"},
      {"pieces of this step's row in another order", "attention_o.cuh", "piece % kPieces ^ cache_swizzle(kHeadDim, row)", "piece % kPieces ^ 1"},
      {"a head's values for another head", "attention_o.cuh", "make_float4(o[0][odd], o[0][odd + 2],", "make_float4(o[0][1 - odd], o[0][3 - odd],"},
      {"the second half of a block's weights twice", "attention_o.cuh", "low = weights.piece[j * 2], high = weights.piece[j * 2 + 1]",
       "low = weights.piece[j * 2], high = weights.piece[j * 2]"},
      {"a head's sum forgotten by gate/up", "slice_vector.cuh", "for (int s = 1; s < kSums; ++s)", "for (int s = 2; s < kSums; ++s)"},
      {"a head's sum forgotten by down's residual", "slice_unit_end.cuh", "if (i < residuals) sum +=", "if (i < residuals - 1) sum +="},
      {"the residual in no head's sum", "slice_unit_end.cuh", "task.residual == kNoOffset ? 0 : 1;", "0;"},
  };
  refuse(bench, "small", config, changes, checks);
}

void test_judge(const Bench& bench, Checks& checks) {
  const auto workload = bench.workload("small");
  if (!checks.check(workload, "small workload")) return;
  std::string requested;  // of the worker
  const auto link = bench.process_link();
  const auto judge = bench.judge(*link, &requested);
  const Json good = (*workload)->default_config();
  const auto canonical = [&](const char* text) { return (*workload)->canonical(json_of(text)).value_or(Json(nullptr)); };

  const auto first = judge->judge(**workload, good, std::nullopt, {});
  if (!checks.check(first, "judged")) return;
  checks.check(first->status == VerdictStatus::Ok && first->correct, "default is ok: " + first->notes);
  checks.check(first->latency_us && *first->latency_us > 0 && first->latency_kind == LatencyKind::MeasuredGpu, "it has a measured latency");
  checks.check(first->correctness && first->correctness->bitwise_repeatable, "and is repeatable");
  checks.check(first->device == bench.device.uuid, "on this GPU");

  const auto against = judge->judge(**workload, canonical(R"({"threads_per_block":160})"), good, {});
  if (checks.check(against, "judged against an incumbent")) {
    checks.check(against->status == VerdictStatus::Ok && against->versus.has_value(), "it is compared: " + against->notes);
  }
  const auto itself = judge->judge(**workload, good, good, {});
  checks.check(itself && itself->status == VerdictStatus::Ok && !itself->versus, "a candidate is not compared with itself");

  const auto rejected = judge->judge(**workload, canonical(R"({"smem_bytes_per_block":32768})"), std::nullopt, {});
  if (checks.check(rejected, "too small a ring is judged")) {
    checks.check(
        rejected->status == VerdictStatus::Rejected && rejected->rejected && rejected->rejected->rule == "ring-turn" && !rejected->latency_us,
        "rejected by rule");
  }
  // Faults that only a worker started for tests makes.
  for (const auto& [fault, expected] : {std::pair{"hang", VerdictStatus::Timeout}, {"crash", VerdictStatus::Crash}, {"exit", VerdictStatus::Crash}}) {
    requested = fault;
    const auto bad = judge->judge(**workload, canonical(R"({"pipelining_depth":2})"), good, {});
    requested.clear();
    if (checks.check(bad, std::string(fault) + " is judged"))
      checks.check(bad->status == expected && !bad->correct && !bad->latency_us, std::string(fault) + " has its status: " + bad->notes);
    const auto next = judge->judge(**workload, good, std::nullopt, {});
    checks.check(next && next->status == VerdictStatus::Ok, std::string("the candidate after a ") + fault + " is unharmed");
  }
}

}  // namespace amk::gpu_test
