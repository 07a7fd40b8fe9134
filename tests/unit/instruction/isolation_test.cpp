// One instruction kind alone: what is kept, that it is proved, and that it computes what plain loops over the weights compute.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "core/base/random.h"
#include "core/model/load.h"
#include "core/program/lower_instruction.h"
#include "core/program/program_json.h"
#include "core/program/validator.h"
#include "core/reference/reference_vm_memory.h"
#include "core/schedule/random_config.h"
#include "kernels/megakernel/instruction_check.h"

using namespace amk;

namespace {

const NumericFormat kExact{DType::F32, DType::F32, DType::F32};

ModelRef model(const std::string& name) {
  ModelSources sources;
  sources.catalogue_dir = std::filesystem::path(AMK_SOURCE_DIR) / "config" / "models";
  auto ref = resolve_model(name, sources);
  REQUIRE_MESSAGE(ref, (ref ? "" : ref.error().message));
  return *ref;
}

LoweringTarget small_target(int sms = 6, int max_seq = 320) {
  LoweringTarget target;
  target.sm_count = sms;
  target.smem_optin_bytes = 227 << 10;
  target.max_seq = max_seq;
  return target;
}

std::vector<float> row_of(const Weights& weights, WeightKind kind, int layer, std::int64_t row, std::int64_t columns) {
  std::vector<float> out(static_cast<std::size_t>(columns));
  row_to_f32(weights.get(kind, layer), row, out);
  return out;
}

}  // namespace

TEST_CASE("every kind of every model is kept whole, chained layer to layer, and proved") {
  for (const char* name : {"toy", "small", "smollm2-135m", "qwen3-0.6b", "llama-3.2-1b"}) {
    const ModelSpec spec = model(name).spec;
    for (const std::string_view op : instruction_ops()) {
      CAPTURE(name);
      CAPTURE(op);
      const auto program = lower_instruction(spec, op, ScheduleConfig{}, small_target(132, 1024), {spec.dtype, DType::BF16, DType::BF16});
      REQUIRE_MESSAGE(program, (program ? "" : program.error().message));
      const Validation proof = validate(*program);
      CHECK_MESSAGE(proof.valid(), (proof.valid() ? "" : proof.rejection->message));
      std::set<int> layers;
      for (const Instruction& in : program->instructions) layers.insert(in.layer);
      CHECK(static_cast<int>(layers.size()) == (op == "lm_head" ? 1 : spec.layers));
      // Every task but those of the first layer waits for somebody, and all that is read and not written here is an input.
      for (const Task& t : program->tasks) CHECK((t.layer <= 0 || !t.waits.empty()));
      for (const Buffer& b : program->buffers) CHECK(b.name != "token");
      CHECK(to_json(program_from_json(to_json(*program)).value()) == to_json(*program));
    }
  }
}

TEST_CASE("dropping the chain or writing an input is refused") {
  const ModelSpec spec = model("toy-2L").spec;
  auto program = lower_instruction(spec, "down", ScheduleConfig{}, small_target(), kExact).value();
  REQUIRE(validate(program).valid());
  Program lost = program;  // a counter that fewer tasks signal than it declares
  for (Task& t : lost.tasks)
    if (t.signal != kNone) {
      t.signal = kNone;
      break;
    }
  CHECK_FALSE(validate(lost).valid());
  Program writes = program;
  writes.tasks[0].writes[0].buffer = writes.tasks[0].reads[0].buffer;
  CHECK_FALSE(validate(writes).valid());
}

TEST_CASE("a placement of tiles that the instruction does not have is refused, of however few instructions it is made") {
  for (const std::string_view op : instruction_ops()) {
    CAPTURE(op);
    ScheduleConfig config;
    config.sm_assignment = SmAssignment::Explicit;
    config.explicit_sm = {{"L7.nothing.0", 0}};
    const auto refused = lower_instruction(model("toy").spec, op, config, small_target(), kExact);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().data.at("rule") == "unknown-tile");
    CHECK(refused.error().message.find(op == "lm_head" ? "its instructions are lm_head" : "its instructions are L0.") != std::string::npos);
    CHECK(refused.error().message.size() < 400);
  }
}

TEST_CASE("part of a step has no argmax to feed back") {
  ScheduleConfig config;
  config.kernel.tokens_per_launch = 2;
  const auto program = lower_instruction(model("toy").spec, "down", config, small_target(), kExact);
  REQUIRE_FALSE(program);
  CHECK(program.error().data["rule"] == "part-of-one-step");
}

TEST_CASE("random configs of every kind: proved, and equal to the plain program") {
  Rng rng(11);
  for (const char* name : {"toy", "toy-2L"}) {
    const ModelRef ref = model(name);
    const auto weights = load_weights(ref).value();
    for (const std::string_view op : instruction_ops()) {
      auto draws = instruction_draws(ref.spec, op, 320, 7);
      const auto reference = InstructionReference::create(weights, op, 320, kExact, draws, {}).value();
      for (int i = 0; i < 5; ++i) {
        ScheduleConfig config = random_accepted_config(227 << 10, rng);
        config.fusion.combine_o = false;
        config.kernel.publish = Publish::Release;
        config.kernel.tokens_per_launch = 1;
        config.sm_assignment = SmAssignment::LoadBalance;
        config.explicit_sm.clear();
        const auto program = lower_instruction(ref.spec, op, config, small_target(5), {ref.spec.dtype, DType::F32, DType::F32});
        if (!program) {
          CHECK(program.error().kind == ErrorKind::Rejected);
          continue;
        }
        const std::string text = to_json(config).dump();
        CAPTURE(text);
        CAPTURE(op);
        const Validation proof = validate(*program);
        REQUIRE_MESSAGE(proof.valid(), (proof.valid() ? "" : proof.rejection->message));
        auto vm = ReferenceVm::create(*program, weights, {.interleaving_seed = rng.next()});
        REQUIRE_MESSAGE(vm, (vm ? "" : vm.error().message));
        std::vector<float> got;
        for (const InstructionDraw& d : draws) {
          const auto values = run_on_vm(*vm, *program, d, kExact);
          REQUIRE_MESSAGE(values, (values ? "" : values.error().message));
          got.insert(got.end(), values->begin(), values->end());
        }
        const auto outcome = reference->compare(got, true);
        CHECK_MESSAGE(outcome.correct, outcome.failure);
      }
    }
  }
}

TEST_CASE("down and gate_up are what plain loops over the weights give") {
  const ModelRef ref = model("toy-2L");
  const ModelSpec& spec = ref.spec;
  const auto weights = load_weights(ref).value();
  const InstructionDraw draw{3, 4};
  for (const std::string_view op : {"down", "gate_up"}) {
    const auto program = lower_instruction(spec, op, ScheduleConfig{}, small_target(), {spec.dtype, DType::F32, DType::F32}).value();
    auto vm = ReferenceVm::create(program, weights).value();
    REQUIRE(run_on_vm(vm, program, draw, kExact));
    for (int layer = 0; layer < spec.layers; ++layer) {
      const std::string l = "L" + std::to_string(layer) + ".";
      if (op == "down") {  // x[2l + 2] = x[2l + 1] + W act
        const auto act = vm.get(l + "act", 0, spec.intermediate).value();
        const auto x = vm.get("x" + std::to_string(2 * layer + 1), 0, spec.hidden).value();
        const auto y = vm.get("x" + std::to_string(2 * layer + 2), 0, spec.hidden).value();
        for (int r = 0; r < spec.hidden; ++r) {
          const auto w = row_of(*weights, WeightKind::Down, layer, r, spec.intermediate);
          double sum = x[static_cast<std::size_t>(r)];
          for (std::size_t c = 0; c < act.size(); ++c) sum += static_cast<double>(w[c]) * act[c];
          CHECK(y[static_cast<std::size_t>(r)] == doctest::Approx(sum).epsilon(1e-4).scale(1));
        }
      } else {
        const auto x = vm.get("x" + std::to_string(2 * layer + 1), 0, spec.hidden).value();
        const auto act = vm.get(l + "act", 0, spec.intermediate).value();
        const auto norm = row_of(*weights, WeightKind::MlpNorm, layer, 0, spec.hidden);
        double square = 0;
        for (const float v : x) square += static_cast<double>(v) * v;
        const double scale = 1 / std::sqrt(square / spec.hidden + spec.rms_eps);
        for (int r = 0; r < spec.intermediate; ++r) {
          const auto gate = row_of(*weights, WeightKind::Gate, layer, r, spec.hidden), up = row_of(*weights, WeightKind::Up, layer, r, spec.hidden);
          double g = 0, u = 0;
          for (std::size_t c = 0; c < x.size(); ++c) {
            const double n = static_cast<double>(x[c]) * scale * norm[c];
            g += n * gate[c];
            u += n * up[c];
          }
          CHECK(act[static_cast<std::size_t>(r)] == doctest::Approx(g / (1 + std::exp(-g)) * u).epsilon(1e-3).scale(1));
        }
      }
    }
  }
}

TEST_CASE("attention is softmax over the given cache") {
  const ModelRef ref = model("toy");
  const ModelSpec& spec = ref.spec;
  const auto weights = load_weights(ref).value();
  const int position = 130;
  const auto program = lower_instruction(spec, "attention", ScheduleConfig{}, small_target(), kExact).value();
  auto vm = ReferenceVm::create(program, weights).value();
  REQUIRE(run_on_vm(vm, program, {position, 9}, kExact));
  const auto q = vm.get("L0.q", 0, spec.q_rows()).value();
  const auto out = vm.get("L0.attn", 0, spec.q_rows()).value();
  for (int h = 0; h < spec.heads; ++h) {
    const std::int64_t head = std::int64_t{h / spec.gqa()} * program.max_seq * spec.head_dim;
    const auto k = vm.get("kv.k.0", head, std::int64_t{position + 1} * spec.head_dim).value();
    const auto v = vm.get("kv.v.0", head, std::int64_t{position + 1} * spec.head_dim).value();
    std::vector<double> weight;
    double total = 0, most = -1e30;
    for (int p = 0; p <= position; ++p) {
      double s = 0;
      for (int d = 0; d < spec.head_dim; ++d)
        s += static_cast<double>(q[static_cast<std::size_t>(h * spec.head_dim + d)]) * k[static_cast<std::size_t>(p * spec.head_dim + d)];
      weight.push_back(s / std::sqrt(spec.head_dim));
      most = std::max(most, weight.back());
    }
    for (double& w : weight) total += w = std::exp(w - most);
    for (int d = 0; d < spec.head_dim; ++d) {
      double sum = 0;
      for (int p = 0; p <= position; ++p) sum += weight[static_cast<std::size_t>(p)] / total * v[static_cast<std::size_t>(p * spec.head_dim + d)];
      CHECK(out[static_cast<std::size_t>(h * spec.head_dim + d)] == doctest::Approx(sum).epsilon(1e-3).scale(1));
    }
  }
}

namespace {

// One head's attention as a GPU computes it: tiles of 16 keys under a running maximum, weights rounded to bf16 before they meet V, sums in fp32's
// place in double, the result rounded. `skip`: a key that is left out.
void attend_in_tiles(std::span<const float> q, std::span<const float> k, std::span<const float> v, int keys, int skip, double scale,
                     std::span<float> out) {
  const std::size_t dim = q.size();
  std::vector<double> sums(dim, 0.0);
  double top = -1e30, total = 0;
  for (int tile = 0; tile < keys; tile += 16) {
    std::vector<double> score;
    for (int p = tile; p < std::min(tile + 16, keys); ++p) {
      double s = 0;
      for (std::size_t d = 0; d < dim; ++d) s += static_cast<double>(q[d]) * k[static_cast<std::size_t>(p) * dim + d];
      score.push_back(p == skip ? -1e30 : s * scale);
    }
    const double before = top;
    for (const double s : score) top = std::max(top, s);
    for (double& sum : sums) sum *= std::exp(before - top);
    total *= std::exp(before - top);
    for (std::size_t i = 0; i < score.size(); ++i) {
      const double weight = std::exp(score[i] - top);
      total += weight;
      for (std::size_t d = 0; d < dim; ++d)
        sums[d] += static_cast<double>(vm::round_to(DType::BF16, static_cast<float>(weight))) * v[(static_cast<std::size_t>(tile) + i) * dim + d];
    }
  }
  for (std::size_t d = 0; d < dim; ++d) out[d] = vm::round_to(DType::BF16, static_cast<float>(sums[d] / total));
}

// What that gives for every draw, slice after slice. `forgets`: the newest key is left out.
std::vector<float> attention_in_tiles(const Program& program, const std::vector<InstructionDraw>& draws, bool forgets, double scale) {
  const ModelSpec& spec = program.model;
  const NumericFormat gpu{DType::BF16, DType::BF16, DType::BF16};
  const auto dim = static_cast<std::size_t>(spec.head_dim);
  std::vector<float> all;
  for (const InstructionDraw& draw : draws) {
    std::map<std::string, std::vector<float>> given;  // of a cache the heads one after the other
    for (const Slice& slice : input_slices(program, draw.position)) {
      const auto values = input_values(program, slice, draw, gpu);
      given[slice.name].insert(given[slice.name].end(), values.begin(), values.end());
    }
    const int keys = draw.position + 1;
    for (const Slice& slice : output_slices(program, draw.position)) {  // "L0.attn"
      const std::string layer = slice.name.substr(1, slice.name.find('.') - 1);
      std::vector<float> out(static_cast<std::size_t>(slice.count));
      for (int h = 0; h < spec.heads; ++h) {
        const std::size_t rows = static_cast<std::size_t>(h / spec.gqa()) * static_cast<std::size_t>(keys) * dim,
                          size = static_cast<std::size_t>(keys) * dim;
        attend_in_tiles(std::span(given.at("L" + layer + ".q")).subspan(static_cast<std::size_t>(h) * dim, dim),
                        std::span(given.at("kv.k." + layer)).subspan(rows, size), std::span(given.at("kv.v." + layer)).subspan(rows, size), keys,
                        forgets && keys > 1 ? keys - 1 : -1, scale / std::sqrt(spec.head_dim),
                        std::span(out).subspan(static_cast<std::size_t>(h) * dim, dim));
      }
      all.insert(all.end(), out.begin(), out.end());
    }
  }
  return all;
}

}  // namespace

TEST_CASE("attention as a GPU rounds it is right whatever the draws, and one that forgets a key or scales by 3% more is not") {
  const ModelRef ref = model("toy-2L");
  const auto weights = load_weights(ref).value();
  const NumericFormat gpu{DType::BF16, DType::BF16, DType::BF16};
  const auto program = lower_instruction(ref.spec, "attention", ScheduleConfig{}, small_target(6, 512), gpu).value();
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const auto draws = instruction_draws(ref.spec, "attention", 512, seed);
    const auto reference = InstructionReference::create(weights, "attention", 512, gpu, draws, {}).value();
    const auto right = reference->compare(attention_in_tiles(program, draws, false, 1.0), true);
    CHECK_MESSAGE(right.correct, right.failure);
    CHECK_FALSE(reference->compare(attention_in_tiles(program, draws, true, 1.0), true).correct);
    CHECK_FALSE(reference->compare(attention_in_tiles(program, draws, false, 1.03), true).correct);
  }
}

TEST_CASE("inputs do not depend on max_seq, differ by draw, buffer and head, and are what the GPU stores") {
  const ModelSpec spec = model("toy").spec;
  const NumericFormat gpu{DType::BF16, DType::BF16, DType::BF16};
  const auto a = lower_instruction(spec, "attention", ScheduleConfig{}, small_target(6, 128), gpu).value();
  const auto b = lower_instruction(spec, "attention", ScheduleConfig{}, small_target(4, 300), kExact).value();
  const auto sa = input_slices(a, 70), sb = input_slices(b, 70);
  REQUIRE(sa.size() == sb.size());
  std::set<std::vector<float>> seen;
  for (std::size_t i = 0; i < sa.size(); ++i) {
    const auto va = input_values(a, sa[i], {70, 5}, gpu);
    CHECK(va == input_values(b, sb[i], {70, 5}, gpu));
    CHECK(va != input_values(a, sa[i], {70, 6}, gpu));
    CHECK(seen.insert(va).second);
    for (const float v : va) CHECK(vm::round_to(DType::BF16, v) == v);
  }
}

TEST_CASE("a wrong op names what is accepted") {
  const auto bad = lower_instruction(model("toy").spec, "mlp", ScheduleConfig{}, small_target(), kExact);
  REQUIRE_FALSE(bad);
  CHECK(bad.error().kind == ErrorKind::InvalidArgument);
  for (const std::string_view op : instruction_ops()) CHECK(bad.error().message.find(op) != std::string::npos);
}
