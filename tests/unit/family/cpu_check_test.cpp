// The check itself must fail wrong programs; and a stand-in must be like what it stands for.
#include "kernels/megakernel/cpu_check.h"

#include <algorithm>
#include <functional>

#include "kernels/megakernel/workload.h"
#include "tests/unit/family/opened.h"

using namespace amk;
using namespace amk::test;

namespace {

ModelRef model(const std::string& name) { return resolve_model(name, {std::filesystem::path(AMK_SOURCE_DIR) / "config" / "models", {}}).value(); }

BufferId layer_weight(const Program& program, Matrix matrix, int layer) {
  for (BufferId id = 0; id < static_cast<BufferId>(program.buffers.size()); ++id) {
    const Buffer& b = program.buffers[static_cast<std::size_t>(id)];
    if (b.space == Space::Weight && b.binding.matrix == matrix && b.binding.layer == layer && !b.binding.bias) return id;
  }
  return kNone;
}

}  // namespace

TEST_CASE("wrong programs fail the check, each with a reason") {
  const ModelRef ref = model(fixture("llama-gqa"));
  const auto reference = CpuReference::create(load_weights(ref, 1).value(), 512, 42, {});
  REQUIRE(reference);
  CHECK((*reference)->positions() == 512);
  const auto program = lower(ref.spec, {}, {9, 232448, 512, {}}, {ref.spec.dtype, DType::F32, DType::F32});
  REQUIRE(program);
  const auto good = (*reference)->check(*program, {});
  REQUIRE(good);
  CHECK(good->correct);
  CHECK(good->correctness->positions_checked >= 18);

  const struct {
    const char* what;
    std::function<void(Program&)> damage;
  } wrong[] = {
      {"layers swapped",
       [](Program& p) {
         std::swap(p.buffers[static_cast<std::size_t>(layer_weight(p, Matrix::Down, 0))].binding.layer,
                   p.buffers[static_cast<std::size_t>(layer_weight(p, Matrix::Down, 1))].binding.layer);
       }},
      {"keys of a block skipped", [](Program& p) { p.attention.kv_block /= 2; }},
      {"a split never active",
       [](Program& p) {
         for (Task& t : p.tasks)
           if (t.op == Opcode::AttentionTile && t.split == 1) t.pos_lo = kAllPositions;
         for (Task& t : p.tasks)
           if (t.op == Opcode::AttentionCombine) t.reads[1].pos_lo = kAllPositions;
       }},
      {"waits lost",
       [](Program& p) {
         for (Task& t : p.tasks)
           if (t.op == Opcode::Gemv) t.waits.clear();
       }},
      {"a norm's weight of another layer",
       [](Program& p) {
         for (Buffer& b : p.buffers)
           if (b.space == Space::Weight && b.binding.matrix == Matrix::None && b.binding.kind == WeightKind::MlpNorm && b.binding.layer == 1)
             b.binding.kind = WeightKind::AttnNorm;
       }},
      {"argmax over the wrong partials",
       [](Program& p) {
         for (Task& t : p.tasks)
           if (t.op == Opcode::Argmax) t.reads[0].end = t.reads[0].begin + 8;
       }},
      {"every layer's O from layer 0",
       [](Program& p) {
         for (Buffer& b : p.buffers)
           if (b.space == Space::Weight && b.binding.matrix == Matrix::O) b.binding.layer = 0;
       }},
      {"deadlock", [](Program& p) { p.tasks[0].signal = kNone; }},
  };
  for (const auto& each : wrong) {
    CAPTURE(each.what);
    Program bad = *program;
    each.damage(bad);
    const auto outcome = (*reference)->check(bad, {});
    REQUIRE_MESSAGE(outcome, (outcome ? "" : outcome.error().message));
    CHECK_FALSE(outcome->correct);
    CHECK_FALSE(outcome->failure.empty());
  }
}

TEST_CASE("a lower precision than declared fails the check") {
  const ModelRef ref = model(fixture("qwen3-qknorm"));
  const auto reference = CpuReference::create(load_weights(ref, 1).value(), 128, 1, {});
  REQUIRE(reference);
  const auto rounded = lower(ref.spec, {}, {9, 232448, 128, {}}, {ref.spec.dtype, DType::BF16, DType::F32});
  REQUIRE(rounded);
  CHECK_FALSE((*reference)->check(*rounded, {})->correct);
}

TEST_CASE("other tokens for another seed") {
  const ModelRef ref = model("toy");
  const auto a = CpuReference::create(load_weights(ref, 1).value(), 64, 1, {}), b = CpuReference::create(load_weights(ref, 1).value(), 64, 2, {});
  const auto program = lower(ref.spec, {}, {4, 232448, 64, {}}, {ref.spec.dtype, DType::F32, DType::F32}).value();
  CHECK((*a)->check(program, {})->correctness->bound != (*b)->check(program, {})->correctness->bound);  // it follows from the logits' spread
}

TEST_CASE("a stand-in keeps every switch of its model and stays small") {
  const GpuTarget h200 = gpu("h200");
  for (const char* name : {"llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "qwen2.5-7b", "mistral-7b", "smollm2-135m"}) {
    CAPTURE(name);
    const ModelRef ref = model(name);
    const Executed executed = executed_on_cpu(ref, {h200.sm_count, h200.smem_optin_bytes, 4096, {}});
    const ModelSpec& s = executed.model.spec;
    CHECK(executed.stand_in);
    CHECK(s.parameters() < 2'000'000);
    CHECK(s.architecture == ref.spec.architecture);
    CHECK(s.dtype == ref.spec.dtype);
    CHECK(s.head_dim == ref.spec.head_dim);
    CHECK(s.gqa() == ref.spec.gqa());
    CHECK(s.qkv_bias == ref.spec.qkv_bias);
    CHECK(s.qk_norm == ref.spec.qk_norm);
    CHECK(s.tied_embeddings == ref.spec.tied_embeddings);
    CHECK(s.sliding_window.has_value() == ref.spec.sliding_window.has_value());
    CHECK(to_json(s)["rope"] == to_json(ref.spec)["rope"]);
    CHECK(executed.target.sm_count >= 8);
    CHECK(executed.target.sm_count < h200.sm_count);
  }
  CHECK_FALSE(executed_on_cpu(model("toy"), {132, 232448, 2048, {}}).stand_in);
}
