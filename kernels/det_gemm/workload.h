// One deterministic GEMM on one GPU target, on the CPU: space, plan, prediction, and the plan's execution on samples against the oracle.
// Thread-safe. docs/det-gemm.md.
#pragma once

#include <memory>
#include <string>

#include "kernels/det_gemm/plan.h"
#include "kernels/family.h"
#include "kernels/timed_verdict.h"

namespace amk::det_gemm {

class GemmWorkload final : public Workload {
 public:
  // Unsupported when the target has no bf16 matrix instruction.
  static Result<std::shared_ptr<const GemmWorkload>> create(const Problem& problem, const GpuTarget& target);

  const std::string& id() const override { return id_; }
  const std::string& regime() const override { return regime_; }
  const GpuTarget& target() const override { return target_; }
  const SearchSpace& space() const override { return space_; }
  Json features() const override;

  Result<Json> canonical(const Json& config) const override;
  Json default_config() const override { return to_json(defaults_); }
  Result<Point> point_of(const Json& canonical) const override;
  Json config_at(const Point& point) const override { return to_json(config_of(space_, point)); }
  std::string schedule_id(const Json& canonical) const override;

  using Workload::predict_us;
  Result<double> predict_us(const Json& canonical, const Progress& progress) const override;
  Result<Verdict> judge_on_cpu(const Json& canonical, const Progress& progress) const override;
  Result<Json> compile(const Json& canonical) const override;

  const Problem& problem() const { return problem_; }
  const Canonical& shape() const { return shape_; }
  Result<Plan> plan(const Json& canonical) const;

 private:
  GemmWorkload(const Problem& problem, const GpuTarget& target);
  Problem problem_;
  Canonical shape_;
  GpuTarget target_;
  std::string id_, regime_;
  Config defaults_;
  SearchSpace space_;
  std::uint64_t seed_ = 0;  // fresh for every opening: no candidate can know the inputs
};

// What no honest sample undercuts: the physical floor, and the bytes that a launch must move.
TimedFloor timed_floor(const GemmWorkload& workload);

}  // namespace amk::det_gemm
