#include "tests/support/programs/random_program.h"

#include <algorithm>
#include <array>

#include "core/program/lower.h"
#include "core/schedule/random_config.h"

namespace amk::testing {

namespace {

int between(Rng& rng, int low, int high) { return low + static_cast<int>(rng.below(static_cast<std::uint64_t>(high - low + 1))); }
bool chance(Rng& rng, double p) { return rng.uniform() < p; }

void with_attention_o(ScheduleConfig& config) {
  Fusion& f = config.fusion;
  f.attention_combine = f.combine_o = f.o_add = f.norm_gate_up = f.down_add = true;
  KernelKnobs& k = config.kernel;
  k.publish = Publish::Flagged;
  k.gemv_path = GemvPath::Slices;
  k.weight_layout = WeightLayout::Packed;
  k.kv_path = KvPath::Direct;
  k.tokens_per_launch = 1;
}

}  // namespace

ModelSpec random_spec(Rng& rng, const RandomProgramLimits& limits) {
  ModelSpec s;
  s.name = "random";
  s.head_dim = 8 * between(rng, 1, 2);
  s.kv_heads = between(rng, 1, 3);
  s.heads = s.kv_heads * between(rng, 1, 3);
  s.hidden = 8 * between(rng, 1, std::max(1, limits.max_hidden / 8));
  s.intermediate = 4 * between(rng, 2, std::max(2, limits.max_hidden / 2));
  s.layers = between(rng, 1, limits.max_layers);
  s.vocab = between(rng, 16, 3 * limits.max_hidden);
  s.max_position = 4096;
  s.dtype = std::array{DType::BF16, DType::F16, DType::F32}[rng.below(3)];
  s.tied_embeddings = chance(rng, 0.5);
  s.qkv_bias = chance(rng, 0.3);
  s.o_bias = chance(rng, 0.3);
  s.mlp_bias = chance(rng, 0.3);
  s.qk_norm = chance(rng, 0.3);
  if (chance(rng, 0.2)) s.sliding_window = between(rng, 1, 100);
  if (chance(rng, 0.25)) {
    s.weight_format = WeightFormat::Int8;
    s.hidden = (s.hidden + 15) / 16 * 16;  // what its copies need
  }
  return s;
}

std::optional<RandomProgram> random_program(Rng& rng, const RandomProgramLimits& limits, std::string* refused) {
  RandomProgram out;
  out.spec = random_spec(rng, limits);
  LoweringTarget target;
  target.sm_count = between(rng, 1, limits.max_sms);
  target.smem_optin_bytes = 232448;
  target.max_seq = between(rng, 1, limits.max_positions);
  if (chance(rng, 0.25)) target.batch = between(rng, 2, 4);
  if (chance(rng, 0.3))
    for (int i = 0; i < target.sm_count; ++i) target.sm_weight.push_back(0.5 + rng.uniform());
  out.config = random_accepted_config(target.smem_optin_bytes, rng);
  if (out.spec.weight_format == WeightFormat::Int8)
    out.config.fusion.attention_combine = false;  // attention_o takes weights as stored
  else if (chance(rng, 0.1))
    with_attention_o(out.config);  // eight switches at once: by chance it hardly comes
  NumericFormat format;
  format.weights = out.spec.dtype;
  format.activations = chance(rng, 0.5) ? DType::F32 : DType::BF16;
  format.kv = chance(rng, 0.5) ? DType::F32 : DType::BF16;
  Result<Program> lowered = lower(out.spec, out.config, target, format);
  if (!lowered) {
    if (refused != nullptr) *refused = lowered.error().message;
    return std::nullopt;
  }
  out.program = std::move(*lowered);
  return out;
}

}  // namespace amk::testing
