#include "kernels/det_gemm/workload.h"

#include <random>

#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "kernels/det_gemm/cost_model.h"
#include "kernels/det_gemm/defaults.h"
#include "kernels/det_gemm/simulate.h"
#include "kernels/det_gemm/workload_id.h"

namespace amk::det_gemm {
namespace {

std::string regime_of(const Problem& problem) {
  std::string regime = problem.out == OutType::Bf16 ? "det-bf16" : "det-fp32";
  if (problem.chunk > 0) regime += "-chunk" + std::to_string(problem.chunk);
  return regime;
}

}  // namespace

GemmWorkload::GemmWorkload(const Problem& problem, const GpuTarget& target)
    : problem_(problem),
      shape_(det_gemm::canonical(problem)),
      target_(target),
      id_(workload_id(problem)),
      regime_(regime_of(problem)),
      defaults_(det_gemm::default_config(shape_, dense_storage(shape_), target_)),
      space_(space_of(shape_, dense_storage(shape_), target_, defaults_)),
      seed_((std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()) {}

Result<std::shared_ptr<const GemmWorkload>> GemmWorkload::create(const Problem& problem, const GpuTarget& target) {
  AMK_TRY(numeric, numeric_class_of(target.sm_major, target.sm_minor));
  return std::shared_ptr<const GemmWorkload>(new GemmWorkload(problem, target));
}

Json GemmWorkload::features() const {
  const Floor floor = floor_of(shape_, target_);
  return {{"m", shape_.m},
          {"n", shape_.n},
          {"k", shape_.k},
          {"x_k_contiguous", shape_.x_k_contiguous},
          {"y_k_contiguous", shape_.y_k_contiguous},
          {"chunk", shape_.chunk},
          {"fp32_out", shape_.out == OutType::Fp32},
          {"flops", floor.flops},
          {"bytes", compulsory_bytes(shape_)},
          {"sm_count", target_.sm_count},
          {"l2_bytes", target_.l2_bytes},
          {"bandwidth_gbs", target_.peak_bandwidth_gbs},
          {"tflops", target_.peak_bf16_tflops},
          {"smem_bytes", target_.smem_optin_bytes}};
}

Result<Json> GemmWorkload::canonical(const Json& config) const {
  AMK_TRY(parsed, parse_config(config, defaults_));
  return to_json(parsed);
}

Result<Point> GemmWorkload::point_of(const Json& canonical) const {
  AMK_TRY(parsed, parse_config(canonical, defaults_));
  return det_gemm::point_of(space_, parsed);
}

std::string GemmWorkload::schedule_id(const Json& canonical) const {
  const auto parsed = parse_config(canonical, defaults_);
  return parsed ? "s" + hash128_hex(canonical_dump(to_json(*parsed))) : std::string();
}

Result<Plan> GemmWorkload::plan(const Json& canonical) const {
  AMK_TRY(parsed, parse_config(canonical, defaults_));
  return make_plan(shape_, dense_storage(shape_), parsed, target_);
}

Result<double> GemmWorkload::predict_us(const Json& canonical, const Progress& progress) const {
  progress.phase("validation");
  AMK_TRY(made, plan(canonical));
  return estimate(made, target_).latency_us;
}

Result<Json> GemmWorkload::compile(const Json& canonical) const {
  AMK_TRY(made, plan(canonical));
  Json json = to_json(made);
  json["workload"] = id_;
  return json;
}

Result<Verdict> GemmWorkload::judge_on_cpu(const Json& config, const Progress& progress) const {
  AMK_TRY(parsed, parse_config(config, defaults_));
  Verdict verdict = verdict_of(*this, to_json(parsed));

  progress.phase("validation");  // a plan is made and proved at once
  auto made = make_plan(shape_, dense_storage(shape_), parsed, target_);
  if (!made && made.error().kind == ErrorKind::Rejected) {
    reject(verdict, made.error(), "plan");
    return verdict;
  }
  if (!made) return tl::unexpected<Error>(std::move(made).error());
  verdict.valid = true;
  verdict.tasks = made->tiles_m * made->tiles_n * made->cluster;
  verdict.weight_bytes = 2 * problem_.N * problem_.K;
  verdict.smem_bytes = made->smem_bytes;

  progress.phase("check");
  if (progress.report) progress.report(0.2, "executing the plan on samples");
  AMK_TRY(outcome, simulate(*made, seed_, progress.stop));
  Correctness correctness;
  correctness.max_abs_err = outcome.max_abs_err;
  correctness.mean_abs_err = outcome.mean_abs_err;
  correctness.bound = outcome.bound;
  correctness.top1_agreement = 1;
  correctness.bitwise_repeatable = outcome.different == 0;
  correctness.positions_checked = outcome.checked;
  verdict.correctness = correctness;
  verdict.correct = outcome.failure.empty();
  verdict.status = verdict.correct ? VerdictStatus::Ok : VerdictStatus::Incorrect;
  verdict.notes =
      "Checked on the CPU: the plan's tiles cover the output exactly once; its k loop, executed on sampled tiles, gives the bits of class " +
      made->numeric.id + (made->numeric.verified ? "." : " (a model of this architecture that was never compared with hardware).");
  if (!outcome.failure.empty()) verdict.notes += " Failed: " + outcome.failure + ".";
  if (verdict.correct) {
    progress.phase("timing");  // predicted
    const Floor floor = floor_of(shape_, target_);
    const Estimate predicted = estimate(*made, target_);
    verdict.latency_us = predicted.latency_us;
    verdict.latency_kind = LatencyKind::Predicted;
    verdict.bound_us = floor.bound_us;
    verdict.pct_of_roofline = 100.0 * floor.bound_us / predicted.latency_us;
    verdict.read_bandwidth_gbs = static_cast<double>(compulsory_bytes(shape_)) / predicted.latency_us * 1e-3;
    verdict.regions = regions_of(predicted, predicted.latency_us);
    verdict.notes += " Bound by " + std::string(predicted.binds) + ".";
  }
  if (progress.report) progress.report(1.0, "judged");
  return verdict;
}

TimedFloor timed_floor(const GemmWorkload& workload) {
  return {floor_of(workload.shape(), workload.target()).bound_us, compulsory_bytes(workload.shape())};
}

}  // namespace amk::det_gemm
