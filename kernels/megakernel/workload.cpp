#include "kernels/megakernel/workload.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/program/packing.h"
#include "core/program/program_json.h"
#include "core/program/validator.h"
#include "core/reference/forward.h"
#include "core/reference/reference_vm.h"
#include "core/target/cost_model.h"

namespace amk {
namespace {

constexpr int kCheckedTokens = 12;           // with a real KV cache behind all but the first
constexpr double kRoundingTolerance = 1e-4;  // of the logits' standard deviation: fp32 rounding in another order of summation

Verdict rejected_verdict(Verdict verdict, std::string rule, std::string message, Json witness) {
  verdict.status = VerdictStatus::Rejected;
  verdict.valid = false;
  verdict.rejected = RejectedBy{std::move(rule), std::move(message), std::move(witness)};
  return verdict;
}

double standard_deviation(std::span<const float> v) {
  double sum = 0, squares = 0;
  for (float x : v) sum += x, squares += static_cast<double>(x) * x;
  const double n = static_cast<double>(v.size()), mean = sum / n;
  return std::sqrt(std::max(0.0, squares / n - mean * mean));
}

// KL(oracle || candidate) of the two softmaxes, in double.
double kl_divergence(std::span<const float> oracle, std::span<const float> candidate) {
  const auto log_sum = [](std::span<const float> v) {
    const double top = *std::max_element(v.begin(), v.end());
    double sum = 0;
    for (float x : v) sum += std::exp(x - top);
    return top + std::log(sum);
  };
  const double a = log_sum(oracle), b = log_sum(candidate);
  double kl = 0;
  for (std::size_t i = 0; i < oracle.size(); ++i) kl += std::exp(oracle[i] - a) * ((oracle[i] - a) - (candidate[i] - b));
  return std::max(0.0, kl);
}

}  // namespace

ModelSpec scaled_down(const ModelSpec& spec) {
  ModelSpec twin = spec;
  twin.layers = std::min(spec.layers, 2);
  twin.kv_heads = std::min(spec.kv_heads, 2);
  twin.heads = twin.kv_heads * spec.gqa();
  twin.hidden = std::min(spec.hidden, 64);
  twin.intermediate = std::min(spec.intermediate, 96);
  twin.vocab = std::min(spec.vocab, 256);
  if (twin.sliding_window) twin.sliding_window = std::min(*twin.sliding_window, kCheckedTokens / 2);
  return twin;
}

struct MegakernelWorkload::Check {
  std::shared_ptr<const Weights> weights;
  std::vector<int> tokens;
  std::vector<std::vector<float>> logits;  // after each token
  double deviation = 0;                    // of all those logits
  bool twin = false;
};

MegakernelWorkload::MegakernelWorkload(ModelRef ref, GpuTarget target) : ref_(std::move(ref)), target_(std::move(target)) {
  regime_ = std::string(to_string(ref_.spec.dtype)) + "-b1";
  space_ = megakernel_space(ref_.spec, target_);
}

Result<std::unique_ptr<MegakernelWorkload>> MegakernelWorkload::create(const ModelRef& ref, const GpuTarget& target) {
  AMK_CHECK(check_packable(ref.spec));
  return std::unique_ptr<MegakernelWorkload>(new MegakernelWorkload(ref, target));
}

LoweringTarget MegakernelWorkload::lowering_target() const {
  LoweringTarget out;
  out.sm_count = target_.sm_count;
  out.smem_optin_bytes = target_.smem_optin_bytes;
  out.max_seq = std::min(ref_.spec.max_position, kDefaultMaxSeq);
  return out;
}

NumericFormat MegakernelWorkload::gpu_format(const ModelSpec& spec) { return {spec.dtype, DType::BF16, DType::BF16}; }

Json MegakernelWorkload::features() const {
  const ModelSpec& s = ref_.spec;
  return {{"hidden", s.hidden},
          {"intermediate", s.intermediate},
          {"layers", s.layers},
          {"heads", s.heads},
          {"kv_heads", s.kv_heads},
          {"head_dim", s.head_dim},
          {"vocab", s.vocab},
          {"weight_bytes", s.decode_weight_bytes()},
          {"sm_count", target_.sm_count},
          {"l2_bytes", target_.l2_bytes},
          {"bandwidth_gbs", target_.peak_bandwidth_gbs},
          {"smem_bytes", target_.smem_optin_bytes}};
}

Result<Json> MegakernelWorkload::canonical(const Json& config) const {
  AMK_TRY(parsed, parse_schedule_config(config));
  return to_json(parsed);
}

Json MegakernelWorkload::default_config() const { return config_at(space_.default_point()); }

Result<Point> MegakernelWorkload::point_of(const Json& canonical) const {
  AMK_TRY(parsed, parse_schedule_config(canonical));
  return amk::point_of(space_, parsed);
}

Json MegakernelWorkload::config_at(const Point& point) const { return to_json(amk::config_at(space_, point)); }

std::string MegakernelWorkload::schedule_id(const Json& canonical) const {
  const auto parsed = parse_schedule_config(canonical);
  return parsed ? amk::schedule_id(*parsed) : std::string();
}

Result<double> MegakernelWorkload::predict_us(const Json& canonical) const {
  AMK_TRY(config, parse_schedule_config(canonical));
  AMK_TRY(program, lower(ref_.spec, config, lowering_target(), gpu_format(ref_.spec)));
  return predict(program, config, target_, std::min(kPredictPosition, program.max_seq - 1)).latency_us;
}

Result<Json> MegakernelWorkload::compile(const Json& canonical) const {
  AMK_TRY(config, parse_schedule_config(canonical));
  AMK_TRY(program, lower(ref_.spec, config, lowering_target(), gpu_format(ref_.spec)));
  const Validation proof = validate(program);
  if (!proof.valid()) return fail(ErrorKind::Rejected, proof.rejection->message, to_json(*proof.rejection));
  return to_json(program);
}

Result<std::shared_ptr<const MegakernelWorkload::Check>> MegakernelWorkload::check() const {
  std::lock_guard lock(mutex_);
  if (check_) return check_;
  auto made = std::make_shared<Check>();
  made->twin = ref_.spec.parameters() > kExecutedParametersLimit;
  ModelRef executed = ref_;
  if (made->twin) {
    executed.source = ModelRef::Source::Catalogue;  // seeded weights: the checkpoint's do not fit the twin's shapes
    executed.spec = scaled_down(ref_.spec);
    executed.seed = 1;
  }
  AMK_TRY(weights, load_weights(executed));
  made->weights = weights;
  const int tokens = std::min(kCheckedTokens, executed.spec.max_position);
  Oracle oracle(weights, tokens);
  // Fixed tokens, so that two runs of a campaign agree; the GPU gate draws fresh ones.
  Rng rng(0xA11CE);
  std::vector<float> all;
  for (int t = 0; t < tokens; ++t) {
    made->tokens.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(executed.spec.vocab))));
    AMK_TRY(logits, oracle.step(made->tokens.back()));
    made->logits.emplace_back(logits.begin(), logits.end());
    all.insert(all.end(), logits.begin(), logits.end());
  }
  made->deviation = standard_deviation(all);
  check_ = made;
  return check_;
}

Result<Verdict> MegakernelWorkload::judge_on_cpu(const Json& canonical, const Progress& progress) const {
  Verdict verdict;
  verdict.workload = id();
  verdict.gpu = target_.name;
  verdict.regime = regime_;
  verdict.config = canonical;
  AMK_TRY(config, parse_schedule_config(canonical));
  verdict.schedule_id = amk::schedule_id(config);

  auto program = lower(ref_.spec, config, lowering_target(), gpu_format(ref_.spec));
  if (!program && program.error().kind == ErrorKind::Rejected) {
    const Json& d = program.error().data;
    return rejected_verdict(std::move(verdict), d.value("rule", "lowering"), program.error().message, d.value("witness", Json::object()));
  }
  if (!program) return tl::unexpected<Error>(program.error());
  const Validation proof = validate(*program);
  if (!proof.valid()) return rejected_verdict(std::move(verdict), proof.rejection->rule, proof.rejection->message, proof.rejection->witness);
  verdict.valid = true;
  verdict.tasks = proof.tasks;
  verdict.weight_bytes = ref_.spec.decode_weight_bytes();
  verdict.smem_bytes = config.smem_bytes_per_block;
  if (progress.stop.stop_requested()) return fail(ErrorKind::Cancelled, "stopped before the correctness check");

  AMK_TRY(reference, check());
  const ModelSpec& executed = reference->weights->spec();
  LoweringTarget target = lowering_target();
  target.max_seq = std::min(target.max_seq, executed.max_position);
  NumericFormat exact;
  exact.weights = executed.dtype;
  auto lowered = lower(executed, config, target, exact);
  if (!lowered && lowered.error().kind == ErrorKind::Rejected && reference->twin && !config.explicit_sm.empty())
    // An explicit placement names tiles that the twin does not have: the values do not depend on placement, so it is checked without.
    lowered = [&] {
      ScheduleConfig unplaced = config;
      unplaced.sm_assignment = SmAssignment::RoundRobin;
      unplaced.explicit_sm.clear();
      return lower(executed, unplaced, target, exact);
    }();
  if (!lowered) return tl::unexpected<Error>(lowered.error());

  Correctness c;
  c.bound = kRoundingTolerance * reference->deviation;
  c.bitwise_repeatable = true;
  double sum = 0, elements = 0;
  std::int64_t agreeing = 0;
  AMK_TRY(vm, ReferenceVm::create(*lowered, reference->weights, {.interleaving_seed = 1}));
  AMK_TRY(again, ReferenceVm::create(*lowered, reference->weights, {.interleaving_seed = 2}));
  for (std::size_t t = 0; t < reference->tokens.size(); ++t) {
    auto step = vm.step(reference->tokens[t]);
    auto repeat = again.step(reference->tokens[t]);
    if (!step || !repeat) {
      verdict.status = VerdictStatus::Incorrect;
      verdict.notes = "reference VM: " + (!step ? step.error().message : repeat.error().message);
      return verdict;
    }
    const std::vector<float>& expected = reference->logits[t];
    if (!std::equal(step->logits.begin(), step->logits.end(), repeat->logits.begin(), repeat->logits.end())) c.bitwise_repeatable = false;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double error = std::abs(static_cast<double>(step->logits[i]) - expected[i]);
      if (!(error <= c.max_abs_err)) c.max_abs_err = std::isnan(error) ? INFINITY : error;
      sum += error;
    }
    elements += static_cast<double>(expected.size());
    c.kl = std::max(c.kl, kl_divergence(expected, step->logits));
    if (step->next_token == argmax(expected)) ++agreeing;
    ++c.positions_checked;
    if (progress.stop.stop_requested()) return fail(ErrorKind::Cancelled, "stopped during the correctness check");
  }
  c.mean_abs_err = sum / elements;
  c.top1_agreement = static_cast<double>(agreeing) / static_cast<double>(c.positions_checked);
  verdict.correct = c.bitwise_repeatable && c.max_abs_err <= c.bound;
  verdict.correctness = c;
  verdict.notes = reference->twin
                      ? "checked on the CPU with a scaled-down model of the same architecture (" + std::to_string(executed.layers) +
                            " layers, hidden " + std::to_string(executed.hidden) + "), seeded weights; the model's own weights were not touched"
                      : "checked on the CPU: the lowered program on the reference VM against the oracle";
  if (!verdict.correct) {
    verdict.status = VerdictStatus::Incorrect;
    return verdict;
  }

  const Prediction p = predict(*program, config, target_, std::min(kPredictPosition, program->max_seq - 1));
  verdict.status = VerdictStatus::Ok;
  verdict.latency_us = p.latency_us;
  verdict.latency_kind = LatencyKind::Predicted;
  verdict.bound_us = p.bound_us;
  verdict.pct_of_roofline = 100.0 * p.bound_us / p.latency_us;
  verdict.read_bandwidth_gbs = static_cast<double>(p.hbm_bytes) / p.latency_us * 1e-3;
  verdict.regions = {{"attention", p.regions.attention},
                     {"mlp", p.regions.mlp},
                     {"lm_head", p.regions.lm_head},
                     {"sync", p.regions.sync},
                     {"other", p.regions.other}};
  return verdict;
}

}  // namespace amk
